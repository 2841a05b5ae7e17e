"""The reference engine, as if it ran on cards: a profile that asks for them and computes on the CPU, so that ranks meet over gloo.

For suites/transfer/test_cards.py and its like, on a machine whose driver is simulated.
"""

from typing import ClassVar

from harness.core.registry import builtin_specs
from harness.transfer.engines.reference import ReferenceTransfer


def _described():
    spec = next(spec for spec in builtin_specs() if spec.name == "transfer/reference")
    return {
        "name": "transfer/gloo",
        "summary": "the reference engine on simulated cards",
        "reference": True,
        "options": {name: {"default": o.default, "choices": list(o.choices), "help": o.help} for name, o in spec.options.items()},
        "processes": {name: list(values) for name, values in spec.processes.items()},
        "profiles": {"gpu": {"device": "cpu", "platform": "cuda", "card_class": "H100", "num_cards": 1}},
        "capabilities": {n: {"support": "full", "value": 1} if n == "prefetch_depth" else "full" for n in spec.capabilities},
    }


class Gloo(ReferenceTransfer):
    """The adapter."""

    spec: ClassVar = _described()
