"""The pipeline of Buildkite: its first step uploads a file for each lane that the build needs."""

from __future__ import annotations

from collections.abc import Sequence

from ci import jobs
from ci.lanes import Lane
from ci.yaml_files import HEAD, yaml_text

FOLDER = ".buildkite"
LANES_FOLDER = f"{FOLDER}/lanes"
UPLOAD = f"{FOLDER}/upload.sh"
CPU_QUEUE = "cpu"


def files(lanes: Sequence[Lane]) -> dict[str, str]:
    """The pipeline, its upload, and every lane; path to text."""
    return {
        f"{FOLDER}/pipeline.yml": _pipeline(),
        UPLOAD: _upload(lanes),
        **{f"{LANES_FOLDER}/{lane.name}.yml": _lane(lane) for lane in lanes},
    }


def queue(lane: Lane) -> str:
    """The queue of the lane's agents: `cpu`, or `gpu-h100-cards-2`."""
    return "-".join(jobs.card_labels(lane)) or CPU_QUEUE


def _pipeline() -> str:
    step = {"label": "Lanes", "key": "lanes", "command": f"bash {UPLOAD}", "agents": {"queue": CPU_QUEUE}, "timeout_in_minutes": 10}
    return yaml_text({"steps": [step]}, comment="Uploads .buildkite/lanes/*.yml, those of the schedule.")


def _upload(lanes: Sequence[Lane]) -> str:
    taken = jobs.lanes_by_schedule(lanes)
    cases = [f"    {schedule}) lanes=({' '.join(lane.name for lane in there)}) ;;" for schedule, there in taken.items()]
    return "\n".join(["#!/usr/bin/env bash", HEAD, _CHOOSE, *cases, _UNKNOWN, _CUT, jobs.READER.rstrip(), _REACHED])


_CHOOSE = """\
# ASSAY_LANE, of a build by hand, names one lane. ASSAY_SCHEDULE, of a scheduled build, names a schedule. A build without either is one of a
# pull request, which gets the lanes that its changed files can reach, or of a merge.
set -euo pipefail

upload() {
    for lane in "$@"; do
        # What the shell of a job expands is not for the agent that uploads it.
        buildkite-agent pipeline upload --no-interpolation ".buildkite/lanes/$lane.yml"
    done
}

if [[ -n ${ASSAY_LANE:-} ]]; then
    if [[ ! $ASSAY_LANE =~ ^[a-z0-9-]+$ || ! -f .buildkite/lanes/$ASSAY_LANE.yml ]]; then
        echo "ASSAY_LANE=$ASSAY_LANE: .buildkite/lanes has no such lane" >&2
        exit 2
    fi
    upload "$ASSAY_LANE"
    exit
fi

schedule=merge
[[ ${BUILDKITE_PULL_REQUEST:-false} == false ]] || schedule=pull_request
schedule=${ASSAY_SCHEDULE:-$schedule}
case $schedule in"""
_UNKNOWN = """\
    *)
        echo "ASSAY_SCHEDULE=$schedule: no lane has such a schedule" >&2
        exit 2
        ;;
esac"""
_CUT = """\
if [[ $schedule != pull_request ]]; then
    upload "${lanes[@]}"
    exit
fi

git fetch --no-tags origin "+refs/heads/$BUILDKITE_PULL_REQUEST_BASE_BRANCH:refs/remotes/origin/assay-base"
base=$(git merge-base HEAD refs/remotes/origin/assay-base)"""
_REACHED = f"""\
affected=$({jobs.AFFECTED} --base "$base")
for lane in "${{lanes[@]}}"; do
    if grep --quiet --fixed-strings --line-regexp "$lane" <<< "$affected"; then
        upload "$lane"
    fi
done
"""


def _lane(lane: Lane) -> str:
    shards = [_shard(job) for job in jobs.jobs_of(lane)]
    group = {"group": lane.title, "key": lane.name, "steps": [*shards, _judge(lane, [str(shard["key"]) for shard in shards])]}
    return yaml_text({"steps": [group]}, comment="The lane's shards in each of its environments, then what they say together.")


def _shard(job: jobs.Job) -> dict[str, object]:
    lane = job.lane
    commands = [*([jobs.PACKAGES] if lane.packages else []), jobs.TESTS]
    return {
        "label": job.label,
        "key": _key(job.name),
        "command": _shell(*commands),
        "env": {
            "LANE": lane.name,
            "PLATFORM": lane.platform,
            "PACKAGES": " ".join(lane.packages),
            "ENVIRONMENT": job.environment,
            "SHARD": str(job.shard),
            "SHARDS": str(lane.shards),
        },
        "agents": {"queue": queue(lane)},
        "artifact_paths": f"results/{lane.name}/**/*",
        "timeout_in_minutes": lane.minutes + jobs.MARGIN,
        # An agent that was lost says nothing about the tests.
        "retry": {"automatic": [{"exit_status": -1, "limit": 1}]},
    }


def _judge(lane: Lane, shards: Sequence[str]) -> dict[str, object]:
    download = 'buildkite-agent artifact download "results/$LANE/**/*" .\n'
    return {
        "label": "All of it",
        "key": f"{lane.name}-judge",
        "depends_on": [{"step": key, "allow_failure": True} for key in shards],
        "command": _shell(download, jobs.JUDGE),
        "env": {"LANE": lane.name},
        "agents": {"queue": CPU_QUEUE},
        "artifact_paths": f"judged/{lane.name}/**/*",
        "timeout_in_minutes": 20,
    }


def _shell(*commands: str) -> str:
    return "set -euo pipefail\n" + "".join(commands)


def _key(name: str) -> str:
    """A step's key has letters, digits, hyphens and underscores: `vllm-omni-0_30`."""
    return name.replace(".", "_")
