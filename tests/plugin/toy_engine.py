"""The engine of the plugin's tests: every way to answer, and to go wrong, is a method. Copied beside each inner suite as `toy`.

What happens to it is written to `toy.log` beside the module, a line each, so that a test can read it after the process has gone.
"""

import os
import threading
from pathlib import Path
from typing import ClassVar

from harness.core import faults
from harness.core.capabilities import ConnectorCap
from harness.core.faults import Role, fault
from harness.core.verdict import Unavailable

LOG = Path(__file__).with_name("toy.log")
OFFERED = dict.fromkeys((member.value for member in ConnectorCap), "full")
CLAIMS = ("connector.toy.first", "connector.toy.second")


def note(line):
    with LOG.open("a") as log:
        log.write(f"{line}\n")


class Engine:
    def __init__(self, name, options):
        self.name, self.options = name, options
        self.pages, self.calls, self.closed = 0, 0, False
        note(f"boot {name}")

    def echo(self, value):
        return value

    def option(self):
        return self.options["mode"]

    def count(self):
        """Does not repeat itself."""
        self.calls += 1
        return self.calls

    def fail(self):
        raise RuntimeError("out of pages")

    def hold(self, pages):
        self.pages += pages

    def hang(self):
        note("hangs")
        threading.Event().wait()

    def hang_stubbornly(self):
        """Swallows what interrupts it once, and leaves a thread behind that never ends and that Python would wait for."""
        threading.Thread(target=threading.Event().wait, name="stuck").start()
        try:
            self.hang()
        except BaseException:  # noqa: BLE001
            return

    def usage(self):
        if self.closed:
            raise RuntimeError("closed")
        return {"pages": self.pages, "workers": 1}

    def close(self):
        note(f"close {self.name}")
        self.closed = True
        if self.name.endswith("stuck"):
            raise RuntimeError("device lost")


class Toy:
    """An adapter; what differs between engines is in `spec` and `why`."""

    why = None
    build_raises = None
    spec: ClassVar = {
        "name": "connector/toy",
        "summary": "says what it is told",
        "reference": True,
        "package": "pluggy",
        "options": {"mode": {"default": "plain", "choices": ["plain", "loud", "with space"]}},
        "profiles": {"cpu": {}},
        "capabilities": OFFERED,
    }

    @classmethod
    def available(cls):
        if isinstance(cls.why, Exception):
            raise cls.why
        return cls.why

    @classmethod
    def build(cls, config, clock):  # noqa: ARG003
        if cls.build_raises is not None:
            note(f"refuse {cls.spec['name']}")
            raise cls.build_raises
        return Engine(cls.spec["name"], config.options)


def variant(name, **changes):
    """Another adapter: keys of `spec`, and `why` or `build_raises`."""
    spec = {**Toy.spec, "name": f"connector/{name}", **{k: v for k, v in changes.items() if k not in ("why", "build_raises")}}
    return type(name, (Toy,), {"spec": spec, "why": changes.get("why"), "build_raises": changes.get("build_raises")})


Other = variant("other")
Never = variant("never", capabilities=OFFERED | {"many_reads": {"support": "never", "reason": "one reader only"}})
NotYet = variant("notyet", capabilities=OFFERED | {"many_reads": {"support": "not_yet", "reason": "planned"}})
Newer = variant("newer", capabilities=OFFERED | {"many_reads": {"support": "since", "since": "99.0"}})
Older = variant("older", capabilities=OFFERED | {"many_reads": {"support": "since", "since": "0.0.1"}})
Missing = variant("missing", why="no cards here")
Unready = variant("unready", why=ImportError("no xxhash"), reference=True)
Foreign = variant("foreign", why=ImportError("no xxhash"), reference=False)
Gated = variant("gated", build_raises=Unavailable("weights are gated"))
Broken = variant("broken", build_raises=RuntimeError("no kernel image"))
Twice = variant("twice", profiles={"cpu": {}, "large": {}})
Big = variant("big", profiles={"cpu": {}, "gpu": {"platform": "cuda", "card_class": "H100", "num_cards": 1, "gpu_gib": 3}})
Seen = variant("seen", profiles={"cpu": {"num_cards": 1, "gpu_gib": 3}})
ON_CARDS = {"platform": "cuda", "card_class": "H100", "gpu_gib": 3}
Single = variant("single", profiles={"gpu": {**ON_CARDS, "num_cards": 1}})
Double = variant("double", profiles={"gpu": {**ON_CARDS, "num_cards": 2}})
Quad = variant("quad", profiles={"gpu": {**ON_CARDS, "num_cards": 4}})
Stuck = variant("stuck")
NoSpec = type("NoSpec", (), {"available": Toy.available, "build": Toy.build})

# The real faults break the real reference engines; TOY_FAULTS names those that this run plants instead.
if os.environ.get("TOY_FAULTS"):
    faults.KINDS = ()
    faults._REGISTERED.clear()


def plant(name, *claims, seam="Engine.echo", role=Role.FAULT, raises=()):
    """A decorator that registers the fault if TOY_FAULTS names it."""
    if name not in os.environ.get("TOY_FAULTS", "").split():
        return lambda replacement: replacement
    return fault(f"connector/{name}", seam=f"toy:{seam}", claims=claims, role=role, raises=raises)


@plant("wrong", *CLAIMS)
def wrong(original, engine, value):
    """One is added to what is said."""
    return original(engine, value) + 1


@plant("harmless", *CLAIMS)
def harmless(original, engine, value):
    """A fault that shows nowhere."""
    return original(engine, value)


@plant("half", CLAIMS[0])
def half(original, engine, value):
    """A fault that the second claim has nothing to do with."""
    return original(engine, value) + 1


@plant("uncollected", "connector.toy.gone")
def uncollected(original, engine, value):
    """A fault whose claim no test makes."""
    return original(engine, value) + 1


@plant("mistaken", *CLAIMS)
def mistaken(original, engine, value):
    """A fault with a mistake of its own."""
    return 1 / 0


@plant("raising", *CLAIMS, raises=(ZeroDivisionError,))
def raising(original, engine, value):
    """The engine divides by what it should not."""
    return 1 / 0


@plant("input", *CLAIMS, role=Role.WRONG_INPUT)
def wrong_input(original, engine, value):
    """A wrong answer without a public source."""
    return -1


@plant("canary", *CLAIMS, role=Role.CANARY)
def canary(original, engine, value):
    """Nothing is said."""


@plant("null", role=Role.NULL)
def null(original, engine, value):
    """Nothing is wrong."""
    return original(engine, value)


@plant("alarming", role=Role.NULL)
def alarming(original, engine, value):
    """A null fault that is one in name only."""
    return original(engine, value) + 1
