"""An engine's attention backend is the one that its option names, and torch's own choice again behind it."""

import pytest

from harness.core.determinism import in_force
from harness.duplex.engines.arithmetic import BACKENDS, attention


def allowed():
    """The backends that torch may choose from now."""
    return in_force()["attention_backends"]


@pytest.mark.parametrize("sdpa", [name for name in BACKENDS if name != "default"])
def test_a_backend_is_the_only_one(sdpa):
    before = allowed()
    with attention(sdpa):
        inside = allowed()

    assert (inside, allowed()) == ([sdpa], before)


def test_default_leaves_the_choice_to_torch():
    before = allowed()
    with attention("default"):
        assert allowed() == before
    assert len(before) > 1
