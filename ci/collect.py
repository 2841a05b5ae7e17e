"""The tests of the suites on every engine and profile, as pytest would collect them, without running any of them: `python -m ci.collect`.

Read from the syntax trees of suites/ and of the fixtures, and from harness/engines.toml; torch is not imported, and no suite is. What
would have to be computed is an error. All errors are told at once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import markers
from ci.assign import AssignError, assign
from ci.closures import plugin_scope
from ci.items import Item
from ci.lanes import ROOT, LaneError, find_lane, read_lanes
from ci.sources import Problems, Sources
from ci.suite_files import SuiteFile, Test, read_suite_file
from harness.core.capabilities import VOCABULARY
from harness.core.names import unknown
from harness.core.registry import builtin_specs
from harness.core.spec import EngineSpec, Profile


class CollectError(ValueError):
    """The suites cannot be collected; `errors` holds every reason, each with file, line and what to write."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = tuple(errors)


def collect(root: Path = ROOT) -> list[Item]:
    """The items of `root`/suites on the engines of `root`/harness/engines.toml, in pytest's order. Raises CollectError."""
    problems = Problems()
    specs: list[EngineSpec] = []
    with problems.kept("harness/engines.toml"):
        specs = builtin_specs(root / "harness" / "engines.toml")
    files = list(_suite_files(root, problems))
    _check_suites(root, files, problems)
    _check_claims(files, problems)
    items = [item for file in files for item in _items(file, specs, problems)]
    if problems.found:
        raise CollectError(problems.found)
    return sorted(items, key=lambda item: _order(item, [spec.name for spec in specs]))


def _order(item: Item, engines: list[str]) -> tuple[int, str, bool]:
    """As `harness.pytest_plugin.routing` runs them: what shares a boot stands together, and before what builds an engine of its own."""
    return engines.index(item.engine), item.profile, item.builds


def _suite_files(root: Path, problems: Problems) -> Iterator[SuiteFile]:
    sources = Sources(root)
    scope = plugin_scope(sources, ROOT, problems)
    found = sorted((root / "suites").rglob("*.py"), key=lambda path: path.parts)
    if not found:
        problems.add(f"{root / 'suites'}: no test files; give the root of a checkout")
    for path in found:
        if path.name == "conftest.py":
            problems.add(f"{path.relative_to(root).as_posix()}:1: fixtures belong in fixtures/, in a module that conftest.py names")
        elif path.name.startswith("test_"):
            with problems.kept():
                yield read_suite_file(sources.read(path), scope, problems)
        elif path.name.endswith("_test.py"):
            problems.add(f"{path.relative_to(root).as_posix()}:1: call it test_{path.name.removesuffix('_test.py')}.py, as the others")


Case = tuple[Test, EngineSpec, Profile]


def _items(file: SuiteFile, specs: Sequence[EngineSpec], problems: Problems) -> Iterator[Item]:
    """The file's tests, each on the engines of its kind, as `harness.pytest_plugin.routing` has it."""
    cases = [(test, spec, profile) for test in file.tests for spec, profile in _cases(test, specs, problems)]
    _check_registers(file, cases, problems)
    sharing = Counter((spec.name, profile.name) for _, spec, profile in cases)
    for test, spec, profile in cases:
        with problems.kept(test.where):
            marks = _marks(test, spec, profile)
            if profile.name in file.registers:
                register = file.registers[profile.name]
                yield Item(
                    nodeid=f"{test.name}[{spec.name}@{profile.name}]",
                    where=test.where,
                    claim=test.claim.id,
                    kind=spec.kind,
                    engine=spec.name,
                    profile=profile.name,
                    environment=spec.environment,
                    marks=frozenset(marks),
                    requires=test.claim.requires,
                    suite=register.suite,
                    seconds=register.seconds / sharing[spec.name, profile.name],
                    builds=markers.OWN_ENGINE in test.fixtures,
                )


def _cases(test: Test, specs: Sequence[EngineSpec], problems: Problems) -> Iterator[tuple[EngineSpec, Profile]]:
    platform = next((name for name in test.marks if name in markers.PLATFORMS), None)
    own = [spec for spec in specs if spec.kind == test.kind]
    found = [(spec, profile) for spec in own for profile in spec.profiles.values() if platform in (None, profile.platform)]
    if not found:
        on = f" with a profile on {platform}" if platform else ""
        problems.add(f"{test.where}: {_short(test)} runs nowhere: harness/engines.toml has no {test.kind} engine{on}")
    yield from found


