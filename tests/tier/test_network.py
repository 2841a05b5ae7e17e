"""A network's numbers are a function of its size, its seed, the prompt and the identity, and of all of these."""

from dataclasses import replace

import pytest
import torch
from transformers import GptOssForCausalLM

from harness.core.bits import first_divergence
from harness.tier.reference.config import SIZES, config_of
from harness.tier.reference.executor import Executor
from harness.tier.reference.identity import PLAIN, Identity
from harness.tier.reference.masks import Masks
from harness.tier.reference.network import PLACEHOLDER, Network, transformers_config
from tests.tier.paged import CHUNK, generate, prompt, tables

CPU = torch.device("cpu")
PROMPT = prompt(300)
TINY = SIZES["tiny"]
MEDIA = (PLACEHOLDER,) * Network.media_tokens


def logits(network, ids=PROMPT, spoken=PLAIN):
    return Executor(network, 16, 1, 0, CPU).anew(ids, spoken, 2, CHUNK)[1]


def test_weights_are_a_function_of_the_seed(network):
    assert first_divergence(logits(Network(TINY, CPU)), logits(network)) is None
    assert first_divergence(logits(Network(TINY, CPU, seed=8)), logits(network)) is not None


def test_all_weights_are_made(network):
    state = dict(network.model.named_parameters())

    assert all(part.device.type == "cpu" and torch.isfinite(part).all() for part in state.values())
    assert all(part.unique().numel() > 1 for name, part in state.items() if "norm" not in name)
    assert all(buffer.device.type == "cpu" for buffer in network.model.buffers())


def test_a_token_far_back_counts(network):
    other = list(PROMPT)
    other[90] = 3 + (other[90] - 2) % 509

    assert first_divergence(logits(network, tuple(other)), logits(network)) is not None


def test_logits_are_well_spread(network):
    first, second = logits(network).topk(2).values.unbind(-1)

    assert (first - second > 1e-3).all()  # a thousand times the rounding of f32 at their size


SPOKEN = [PLAIN, Identity("formal"), Identity("terse"), Identity(version="2"), Identity("terse", "2")]


def test_identities_differ(network):
    found = [logits(network, spoken=spoken) for spoken in SPOKEN]
    found += [logits(network, MEDIA + PROMPT, Identity(media=media)) for media in (None, b"", b"a", b"b")]

    assert all(first_divergence(a, b) is not None for place, a in enumerate(found) for b in found[:place])


def test_the_first_version_is_the_plain_network(network):
    assert first_divergence(logits(network, spoken=Identity(version="1")), logits(network)) is None


@pytest.mark.parametrize("spoken", [Identity("loud"), Identity(version="3")], ids=repr)
def test_identities_that_there_are_not_are_refused(network, spoken):
    with pytest.raises(ValueError, match=r"loud|'3'"):
        logits(network, spoken=spoken)


def shown(made):
    return [{place for place, hidden in enumerate(row) if hidden == 0} for row in made[0, 0].tolist()]


def test_masks():
    made = Masks(replace(TINY, window=3), CPU).of(4, 3)

    assert shown(made["full_attention"]) == [set(range(5)), set(range(6)), set(range(7))]
    assert shown(made["sliding_attention"]) == [{0, 1, 2}, {1, 2, 3}, {2, 3, 4}]  # from position 2 on


def test_sizes():
    assert config_of("auto", CPU) is TINY
    assert config_of("auto", torch.device("cuda")) is SIZES["20b"]
    with pytest.raises(ValueError, match="size = '30b'"):
        config_of("30b", CPU)


@pytest.mark.parametrize("change", [{"layers": 3}, {"kv_heads": 3}, {"pieces": 2}], ids=repr)
def test_sizes_that_do_not_split_are_refused(change):
    with pytest.raises(ValueError, match="split"):
        replace(TINY, **change)


def test_the_weights_of_20b_are_those_of_its_card():
    with torch.device("meta"):
        model = GptOssForCausalLM(transformers_config(SIZES["20b"]))

    assert sum(part.numel() for part in model.parameters()) == 20_914_757_184  # https://arxiv.org/abs/2508.10925, table 1: 20.91 B


@pytest.mark.parametrize("experts", ["eager", "grouped_mm"])
def test_a_small_network_as_20b_is_made(experts):
    """In bfloat16, with its rotary embedding, of several layers and pieces."""
    size = replace(
        SIZES["20b"], layers=4, hidden=64, intermediate=64, heads=8, kv_heads=2, head_dim=16, experts=8, vocabulary=600, pieces=2,
        experts_implementation=experts,
    )  # fmt: skip
    executor = Executor(Network(size, CPU), 16, 64, 8, CPU)
    tokens, paged = generate(executor, PROMPT, tables(executor, 304), 4)
    expected, contiguous = executor.anew(PROMPT, PLAIN, 4, CHUNK)

    assert paged.dtype == torch.float32
    assert tokens == expected
    assert first_divergence(paged, contiguous) is None
