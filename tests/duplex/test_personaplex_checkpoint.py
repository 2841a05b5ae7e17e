"""The synthetic checkpoint: the hub's layout, the same bytes each time, and heads whose margins are wide."""

import tarfile

import pytest
import torch
from safetensors.torch import load_file

from harness.duplex.engines import personaplex_checkpoint as checkpoint
from harness.duplex.engines import streamed_safetensors
from harness.duplex.engines.personaplex_codec import codec
from harness.duplex.engines.personaplex_pieces import SPACE, pieces, write_tokenizer
from harness.duplex.engines.personaplex_sizes import SIZES, Codec, Size
from harness.duplex.engines.personaplex_weights import CALLER, FIRM, POOL, Noise, language_model, word
from harness.duplex.engines.streamed_safetensors import Planned

SMALL = Size(64, 1, 2, 32, 8, 48, 1, 2, 16, Codec(2, 16, 2, 16, 8, 8, 8), voice_ticks=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The language model's file at the smallest size, read by the library that the engine reads it with."""
    path = tmp_path_factory.mktemp("checkpoint") / checkpoint.MODEL
    streamed_safetensors.write(path, language_model(SMALL, 1))
    return load_file(path)


def test_a_streamed_file_is_read_as_it_was_written(tmp_path):
    """Names, shapes, dtypes and bits, of tensors that are made when their turn comes."""
    tensors = {"b": torch.randn(3, 5), "a": torch.randn(2, 1, 4).to(torch.bfloat16), "c": torch.randn(4, 6).t()}
    plan = {name: Planned(tuple(tensor.shape), tensor.dtype, lambda tensor=tensor: tensor) for name, tensor in tensors.items()}

    streamed_safetensors.write(tmp_path / "x.safetensors", plan)

    read = load_file(tmp_path / "x.safetensors")
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in tensors.items())


@pytest.mark.parametrize("made", [torch.zeros(3), torch.zeros(2, dtype=torch.bfloat16)], ids=["shape", "dtype"])
def test_a_tensor_that_was_not_planned_so_is_refused(tmp_path, made):
    """The header is written before it is made."""
    with pytest.raises(ValueError, match="x: made"):
        streamed_safetensors.write(tmp_path / "x.safetensors", {"x": Planned((2,), torch.float32, lambda: made)})


def test_the_language_model_has_moshis_names_and_shapes(model):
    """Eight sets of depth weights, as the published checkpoint has them."""
    assert {name: tuple(tensor.shape) for name, tensor in model.items()} == {
        "text_emb.weight": (32_001, 64),
        **{f"emb.{row}.weight": (2049, 64) for row in range(16)},
        "transformer.layers.0.self_attn.in_proj_weight": (192, 64),
        "transformer.layers.0.self_attn.out_proj.weight": (64, 64),
        "transformer.layers.0.gating.linear_in.weight": (64, 64),
        "transformer.layers.0.gating.linear_out.weight": (64, 32),
        "transformer.layers.0.norm1.alpha": (1, 1, 64),
        "transformer.layers.0.norm2.alpha": (1, 1, 64),
        "out_norm.alpha": (1, 1, 64),
        "text_linear.weight": (32_000, 64),
        "depformer_text_emb.weight": (32_001, 48),
        **{f"depformer_emb.{step}.weight": (2049, 48) for step in range(7)},
        **{f"depformer_in.{step}.weight": (48, 64) for step in range(8)},
        **{f"linears.{step}.weight": (2048, 48) for step in range(8)},
        "depformer.layers.0.self_attn.in_proj_weight": (8 * 144, 48),
        "depformer.layers.0.self_attn.out_proj.weight": (8 * 48, 48),
        **{f"depformer.layers.0.gating.{step}.linear_in.weight": (32, 48) for step in range(8)},
        **{f"depformer.layers.0.gating.{step}.linear_out.weight": (48, 16) for step in range(8)},
        "depformer.layers.0.norm1.alpha": (1, 1, 48),
        "depformer.layers.0.norm2.alpha": (1, 1, 48),
    }
    assert all(tensor.dtype == torch.bfloat16 and tensor.isfinite().all() for tensor in model.values())


def winners(head, embedded):
    """Which row of the head each embedded vector decides for, and the least ratio of the best logit to the second."""
    logits = embedded.float() @ head.float().T
    best = logits.topk(2, dim=1)
    return best.indices[:, 0], float((best.values[:, 0] / best.values[:, 1]).min())


def test_what_a_firm_head_decides_is_what_was_embedded(model):
    """The text follows the caller's first codebook, codebook 0 the text, codebooks 1 to 3 the one before, each over its second by far."""
    codes = torch.arange(2048)
    text, margin = winners(model["text_linear.weight"], model[CALLER][:2048])
    assert torch.equal(text, word(codes))
    assert margin > 1.25

    before = [model["depformer_text_emb.weight"][word(codes)], *(model[f"depformer_emb.{step}.weight"][:2048] for step in range(FIRM - 1))]
    for step, embedded in enumerate(before):
        decided, margin = winners(model[f"linears.{step}.weight"], embedded)
        assert torch.equal(decided, (codes + 1 + step) % 2048)
        assert margin > 1.1


def test_a_head_that_is_not_firm_follows_no_embedding(model):
    """The twin: its rows are nobody's, and its best is hardly ahead of its second."""
    decided, margin = winners(model[f"linears.{FIRM}.weight"], model[f"depformer_emb.{FIRM - 1}.weight"][:2048])

    assert not torch.equal(decided, (torch.arange(2048) + 1 + FIRM) % 2048)
    assert margin < 1.01