def _marks(test: Test, spec: EngineSpec, profile: Profile) -> list[str]:
    for name in profile.marks:
        if name not in markers.MARKS:
            raise ValueError(f"harness/engines.toml: {spec.name}: profiles.{profile.name}: {unknown('mark', name, markers.MARKS)}")
    return markers.item_mark_names(
        test.marks,
        kind=spec.kind,
        profile=profile.name,
        platform=profile.platform,
        card_class=profile.card_class,
        num_cards=profile.num_cards,
        extra=profile.marks,
    )


def _check_registers(file: SuiteFile, cases: Sequence[Case], problems: Problems) -> None:
    """Each profile that the file's tests run in has its register, and no other has."""
    first = {profile.name: test for test, _, profile in reversed(cases)}
    for profile, test in first.items():
        if profile not in file.registers:
            call = "register_cuda_ci(" if profile == "gpu" else "register_ci(" + (f'profile="{profile}", ' if profile != "cpu" else "")
            said = f"{_short(test)} runs in profile {profile}, of which the file says no time"
            problems.add(f"{test.where}: {said}; write {call}est_time=SECONDS, suite=NAME) at module level")
    for profile, register in file.registers.items():
        if profile not in first and file.tests:
            problems.add(f"{register.where}: no test of the file runs in profile {profile}; take the call out, or name another profile")


def _check_suites(root: Path, files: Sequence[SuiteFile], problems: Problems) -> None:
    """Each register names a suite that a lane takes."""
    with problems.kept():
        known = [suite for lane in read_lanes(root / "ci" / "lanes.toml") for suite in lane.suites]
        for register in (register for file in files for register in file.registers.values()):
            if register.suite not in known:
                text = unknown("suite", register.suite, known)
                problems.add(f"{register.where}: {text}; name one of a lane of ci/lanes.toml, or add it to one there")


def _check_claims(files: Sequence[SuiteFile], problems: Problems) -> None:
    """Claims are made once, and ask for capabilities that there are."""
    first: dict[str, str] = {}
    for test in (test for file in files for test in file.tests):
        if test.claim.id in first:
            problems.add(f"{test.where}: claim {test.claim.id} is made at {first[test.claim.id]} already; ids are unique")
        first.setdefault(test.claim.id, test.where)
        known = [member.value for member in VOCABULARY[test.kind]]
        for capability in test.claim.requires:
            if capability not in known:
                problems.add(f"{test.where}: {_short(test)}: {unknown(f'{test.kind} capability', capability, known)}")


def _short(test: Test) -> str:
    return test.name.partition("::")[2]


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """The command: 0, or 1 with every error on stderr, or 2 for a lane that there is not."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.collect", description="The tests of the suites, a row each, and the lanes that take them."
    )
    parser.add_argument("--lane", metavar="NAME", help="of ci/lanes.toml: its tests only")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    args = parser.parse_args(argv)
    try:
        lanes = read_lanes(root / "ci" / "lanes.toml")
        if args.lane is not None:
            find_lane(args.lane, lanes)
    except LaneError as wrong:
        print(f"ci.collect: {wrong}", file=sys.stderr)
        return 2
    try:
        taken = assign(collect(root), lanes)
    except (CollectError, AssignError) as wrong:
        print(*wrong.errors, sep="\n", file=sys.stderr)
        print(f"ci.collect: {len(wrong.errors)} errors", file=sys.stderr)
        return 1
    wanted = [args.lane] if args.lane is not None else [lane.name for lane in lanes]
    rows = _rows({name: taken[name] for name in wanted})
    _print(rows, len(wanted), as_json=args.json)
    return 0


def _rows(taken: dict[str, dict[str, list[Item]]]) -> list[tuple[Item, list[str]]]:
    """Each item that is taken, with the names of its lanes."""
    lanes: dict[Item, list[str]] = {}
    for name, environments in taken.items():
        for item in (item for items in environments.values() for item in items):
            own = lanes.setdefault(item, [])
            own += [] if name in own else [name]
    return list(lanes.items())


def _print(rows: Sequence[tuple[Item, list[str]]], lanes: int, *, as_json: bool) -> None:
    if as_json:
        written = [
            {"nodeid": item.nodeid, "where": item.where, "claim": item.claim, "engine": item.engine, "profile": item.profile}
            | {"marks": sorted(item.marks), "suite": item.suite, "seconds": item.seconds, "builds": item.builds, "lanes": names}
            for item, names in rows
        ]
        print(json.dumps(written, indent=1))
        return
    for item, names in rows:
        print(f"{item.nodeid}  {','.join(names)}  {item.seconds:.1f}")
    print(f"{len(rows)} tests, {lanes} lanes")


if __name__ == "__main__":
    sys.exit(main())
