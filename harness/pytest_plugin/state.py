"""What a run was asked for, worked out once and kept on the pytest config."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from harness.core.claims import Claim
from harness.core.faults import Fault
from harness.core.judge import Trace
from harness.core.registry import Registry, Selection
from harness.core.spec import Profile
from harness.core.verdict import Verdict

Hardware = tuple[str, str, int]
"""Platform, card class and number of cards, as of `markers.hardware_of`."""


@dataclass(frozen=True)
class Case:
    """One way to run a test: an engine in a profile, whole or with a fault planted. `unavailable` says why it cannot run.

    The hardware in `profile` is what the test needs: its own marks' where it has such, else the engine's.
    """

    selection: Selection
    profile: Profile
    fault: Fault | None = None
    unavailable: str | None = None

    @property
    def label(self) -> str:
        """`transfer/reference@cpu`."""
        return f"{self.selection.label}@{self.profile.name}"

    @property
    def id(self) -> str:
        """The parameter in the test's name; a planted fault is appended, as in `...@cpu~layer-order`."""
        return f"{self.label}~{self.fault.name.partition('/')[2]}" if self.fault else self.label


@dataclass
class Run:
    """The options of a run, resolved, and what it gathers on its way."""

    registry: Registry
    selections: list[Selection]
    explicit: frozenset[str]
    """Names given to --engine without a wildcard: reported as UNAVAILABLE test by test instead of once."""
    seed: int
    deadline: float
    prove: list[Fault] | None = None
    fault: Fault | None = None
    adapters: dict[str, str] = field(default_factory=dict)
    """Engine name to the module:attr that --adapter gave for it."""
    replay_options: list[str] = field(default_factory=list)
    workloads: dict[str, Any] = field(default_factory=dict)
    schedule: str | None = None
    """What --schedule gave: the one schedule to play, in the words of its kind."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Engine label with profile to the reason."""
    traces: dict[str, dict[Any, Trace]] = field(default_factory=dict)
    boots: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    doctor: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Device to what its operations came to, where an INCONCLUSIVE verdict asked; see `harness.core.doctor.repeat.Repeat`."""
    missed_deadline: bool = False
    claimed: dict[str, str] = field(default_factory=dict)
    """Claim id to the test that makes it, as collected."""
    spent: Counter[str] = field(default_factory=Counter)
    """Seconds: `loop`, of running tests; in it `build`, of booting engines, and `engine`, of their other calls. Added up over workers."""
    leases: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Worker (`main` without workers) to the index and UUID of each card that it leased."""
    _asked: dict[tuple[str, str | None, int], str | None] = field(default_factory=dict)

    def cases(self, kind: str, hardware: Hardware | None = None) -> Iterator[Case]:
        """The engines and profiles that tests of this kind run on; `hardware` stands in place of the profile's, on its platform only.

        An engine that runs here in its profile, but not on so many cards, is not silently left out.
        """
        for selection in self.selections:
            if selection.spec.kind == kind:
                for profile in selection.spec.profiles.values():
                    label = Case(selection, profile).label
                    needed, reason, asked_for = profile, self.unavailable.get(label), selection.spec.name in self.explicit
                    if hardware is not None:
                        platform, card_class, num_cards = hardware
                        if platform != profile.platform:
                            continue
                        asked_for = asked_for or reason is None
                        needed = replace(profile, card_class=card_class, num_cards=num_cards)
                        reason = self._why_unavailable_on(label, selection, needed)
                    if reason is None or asked_for:
                        yield Case(selection, needed, unavailable=reason)

    def _why_unavailable_on(self, label: str, selection: Selection, needed: Profile) -> str | None:
        key = label, needed.card_class, needed.num_cards
        if key not in self._asked:
            self._asked[key] = _why_unavailable(selection, needed)
        return self._asked[key]

    def survey(self) -> None:
        """Ask every selected engine and profile once whether it can run here."""
        for selection in self.selections:
            for profile in selection.spec.profiles.values():
                reason = _why_unavailable(selection, profile)
                if reason is not None:
                    self.unavailable[Case(selection, profile).label] = reason


def _why_unavailable(selection: Selection, profile: Profile) -> str | None:
    try:
        return selection.spec.why_unavailable(profile)
    except Exception as broken:
        told = f"available() raised {type(broken).__name__}: {broken}"
        if selection.spec.reference:
            # It ships with Assay: a run without it would be green for want of a package of ours.
            raise pytest.UsageError(f"{selection.spec.name}: {told}; install what pyproject.toml asks for") from broken
        # A third party's may raise anything; the run goes on without that engine.
        return told


RUN = pytest.StashKey[Run]()
"""On the config: the run."""
CASE = pytest.StashKey[Case]()
"""On an item: its case."""
CLAIM = pytest.StashKey[Claim]()
"""On an item: its claim."""
VERDICT = pytest.StashKey[Verdict]()
"""On an item: the verdict, once there is one."""
REASON = pytest.StashKey[str]()
"""On an item: why it was skipped or is an expected failure."""
REPLAY = pytest.StashKey[list[str]]()
"""On an item: options of its own that its replay needs, such as the schedule that it had drawn."""
