"""`tier/vllm` without its package: options, and what they come to as arguments of `LLM`."""

import json

import pytest

from harness.core.verdict import Unavailable
from harness.tier.checkpoint import configuration
from harness.tier.engines.vllm_options import Options, Shape


def shape(directory, model="llama", size="tiny"):
    configuration(model, size).save_pretrained(directory)
    return Shape.read(directory)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hots": "on"}, "unknown option 'hots'; nearest: host"),
        ({"model": "lama"}, "option model = 'lama'"),
        ({"eager": "yes"}, "option eager"),
        ({"page": "0"}, "option page = '0'"),
        ({"device_pages": "many"}, "option device_pages = 'many'"),
    ],
)
def test_a_wrong_option_is_named(given, says):
    with pytest.raises(ValueError, match=says):
        Options.parse(given, "cpu")


def test_auto_follows_the_device():
    small, large = Options.parse({}, "cpu"), Options.parse({}, "cuda")

    assert (small.size, small.host_pages, small.eager) == ("tiny", 0, True)
    assert (large.size, large.host_pages, large.eager) == ("8b", 16384, False)


def test_a_host_tier_on_a_cpu_is_unavailable():
    with pytest.raises(Unavailable, match="refuses a CPU"):
        Options.parse({"host": "on"}, "cpu")


def test_the_groups_of_gptoss_keep_pages_of_their_own(tmp_path):
    """A token of one of its two groups has 12 of the 24 layers."""
    assert shape(tmp_path / "l", "llama", "8b").token_bytes == 32 * 2 * 8 * 128 * 2
    gptoss = shape(tmp_path / "g", "gptoss", "20b")
    assert (gptoss.groups, gptoss.token_bytes) == (2, 12 * 2 * 8 * 64 * 2)


def test_the_seeds_shape_on_a_card(tmp_path):
    """The arguments that were seen to work on an H200: 2200 blocks of 16 tokens, 32 GiB on the host."""
    given = Options.parse({}, "cuda").arguments(tmp_path, shape(tmp_path, "llama", "8b"))

    assert (given["kv_offloading_size"], given["kv_offloading_backend"]) == (32.0, "native")
    assert (given["load_format"], given["block_size"], given["max_num_seqs"], given["num_gpu_blocks_override"]) == ("dummy", 16, 2, 2201)


def test_no_offloading_without_a_host_tier(tmp_path):
    given = Options.parse({"host": "off"}, "cuda").arguments(tmp_path, shape(tmp_path))

    assert not {name for name in given if name.startswith("kv_offloading")}


def test_a_request_fits_the_pool(tmp_path):
    """vLLM does not start with a longer one: half of the pool, where two groups share it."""
    small = Options.parse({"device_pages": "100"}, "cpu")

    assert (small.longest(shape(tmp_path / "l")), small.longest(shape(tmp_path / "g", "gptoss"))) == (1600, 800)
    assert Options.parse({"device_pages": "9000"}, "cpu").longest(shape(tmp_path / "m")) == 8192


def test_a_directory_without_a_configuration_is_named(tmp_path):
    with pytest.raises(ValueError, match="give the directory of a checkpoint"):
        Shape.read(tmp_path)


def test_the_tokenizer_is_read_where_there_is_one(tmp_path):
    """Without it vLLM checks no token id against the vocabulary."""
    made = shape(tmp_path)
    options = Options.parse({}, "cpu")
    assert options.arguments(tmp_path, made)["skip_tokenizer_init"]

    (tmp_path / "tokenizer.json").write_text(json.dumps({}))
    assert not options.arguments(tmp_path, made)["skip_tokenizer_init"]
