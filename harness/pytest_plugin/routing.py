"""From a collected function to items: its claim, its kind, the engines it runs on, their marks, and the worker that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

import markers
from harness.core.capabilities import Requirement, Support
from harness.core.claims import Claim
from harness.core.faults import Fault
from harness.core.names import unknown
from harness.pytest_plugin.state import CASE, CLAIM, RUN, Case, Hardware, Run
from markers import ENGINE_FIXTURES, OWN_ENGINE


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in markers.MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    fixture = next((name for name in ENGINE_FIXTURES if name in metafunc.fixturenames), None)
    if fixture is None:
        return
    run = metafunc.config.stash[RUN]
    kind = _kind(metafunc)
    claim = _claim(metafunc)
    _check_unique(metafunc, claim, run)
    _check_requirements(metafunc, kind)
    _check_excuses(metafunc)
    cases = list(_cases(run, kind, claim, _hardware(metafunc)))
    # pytest makes a skipped test of an empty list; None stands for it, and is deselected below.
    params = [pytest.param(case, id=case.id, marks=_marks(metafunc, case)) for case in cases] or [pytest.param(None, id="none")]
    metafunc.parametrize(fixture, params, indirect=True)


def _hardware(metafunc: pytest.Metafunc) -> Hardware | None:
    """What the test's own marks ask of the hardware: it stands in place of the profile's, and only profiles of its platform are judged."""
    try:
        return markers.hardware_of(mark.name for mark in metafunc.definition.iter_markers())
    except ValueError as wrong:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {wrong}") from None


def _cases(run: Run, kind: str, claim: Claim, hardware: Hardware | None) -> Iterator[Case]:
    """Whole engines; or, when faults are planted, the reference engine once for each fault that this claim is there to catch."""
    cases = list(run.cases(kind, hardware))
    if run.prove is None and run.fault is None:
        yield from cases
        return
    broken = [case for case in cases if case.selection.spec.reference and not case.unavailable]
    if run.prove is not None:
        # At the smallest size that runs here: a fault is one behaviour, and not every one shows on every device.
        broken = [next(own) for _, own in groupby(broken, key=lambda case: case.selection.label)]
    for case in broken:
        for fault in run.prove if run.prove is not None else [run.fault]:
            if fault is not None and _is_judged(fault, case.selection.spec.name, claim, run):
                yield Case(case.selection, case.profile, fault)


def _is_judged(fault: Fault, engine: str, claim: Claim, run: Run) -> bool:
    """Whether the claim is to be judged under the fault: as the fault says, and every claim where a person looks (--fault)."""
    return fault.is_for(engine, claim.id) or (run.fault is not None and fault.kind == claim.id.partition(".")[0])


def _kind(metafunc: pytest.Metafunc) -> str:
    """A mark of a kind on the module or function, else the folder that the module lies in."""
    marked = [m.name for m in metafunc.definition.iter_markers() if m.name in markers.KINDS]
    kind = marked[0] if marked else Path(metafunc.module.__file__ or "").parent.name
    if kind not in markers.KINDS:
        raise pytest.Collector.CollectError(
            f"{metafunc.definition.nodeid}: put the file under suites/<kind>/ or mark it: {unknown('kind', kind, markers.KINDS)}"
        )
    return kind


def _claim(metafunc: pytest.Metafunc) -> Claim:
    claim: Claim | None = getattr(metafunc.function, "assay_claim", None)
    if claim is None:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: no @claim; every test of a suite carries exactly one")
    if not claim.sentence:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: no docstring; its first line is the sentence of {claim.id}")
    return claim


def _check_unique(metafunc: pytest.Metafunc, claim: Claim, run: Run) -> None:
    test = metafunc.definition.nodeid
    first = run.claimed.setdefault(claim.id, test)
    if first != test:
        raise pytest.Collector.CollectError(f"claim {claim.id} is made by {first} and by {test}; ids are unique")


def _check_requirements(metafunc: pytest.Metafunc, kind: str) -> None:
    from harness.core.capabilities import VOCABULARY

    known = [member.value for member in VOCABULARY.get(kind, ())]
    for asked in requirements(metafunc.function):
        if asked.capability not in known:
            raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {unknown(f'{kind} capability', asked.capability, known)}")


def _check_excuses(metafunc: pytest.Metafunc) -> None:
    """No test excuses an engine by itself: that is for the engine's description and for the list of known failures."""
    excuse = next((m.name for m in metafunc.definition.iter_markers() if m.name in ("skip", "skipif", "xfail")), None)
    if excuse:
        known = metafunc.config.getini("assay_known_failures")
        raise pytest.Collector.CollectError(
            f"{metafunc.definition.nodeid}: no {excuse} here; declare a capability and ask for it with @requires, or add to {known}"
        )


