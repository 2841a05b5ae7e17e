"""The jobs that lanes become, one for each environment and shard, and the commands that a job runs: the same on every CI system.

The commands are bash, and take what differs between jobs from variables: LANE, PLATFORM, PACKAGES, ENVIRONMENT, SHARD and
SHARDS, all of ci/lanes.toml. Nothing else reaches a shell: no name of a branch, no title.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ci.lanes import OWN, SCHEDULES, Lane

PYTHON = "3.11"
"""What the files of ci/engines are for."""
_INTERPRETER = f"python{PYTHON}"
MARGIN = 30
"""Minutes of a job beyond the lane's, which `ci.run` ends the tests after: for building an environment, and for keeping what there is."""

PACKAGES = """\
read -ra packages <<< "$PACKAGES"
sudo apt-get update
sudo apt-get install --yes --no-install-recommends "${packages[@]}"
"""
ENVIRONMENT = f'{_INTERPRETER} ci/engine_env.py --platform "$PLATFORM" "$ENVIRONMENT"\n'
TESTS = f"""\
python=$({_INTERPRETER} ci/engine_env.py --platform "$PLATFORM" "$ENVIRONMENT" | tail -n 1)
"$python" -m ci.run --lane "$LANE" --environment "$ENVIRONMENT" --shard "$SHARD/$SHARDS" --out "results/$LANE/$ENVIRONMENT"
"""
OWN_ENVIRONMENT = f"{_INTERPRETER} ci/engine_env.py {OWN}\n"
JUDGE = f"""\
python=$({_INTERPRETER} ci/engine_env.py {OWN} | tail -n 1)
"$python" -m ci.judge --lane "$LANE" --results results --out judged
"""
# Reading suites takes none of what suites import.
READER = f"""\
{_INTERPRETER} -m venv build/reader
build/reader/bin/python -m pip install --quiet --constraint requirements.lock pytest
"""
AFFECTED = "build/reader/bin/python -m ci.affected"


@dataclass(frozen=True)
class Job:
    """Shard `shard` of a lane's tests in one environment, counted from 1."""

    lane: Lane
    environment: str
    shard: int

    @property
    def name(self) -> str:
        """`cpu-own-1`: the name of its results, too."""
        return f"{self.lane.name}-{self.environment}-{self.shard}"

    @property
    def label(self) -> str:
        """What a person reads: `own 1/2`."""
        return f"{self.environment} {self.shard}/{self.lane.shards}"


def jobs_of(lane: Lane) -> list[Job]:
    """Every job of the lane, each once."""
    return [Job(lane, environment, shard) for environment in lane.environments for shard in range(1, lane.shards + 1)]


def lanes_by_schedule(lanes: Sequence[Lane]) -> dict[str, list[Lane]]:
    """The lanes of each schedule, in the order of the file; a schedule without lanes is left out."""
    taken = {schedule: [lane for lane in lanes if schedule in lane.schedules] for schedule in SCHEDULES}
    return {schedule: there for schedule, there in taken.items() if there}


def card_labels(lane: Lane) -> list[str]:
    """What a machine must be for a job of the lane: `["gpu", "h100", "cards-2"]`, or nothing for a CPU."""
    return ["gpu", str(lane.card_class).lower(), f"cards-{lane.cards}"] if lane.cards else []
