"""Errors for names that do not exist."""

import pytest

from harness.core.names import unknown


@pytest.mark.parametrize(
    ("name", "valid", "text"),
    [
        ("referense", ["reference", "vllm-omni"], "unknown engine 'referense'; nearest: reference"),
        ("abc", ["abd", "abe", "abf", "abg"], "unknown engine 'abc'; nearest: abg, abf, abe"),
        ("zzz", ["reference", "memory"], "unknown engine 'zzz'; there are: memory, reference"),
        ("zzz", ["memory", "memory"], "unknown engine 'zzz'; there are: memory"),
        ("zzz", [], "unknown engine 'zzz'; there are: none"),
        ("zzz", iter(["memory"]), "unknown engine 'zzz'; there are: memory"),
    ],
    ids=["near", "three", "none near", "twice", "none", "iterator"],
)
def test_unknown(name, valid, text):
    """The nearest three, or all of them in order if none is near."""
    assert unknown("engine", name, valid) == text
