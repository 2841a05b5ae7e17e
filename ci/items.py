"""What collection finds: one item a test, engine and profile, as pytest would collect it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """One test on one engine in one profile.

    nodeid: as pytest writes it, `suites/duplex/test_isolation.py::test_recycle[duplex/reference@cpu]`.
    where: `file:line` of the test. marks: every mark, the profile's, the engine's and the test's. suite: of its register_ci
    for this profile. seconds: its share of the module's `est_time`, which is per engine. builds: it closes the shared engine and
    builds its own.
    """

    nodeid: str
    where: str
    claim: str
    kind: str
    engine: str
    profile: str
    environment: str
    marks: frozenset[str]
    requires: tuple[str, ...]
    suite: str
    seconds: float
    builds: bool

    @property
    def boot(self) -> str:
        """What shares one engine boot: `duplex/reference@cpu`."""
        return f"{self.engine}@{self.profile}"

    @property
    def module(self) -> str:
        """`suites/duplex/test_isolation.py`."""
        return self.nodeid.partition("::")[0]

    @property
    def group(self) -> str:
        """The claim's group: `duplex.isolation` of `duplex.isolation.recycle`."""
        return self.claim.rpartition(".")[0]
