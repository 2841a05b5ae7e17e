"""The weights that ship: found, checked against their table, and shared."""

import json

import pytest
import torch

from harness.duplex.reference import weights
from harness.duplex.reference.config import CONFIGS, CPU_TILE
from tests.duplex.lockstep import build


@pytest.mark.parametrize("missing", ["tiny.json", "tiny.safetensors"])
def test_weights_that_are_missing_are_named(tmp_path, missing):
    for name in {"tiny.json", "tiny.safetensors"} - {missing}:
        (tmp_path / name).symlink_to(weights.DATA / name)

    with pytest.raises(weights.Unavailable, match=missing):
        weights.load("tiny", torch.device("cpu"), torch.float32, tmp_path)


def test_voices_that_the_weights_do_not_hold_are_named(tmp_path):
    (tmp_path / "tiny.safetensors").symlink_to(weights.DATA / "tiny.safetensors")
    table = json.loads((weights.DATA / "tiny.json").read_text(encoding="utf-8"))
    (tmp_path / "tiny.json").write_text(json.dumps(table | {"voices": ["tenor"]}), encoding="utf-8")

    with pytest.raises(ValueError, match=r"tenor.*tiny\.safetensors"):
        weights.load("tiny", torch.device("cpu"), torch.float32, tmp_path)


def test_engines_of_one_process_share_their_weights():
    one, other = build(), build(batch="8")

    assert one.tick.model is other.tick.model
    assert one.tick.state is not other.tick.state
    assert other.tick.rows % CPU_TILE == 0
    assert one.window == CONFIGS["tiny"].temporal.context