def test_noise_is_named_and_seeded():
    """The same for a name in any order of asking; another for another name or seed; of the scale that was asked for."""
    noise, other = Noise(1), Noise(2)
    first = noise("a", (64, 64), 0.5)
    noise("b", (3,))

    assert torch.equal(noise("a", (64, 64), 0.5), first)
    assert not torch.equal(noise("b", (64, 64), 0.5), first)
    assert not torch.equal(other("a", (64, 64), 0.5), first)
    assert first.float().std().item() == pytest.approx(0.5, rel=0.05)


def test_noise_that_is_longer_than_its_pool_goes_round():
    """No part of it is left unwritten."""
    long = Noise(1)("long", (POOL + 1000,))

    assert torch.equal(long[POOL:], long[:1000])
    assert long[-1000:].float().std().item() == pytest.approx(1.0, rel=0.1)


def test_the_codec_has_mimis_names(tmp_path):
    """80 tensors a transformer, as the engine counts them; the quantizers that the size has; vectors of one length in a codebook."""
    path = tmp_path / checkpoint.CODEC
    streamed_safetensors.write(path, codec(SMALL.codec, 1))
    tensors = load_file(path)

    for which in ("encoder", "decoder"):
        assert sum(name.startswith(f"{which}_transformer.transformer.layers.") for name in tensors) == 80
        assert sum(name.startswith(f"{which}.model.") for name in tensors) == 2 * 14
    books = [name for name in tensors if name.endswith("._codebook.embedding_sum")]
    assert len(books) == SMALL.codec.quantizers
    lengths = tensors[books[0]].norm(dim=1)
    assert torch.allclose(lengths, lengths[:1])
    assert all(tensor.dtype == torch.float32 and tensor.isfinite().all() for tensor in tensors.values())


def test_voices_are_bundles_that_load_as_weights_only(tmp_path):
    """Each with embeddings and a snapshot of the staging ring, and no two alike."""
    checkpoint.write_voices(tmp_path / "voices.tgz", SMALL)
    with tarfile.open(tmp_path / "voices.tgz") as archive:
        assert archive.getnames() == [f"voices/{name}" for name in checkpoint.VOICE_NAMES]
        bundles = [torch.load(archive.extractfile(member), weights_only=True) for member in archive]

    assert [tuple(bundle["embeddings"].shape) for bundle in bundles] == [(2, 1, 1, 64)] * 2
    assert [tuple(bundle["cache"].shape) for bundle in bundles] == [(1, 17, 4)] * 2
    assert not torch.equal(bundles[0]["embeddings"], bundles[1]["embeddings"])


def test_the_vocabulary_has_32000_pieces_once_each():
    """Every text that a code decides is letters, and the words of the default persona are pieces of their own."""
    made = pieces()

    assert len(made) == len(set(made)) == 32_000
    assert all(made[int(token)].lstrip(SPACE).isalpha() for token in word(torch.arange(2048)))
    assert f"{SPACE}teacher" in made


def test_the_tokenizer_prefers_whole_words(tmp_path):
    """As the engine's own SentencePieceProcessor reads it."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed (make engine NAME=vllm-omni)")
    write_tokenizer(tmp_path / checkpoint.TOKENIZER)

    tokenizer = sentencepiece.SentencePieceProcessor(str(tmp_path / checkpoint.TOKENIZER))

    assert tokenizer.get_piece_size() == 32_000
    assert tokenizer.pad_id() == 3
    assert tokenizer.encode("wise and friendly", out_type=str) == [SPACE + word for word in ("wise", "and", "friendly")]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A machine that has built nothing yet, and what counts its builds."""
    builds = []

    def build(directory, size, seed):
        builds.append((size, seed))
        directory.mkdir(exist_ok=True)
        (directory / "made").touch()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(checkpoint, "build", build)
    return tmp_path, builds


def test_a_size_is_built_once_a_machine(home):
    """By version, size and seed; nothing half made is left beside it."""
    root, builds = home
    first = checkpoint.cached("tiny")

    assert checkpoint.cached("tiny") == first
    assert builds == [(SIZES["tiny"], checkpoint.SEED)]
    assert checkpoint.cached("tiny", seed=7) != first
    assert sorted(path.name for path in (root / "assay" / "personaplex").iterdir()) == [
        f"v{checkpoint.VERSION}-tiny-seed{seed}" for seed in (20, 7)
    ]


def test_an_interrupted_build_leaves_nothing_that_is_taken_for_one(home, monkeypatch):
    """The next call builds anew."""
    root, builds = home
    complete = checkpoint.build

    def interrupted(directory, size, seed):
        complete(directory, size, seed)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.cached("tiny")
    assert list((root / "assay" / "personaplex").iterdir()) == []

    monkeypatch.setattr(checkpoint, "build", complete)
    assert (checkpoint.cached("tiny") / "made").exists()
    assert len(builds) == 2


def test_who_comes_second_takes_what_the_first_built(home, monkeypatch):
    """Two processes that find nothing build both; one directory is kept."""
    root, _ = home
    complete = checkpoint.build

    def overtaken(directory, size, seed):
        complete(root / "assay" / "personaplex" / f"v{checkpoint.VERSION}-tiny-seed20", size, seed)
        complete(directory, size, seed)

    monkeypatch.setattr(checkpoint, "build", overtaken)

    assert (checkpoint.cached("tiny") / "made").exists()
    assert len(list((root / "assay" / "personaplex").iterdir())) == 1
