"""A model is drawn from its seed, and comes back from its file as it went."""

import pytest
import torch

from harness.duplex.reference.config import CONFIGS
from harness.duplex.reference.model import DuplexModel
from harness.duplex.reference.weights import DATA, TRAINED
from tests.duplex.networks import SMALL, TICKS, Stream, agree, small, sound


def test_a_seed_draws_one_model():
    one, two, other = small().state_dict(), small().state_dict(), small(seed=8).state_dict()

    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["language.text_head"], other["language.text_head"])


def test_a_file_brings_everything_back(tmp_path):
    model = small()
    model.save(tmp_path / "m.safetensors")
    loaded = DuplexModel.load(tmp_path / "m.safetensors", SMALL)

    assert list(loaded.voices) == list(model.voices)
    for name, voice in model.voices.items():
        agree(loaded.voices[name].embeddings, voice.embeddings)
        agree(loaded.voices[name].ring, voice.ring)
    agree(loaded.silence, model.silence)
    agree(loaded.sine, model.sine)
    for kind in ("encoder", "decoder", "language"):
        agree(Stream(kind, loaded).run(Stream(kind, loaded).inputs()), Stream(kind, model).run(Stream(kind, model).inputs()))


def test_a_file_of_another_size_is_refused(tmp_path):
    small().save(tmp_path / "m.safetensors")
    with pytest.raises(RuntimeError, match=r"size mismatch for language\.embedding"):
        DuplexModel.load(tmp_path / "m.safetensors", CONFIGS["tiny"])


def test_half_precision_steps():
    """As on a card: nothing mixes types, and decisions stay in range."""
    model = small(torch.bfloat16)
    for kind in ("encoder", "decoder", "language"):
        stream = Stream(kind, model)
        outputs = stream.run(stream.inputs())
        assert torch.isfinite(outputs).all()
        assert kind == "decoder" or outputs.max() <= max(SMALL.audio_card, SMALL.text_card)
        assert {part.dtype for part in stream.parts(0)} == {torch.bfloat16 if kind == "language" else torch.float32, torch.int64}


def test_half_precision_hears_the_same():
    """The codec of a model in bfloat16 is the codec of the trained weights, to the bit; rounded to bfloat16 it hears other codes."""
    full, half = (DuplexModel.load(DATA / TRAINED, CONFIGS["tiny"], dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    heard = full.codec.encode_sequence(sound(1, TICKS).flatten(1))

    agree(half.codec.encode_sequence(sound(1, TICKS).flatten(1)), heard)
    assert not torch.equal(half.codec.to(torch.bfloat16).encode_sequence(sound(1, TICKS).flatten(1)), heard)


def test_the_shipped_size_fits_its_file():
    """The trained weights, of this size, are a file of at most 8 MB."""
    model = DuplexModel.random(CONFIGS["tiny"], 0)
    assert sum(tensor.nbytes for tensor in model.state_dict().values()) < 8_000_000