def requirements(function: object) -> tuple[Requirement, ...]:
    """What a test asks of an engine beyond the core."""
    return getattr(function, "assay_requires", ())


def refusal(item: pytest.Item, case: Case) -> str | None:
    """Why the item is UNSUPPORTED on its engine, or None."""
    spec = case.selection.spec
    for asked in requirements(getattr(item, "function", None)):
        declared = spec.capabilities[asked.capability]
        why = declared.refusal(spec.version)
        if why:
            return f"{asked.capability}: {why}"
        if asked.value is not None and declared.value != asked.value:
            return f"{asked.capability}: the claim is about {asked.value}, {spec.name} declares {declared.value}"
    return None


def runs(item: pytest.Item) -> bool:
    """Whether the item will run, and not be skipped for want of something."""
    case = item.stash.get(CASE, None)
    return case is not None and not case.unavailable and refusal(item, case) is None


def not_yet(item: pytest.Item, case: Case) -> tuple[str, str] | None:
    """A capability that the item asks for and the engine declares NOT_YET, with its reason, or None."""
    declared = case.selection.spec.capabilities
    asked = [a.capability for a in requirements(getattr(item, "function", None))]
    return next(((name, declared[name].reason) for name in asked if declared[name].support is Support.NOT_YET), None)


def _marks(metafunc: pytest.Metafunc, case: Case) -> list[pytest.MarkDecorator]:
    """What the case adds to the test's own marks."""
    profile, own = case.profile, [mark.name for mark in metafunc.definition.iter_markers()]
    names = markers.item_mark_names(
        own,
        kind=case.selection.spec.kind,
        profile=profile.name,
        platform=profile.platform,
        card_class=profile.card_class,
        num_cards=profile.num_cards,
        extra=profile.marks,
    )
    added = [name for name in names if name not in own]
    for name in added:
        if name not in markers.MARKS:
            raise pytest.Collector.CollectError(
                f"{case.selection.spec.name}: profiles.{profile.name}: {unknown('mark', name, markers.MARKS)}"
            )
    return [getattr(pytest.mark, name) for name in added]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    run = config.stash[RUN]
    idle = []
    for item in items:
        params = getattr(item, "callspec", None) and item.callspec.params  # type: ignore[attr-defined]
        fixture = next((f for f in ENGINE_FIXTURES if params and f in params), None)
        if fixture is None:
            continue
        case = params[fixture]
        if case is None:
            idle.append(item)
            continue
        item.stash[CASE], item.stash[CLAIM] = case, item.function.assay_claim  # type: ignore[attr-defined]
    if idle:
        # No engine of their kind is asked for and here; the header says once what is not available, and why.
        config.hook.pytest_deselected(items=idle)
        items[:] = [item for item in items if item not in idle]
    # One engine is booted at a time, so what shares a boot runs together, with the runs that it keeps, and before what closes it to
    # build its own. The sort is stable: otherwise the written order stays.
    faults = {f.name: i for i, f in enumerate(run.prove or [])}
    labels = {s.label: i for i, s in enumerate(run.selections)}
    items.sort(key=lambda item: _order(item, faults, labels))


def _order(item: pytest.Item, faults: dict[str, int], labels: dict[str, int]) -> tuple[int, int, str, bool]:
    case = item.stash.get(CASE, None)
    if case is None:
        return (-1, -1, "", False)
    builds = OWN_ENGINE in getattr(item, "fixturenames", ())
    return (faults.get(case.fault.name, 0) if case.fault else 0, labels[case.selection.label], case.profile.name, builds)
