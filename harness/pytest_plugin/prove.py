"""Prove mode: every planted fault must be caught, by verdict, by each claim that it names; the null fault by none.

An item is a claim's test on the reference engine with one fault planted. It passes if the fault's word holds: FAIL under a fault, a
wrong input and a canary; nothing that fails a run under the null fault. The score is taken from the reports, so it is the same under
xdist.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from harness.core.claims import ClaimError, Level, read_claims
from harness.core.faults import Fault, Role
from harness.core.judge import Judge
from harness.core.names import unknown
from harness.core.verdict import Finding, Verdict
from harness.pytest_plugin import text
from harness.pytest_plugin.state import CASE, CLAIM, RUN, VERDICT


def expected_to_fail(item: pytest.Item) -> bool:
    """Whether the item is part of a proof (with --fault alone a person looks at the failures themselves)."""
    return item.stash[CASE].fault is not None and item.config.stash[RUN].prove is not None


def judge_the_fault(item: pytest.Item, report: pytest.TestReport, finding: Finding | None, judge: Judge | None) -> None:
    """Turn the report around: caught passes, survived fails."""
    fault, verdict = item.stash[CASE].fault, item.stash[VERDICT]
    assert fault is not None
    holds = not verdict.fails_the_run if fault.role is Role.NULL else verdict is Verdict.FAIL
    report.when = "call"
    report.assay_proved = ("unmoved" if fault.role is Role.NULL else "caught") if holds else ""  # type: ignore[attr-defined]
    if holds:
        report.outcome, report.longrepr = "passed", None
        return
    claim = item.stash[CLAIM]
    headline = "FALSE ALARM" if fault.role is Role.NULL else "SURVIVED"
    shown = text.failure(item, finding, judge) if finding else f"replay    {text.replay(item)}"
    tail = f"\n\n{report.longrepr}" if verdict is Verdict.ERROR else ""
    report.outcome = "failed"
    report.longrepr = f"{headline}  {fault.name}  {claim.id}: {verdict}\nfault     {fault.sentence}\n{shown}{tail}"


@dataclass
class Score:
    """What became of each fault: the claims under which it was caught, and those under which it was not.

    A fault whose claims were not all run (a path, -k, Ctrl-C) is neither caught nor survives.
    """

    caught: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    missed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    seen: dict[str, str] = field(default_factory=dict)

    def add(self, fault: str, claim: str, level: str, held: bool) -> None:
        """One item's end."""
        (self.caught if held else self.missed)[fault].add(claim)
        self.seen[claim] = level

    def is_caught(self, fault: Fault) -> bool:
        """Whether every claim that the fault names ran and failed (of a null fault: that no claim failed)."""
        return not self.missed[fault.name] and not self.is_unrun(fault)

    def is_unrun(self, fault: Fault) -> bool:
        """Whether too little was run to say anything of the fault."""
        seen = self.caught[fault.name] | self.missed[fault.name]
        return not self.missed[fault.name] and not (seen and set(fault.claims) <= seen)

    def unproved(self, faults: list[Fault]) -> list[str]:
        """MUST claims that ran under the null fault and that no planted fault made fail."""
        proved = {claim for f in faults if f.role is not Role.NULL for claim in self.caught[f.name]}
        return sorted(c for c, level in self.seen.items() if level == Level.MUST.value and c not in proved)


def known_claims(config: pytest.Config) -> set[str]:
    """The id of every claim that the suites make, run or not; none where they cannot be read, which their collection tells better."""
    paths = [config.rootpath / path for path in config.getini("testpaths")]
    try:
        return {claim.id for claim in read_claims(path for path in paths if path.exists())}
    except (ClaimError, SyntaxError):
        return set()


SCORE = pytest.StashKey[Score]()
SCORER = "assay-scorer"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SCORE] = Score()


class _Scorer:
    """Reads the reports where they all arrive: in the process that prints the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._run = config.stash[RUN]
        self._nulls = {f.name for f in self._run.prove or [] if f.role is Role.NULL}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties, score = dict(report.user_properties), self._config.stash[SCORE]
        if report.when == "call" and properties.get("fault"):
            score.add(properties["fault"], properties["claim"], properties["level"], report.outcome == "passed")
        elif report.skipped and properties.get("claim"):
            # A claim that the reference engine cannot be held to is still a claim: unproved, and under a fault that names it, missed.
            score.seen[properties["claim"]] = properties["level"]
            if properties.get("fault") not in self._nulls:
                score.missed[properties["fault"]].add(properties["claim"])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self._shortfall():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _planted(self) -> list[Fault]:
        """The faults that this run planted: those of the kinds whose tests were collected, and those that name a claim which was."""
        seen = self._config.stash[SCORE].seen.keys()
        kinds = {claim.partition(".")[0] for claim in seen}
        return [f for f in self._run.prove or [] if f.kind in kinds or seen & set(f.claims)]

    def _shortfall(self) -> list[str]:
        score, planted = self._config.stash[SCORE], self._planted()
        lines = [f"survived: {f.name}: {self._why(f)}" for f in planted if score.missed[f.name]]
        made = known_claims(self._config)
        lines += [f"{f.name} names an {unknown('claim', c, made)}" for f in planted for c in f.claims if made and c not in made]
        if self._config.option.prove == "*":
            lines += [f"UNPROVED: {claim}: no fault and no wrong input made it fail" for claim in score.unproved(planted)]
        return lines or ([] if planted else ["nothing was proved: no test of a kind with planted faults was collected"])

    def _why(self, fault: Fault) -> str:
        verb = "alarmed" if fault.role is Role.NULL else "not caught by"
        return f"{verb} {', '.join(sorted(self._config.stash[SCORE].missed[fault.name]))}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        score, planted = self._config.stash[SCORE], self._planted()
        terminalreporter.ensure_newline()
        terminalreporter.section("proof")
        for line in self._shortfall():
            terminalreporter.write_line(line, red=True)
        for role, what in ((Role.NULL, "null faults unmoved"), (Role.CANARY, "canaries failed"), (Role.WRONG_INPUT, "wrong inputs failed")):
            terminalreporter.write_line(_tally(what, [f for f in planted if f.role is role], score))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        # After pytest's own last line: whoever runs a proof looks at the end of it.
        faults = [f for f in self._planted() if f.role is Role.FAULT]
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(_tally("faults caught", faults, self._config.stash[SCORE]))

    def outcome(self) -> dict[str, object]:
        """The proof for the session's record: each fault's fate, and the claims that nothing proves."""
        score, planted = self._config.stash[SCORE], self._planted()
        fates = {f.name: "not run" if score.is_unrun(f) else "caught" if score.is_caught(f) else "survived" for f in planted}
        nulls = {name: {"caught": "unmoved", "survived": "alarmed"}.get(fates[name], fates[name]) for name in self._nulls & set(fates)}
        told = {f.name: _told(f, (fates | nulls)[f.name], score) for f in planted}
        return {"faults": told, "unproved": score.unproved(planted) if self._config.option.prove == "*" else None}


def _told(fault: Fault, fate: str, score: Score) -> dict[str, object]:
    return {
        "fate": fate,
        "role": fault.role.value,
        "sentence": fault.sentence,
        "claims": list(fault.claims),
        "missed": sorted(score.missed.get(fault.name, ())),
    }


def _tally(what: str, faults: list[Fault], score: Score) -> str:
    unrun = sum(score.is_unrun(f) for f in faults)
    return f"{what} {sum(score.is_caught(f) for f in faults)} of {len(faults) - unrun}" + (f", {unrun} not run" if unrun else "")


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if config.stash[RUN].prove is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Scorer(config), SCORER)
