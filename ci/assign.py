"""Which lane takes which test, in which of its environments; and that each test has one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from _pytest.mark.expression import Expression

import markers
from ci.items import Item
from ci.lanes import Lane, base_of
from harness.core.devices import CARD_CLASSES
from harness.core.names import unknown

Taken = dict[str, dict[str, list[Item]]]
"""Lane to environment to the items that it takes there."""


class AssignError(ValueError):
    """Lanes and tests do not fit; `errors` holds every reason, and each names the lane, the test and what to change."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = tuple(errors)


def selected(items: Sequence[Item], expression: str) -> list[Item]:
    """The items that `pytest -m EXPRESSION` selects: where it holds of their marks; what is marked soak only where it names soak.

    Raises ValueError for no expression of pytest's, and for a mark that there is not.
    """
    names = _names(expression)
    wrong = next((name for name in names if name not in markers.MARKS), None)
    if wrong is not None:
        raise ValueError(unknown("mark", wrong, markers.MARKS))
    try:
        compiled = Expression.compile(expression)
    except SyntaxError as broken:
        raise ValueError(f"no mark expression: {broken.msg}") from None
    named = [item for item in items if "soak" in names or "soak" not in item.marks]
    return [item for item in named if compiled.evaluate(item.marks.__contains__)]


def _names(expression: str) -> list[str]:
    return [word for word in re.findall(r"[^\s()]+", expression) if word not in ("and", "or", "not")]


def assign(items: Sequence[Item], lanes: Sequence[Lane]) -> Taken:
    """What each lane takes in each of its environments. Raises AssignError with all that does not fit."""
    errors: list[str] = []
    taken: Taken = {}
    for lane in lanes:
        try:
            own = selected(items, lane.marks)
        except ValueError as wrong:
            errors.append(f"lane {lane.name}: marks = {lane.marks!r}: {wrong}")
            own = []
        taken[lane.name] = {name: [item for item in own if item.environment == base_of(name)] for name in lane.environments}
    if not errors:
        errors += [*_untaken(items, taken), *_taken_twice(lanes, taken)]
        for lane in lanes:
            errors += [*_idle(lane, taken[lane.name]), *_unfit(lane, taken[lane.name])]
    if errors:
        raise AssignError(errors)
    return taken


def _untaken(items: Sequence[Item], taken: Taken) -> Iterator[str]:
    somewhere = {item.nodeid for environments in taken.values() for own in environments.values() for item in own}
    for item in items:
        if item.nodeid not in somewhere:
            told = f"marks {', '.join(sorted(item.marks))}; environment {item.environment or 'own'}"
            yield f"{item.where}: no lane of ci/lanes.toml takes {item.nodeid} ({told})"


def _taken_twice(lanes: Sequence[Lane], taken: Taken) -> Iterator[str]:
    for one, other in combinations(lanes, 2):
        for schedule in (schedule for schedule in one.schedules if schedule in other.schedules):
            for environment in (name for name in one.environments if name in other.environments):
                both = {item.nodeid for item in taken[other.name][environment]}
                for item in taken[one.name][environment]:
                    if item.nodeid in both:
                        said = f"lanes {one.name} and {other.name} both take {item.nodeid}"
                        yield f"{said} in environment {environment} of schedule {schedule}; take it out of one's marks"


def _idle(lane: Lane, environments: dict[str, list[Item]]) -> Iterator[str]:
    """Environments, options and suites of the lane that have no test."""
    if not any(environments.values()):
        yield f"lane {lane.name}: marks = {lane.marks!r} takes no test in any of its environments; change the marks, or take the lane out"
        return
    for environment, own in environments.items():
        if not own:
            yield f"lane {lane.name}: no test that it takes has an engine of environment {environment}; take the environment out"
    engines = {item.engine for own in environments.values() for item in own}
    for named in lane.options:
        if named.partition(":")[0] not in engines:
            yield f"lane {lane.name}: no test that it takes is of the engine of options {named!r}; take them out"
    suites = {item.suite for own in environments.values() for item in own}
    for suite in lane.suites:
        if suite not in suites:
            yield f"lane {lane.name}: no test that it takes is of suite {suite}; take the suite out"


def _unfit(lane: Lane, environments: dict[str, list[Item]]) -> Iterator[str]:
    """Tests that the lane takes, and whose suite or hardware is not its own."""
    for item in dict.fromkeys(item for own in environments.values() for item in own):
        if item.suite not in lane.suites:
            yield f"{item.where}: lane {lane.name} takes {item.nodeid} of suite {item.suite}, and its suites are {', '.join(lane.suites)}"
        lacking = _lacking(lane, item)
        if lacking:
            yield f"{item.where}: lane {lane.name} takes {item.nodeid}, which needs {lacking}"


def _lacking(lane: Lane, item: Item) -> str | None:
    """What the item needs of the hardware that the lane has not, or None."""
    asked = markers.hardware_of(item.marks)
    if asked is None:
        return None if lane.platform == "cpu" else "no card; it would hold one for nothing"
    platform, card_class, cards = asked
    if lane.platform != platform:
        return f"{platform}, and the lane's platform is {lane.platform}"
    offered, wanted = CARD_CLASSES[str(lane.card_class)], CARD_CLASSES[card_class]
    if offered.compute_capability != wanted.compute_capability or offered.memory_gb < wanted.memory_gb:
        return f"a card of class {card_class}, and the lane's card_class is {lane.card_class}"
    if lane.cards < cards:
        return f"{cards} cards, and the lane's jobs have {lane.cards}"
    return None
