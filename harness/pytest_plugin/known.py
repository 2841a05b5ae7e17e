"""Expected failures in a run: entries of ci/known_failures.toml, and capabilities declared NOT_YET."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import pytest

from harness.core.known_failures import KnownFailure, KnownFailureError, check_names, load
from harness.core.verdict import Verdict
from harness.pytest_plugin.state import CASE, CLAIM, RUN

KNOWN = pytest.StashKey[list[KnownFailure]]()


@dataclass(frozen=True)
class Expectation:
    """A failure that is expected of an item: with which verdicts, why, and what to change once it passes."""

    verdicts: frozenset[Verdict]
    reason: str
    remedy: str
    strict: bool = True


def known_failures(config: pytest.Config) -> list[KnownFailure]:
    """The run's known failures, read once."""
    if KNOWN not in config.stash:
        try:
            config.stash[KNOWN] = load(config.rootpath / config.getini("assay_known_failures"))
        except KnownFailureError as wrong:
            raise pytest.UsageError(str(wrong)) from None
    return config.stash[KNOWN]


def check(config: pytest.Config, claims: set[str]) -> None:
    """Raise UsageError for an entry of an engine or a claim that there is not."""
    try:
        check_names(known_failures(config), config.stash[RUN].registry.specs, claims)
    except KnownFailureError as wrong:
        raise pytest.UsageError(str(wrong)) from None


def overdue(config: pytest.Config, today: datetime.date) -> list[str]:
    """A line for each entry that somebody promised to look at again by now."""
    return [entry.overdue for entry in known_failures(config) if entry.is_expired(today)]


def overdue_here(config: pytest.Config, today: datetime.date) -> list[str]:
    """`overdue`, of the engines and versions that this run is asked for: nobody's lane fails for an engine that it does not run."""
    selections = config.stash[RUN].selections
    expired = [entry for entry in known_failures(config) if entry.is_expired(today)]
    return [entry.overdue for entry in expired if any(entry.is_of(s.label, s.spec.version) for s in selections)]


def expectation(item: pytest.Item, not_yet: tuple[str, str] | None) -> Expectation | None:
    """What failure is expected of the item, or None. `not_yet` is a capability declared so, with its reason."""
    selection, claim = item.stash[CASE].selection, item.stash[CLAIM]
    spec = selection.spec
    if not_yet is not None:
        capability, reason = not_yet
        place = "its adapter's spec" if spec.adapter is not None else "harness/engines.toml"
        remedy = f"raise the capability {capability} of {spec.name} in {place} from not_yet"
        return Expectation(frozenset({Verdict.FAIL, Verdict.VACUOUS}), f"{capability} not yet: {reason}", remedy)
    for entry in known_failures(item.config):
        if entry.excuses(selection.label, spec.version, claim.id):
            return Expectation(
                frozenset({entry.verdict}),
                f"{entry.issue}: {entry.evidence}",
                f"delete the entry of {claim.id} on {selection.label} {spec.version} from {item.config.getini('assay_known_failures')}",
                strict=entry.strict,
            )
    return None
