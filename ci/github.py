"""The workflows of GitHub Actions: one for each schedule, one that runs a lane by hand, and one that all of them call for each lane."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ci import jobs
from ci.lanes import Lane
from ci.yaml_files import yaml_text

FOLDER = ".github/workflows"
LANE_WORKFLOW = "lane.yml"
CPU_RUNNER = "ubuntu-24.04"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where torch comes without CUDA's libraries; its versions are PyPI's with `+cpu`, which pip prefers."""

# A tag can be moved, a commit cannot.
CHECKOUT = "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd"
SETUP_PYTHON = "actions/setup-python@a309ff8b426b58ec0e2a45f0f869d46889d02405"
UPLOAD = "actions/upload-artifact@b7c566a772e6b6bfb58ed0dc250532a479d7789f"
DOWNLOAD = "actions/download-artifact@37930b1c2abaa49bbe596cd826c3c89aef350131"
RELEASES = {CHECKOUT: "v6.0.2", SETUP_PYTHON: "v6.2.0", UPLOAD: "v6.0.0", DOWNLOAD: "v7.0.0"}

_EVENTS: dict[str, dict[str, object]] = {
    "pull_request": {"pull_request": {}},
    "merge": {"push": {"branches": ["main"]}},
    # Not at the full hour, when GitHub delays and drops what is scheduled.
    "nightly": {"schedule": [{"cron": "23 1 * * *"}]},
    "weekly": {"schedule": [{"cron": "41 3 * * 6"}]},
}
_COMMENTS = {
    "pull_request": "The lanes that a pull request needs: those that its changed files can reach.",
    "merge": "What was merged to main.",
    "nightly": "Every night, in UTC.",
    "weekly": "Every Saturday, in UTC: full size, on the cards.",
    "manual": "One lane by hand.",
}


def files(lanes: Sequence[Lane]) -> dict[str, str]:
    """Every workflow, path to text."""
    written = {f"{schedule}.yml": _schedule(schedule, taken) for schedule, taken in jobs.lanes_by_schedule(lanes).items()}
    written |= {"manual.yml": _manual(lanes), LANE_WORKFLOW: _lane()}
    return {f"{FOLDER}/{name}": text for name, text in written.items()}


def matrix(lane: Lane) -> str:
    """The lane's jobs as the JSON of a matrix: `{"include": [{"environment": "own", "shard": 1}, ...]}`."""
    return json.dumps({"include": [{"environment": job.environment, "shard": job.shard} for job in jobs.jobs_of(lane)]})


def runs_on(lane: Lane) -> list[str]:
    """The labels that a runner of the lane has, all of them."""
    return ["self-hosted", *jobs.card_labels(lane)] if lane.cards else [CPU_RUNNER]


def _schedule(schedule: str, lanes: Sequence[Lane]) -> str:
    filtered = schedule == "pull_request"
    called = {lane.name: _call(lane, _IF_AFFECTED if filtered else None) for lane in lanes}
    return _workflow(
        schedule,
        events=_EVENTS[schedule],
        # A newer push makes the run of an older one pointless; what is scheduled runs to its end.
        concurrency={"group": f"assay-{schedule}-${{{{ github.ref }}}}", "cancel-in-progress": filtered},
        called={"affected": _affected(), **called} if filtered else called,
    )


def _manual(lanes: Sequence[Lane]) -> str:
    choice = {"description": "The lane", "type": "choice", "required": True, "options": [lane.name for lane in lanes]}
    return _workflow(
        "manual",
        events={"workflow_dispatch": {"inputs": {"lane": choice}}},
        concurrency={"group": "assay-manual-${{ inputs.lane }}-${{ github.ref }}", "cancel-in-progress": False},
        called={lane.name: _call(lane, "inputs.lane == '{lane}'") for lane in lanes},
    )


def _workflow(name: str, *, events: dict[str, object], concurrency: dict[str, object], called: dict[str, object]) -> str:
    content = {
        "name": f"Assay · {name.replace('_', ' ')}",
        "on": events,
        "permissions": {"contents": "read"},
        "concurrency": concurrency,
        "jobs": called,
    }
    return yaml_text(content, comment=_COMMENTS[name], releases=RELEASES)


_IF_AFFECTED = "contains(fromJSON(needs.affected.outputs.lanes), '{lane}')"


def _call(lane: Lane, condition: str | None) -> dict[str, object]:
    """The job that hands the lane to the common workflow."""
    needs = {"needs": "affected"} if condition == _IF_AFFECTED else {}
    return {
        "name": lane.title,
        **needs,
        **({"if": condition.format(lane=lane.name)} if condition else {}),
        "uses": f"./{FOLDER}/{LANE_WORKFLOW}",
        "with": {
            "lane": lane.name,
            "runs-on": json.dumps(runs_on(lane)),
            "matrix": matrix(lane),
            "shards": lane.shards,
            "minutes": lane.minutes + jobs.MARGIN,
            "platform": lane.platform,
            "packages": " ".join(lane.packages),
        },
    }


def _affected() -> dict[str, object]:
    """The job that says which lanes a pull request needs.

    What is checked out is GitHub's merge of the pull request, whose first parent is the base: two commits are enough, and nothing that
    the author wrote is needed to name them.
    """
    command = f'lanes=$({jobs.AFFECTED} --base HEAD^1 --json)\necho "lanes=$lanes" >> "$GITHUB_OUTPUT"\n'
    return {
        "name": "Affected lanes",
        "runs-on": CPU_RUNNER,
        "timeout-minutes": 10,
        "outputs": {"lanes": "${{ steps.affected.outputs.lanes }}"},
        "defaults": _BASH,
        "steps": [
            *_checkout(2),
            {"name": "What reading suites needs", "run": jobs.READER},
            {"name": "Affected lanes", "id": "affected", "run": command},
        ],
    }


_BASH = {"run": {"shell": "bash"}}  # with errexit and pipefail


def _checkout(depth: int) -> list[dict[str, object]]:
    return [
        {"uses": CHECKOUT, "with": {"fetch-depth": depth, "persist-credentials": False}},
        {"uses": SETUP_PYTHON, "with": {"python-version": jobs.PYTHON}},
    ]


def _lane() -> str:
    texts = ("lane", "runs-on", "matrix", "platform", "packages")
    inputs = {name: {"type": "string", "required": True} for name in texts}
    inputs |= {name: {"type": "number", "required": True} for name in ("shards", "minutes")}
    content = {
        "name": "Assay · lane",
        "on": {"workflow_call": {"inputs": inputs}},
        "permissions": {"contents": "read"},
        "jobs": {"shard": _shard(), "judge": _judge()},
    }
    comment = "One lane: its shards in each of its environments, then what they say together. runs-on and matrix are JSON."
    return yaml_text(content, comment=comment, releases=RELEASES)


def _shard() -> dict[str, object]:
    return {
        "name": "${{ matrix.environment }} ${{ matrix.shard }}/${{ inputs.shards }}",
        "runs-on": "${{ fromJSON(inputs.runs-on) }}",
        "timeout-minutes": "${{ inputs.minutes }}",
        "strategy": {"fail-fast": False, "matrix": "${{ fromJSON(inputs.matrix) }}"},
        "defaults": _BASH,
        "env": {
            "LANE": "${{ inputs.lane }}",
            "PLATFORM": "${{ inputs.platform }}",
            "PACKAGES": "${{ inputs.packages }}",
            "ENVIRONMENT": "${{ matrix.environment }}",
            "SHARD": "${{ matrix.shard }}",
            "SHARDS": "${{ inputs.shards }}",
            "PIP_EXTRA_INDEX_URL": f"${{{{ inputs.platform == 'cpu' && '{CPU_INDEX}' || '' }}}}",
        },
        "steps": [
            *_checkout(1),
            {"name": "Packages of Debian", "if": "inputs.packages != ''", "run": jobs.PACKAGES},
            {"name": "Environment", "run": jobs.ENVIRONMENT},
            {"name": "Tests", "run": jobs.TESTS},
            # A shard without tests leaves nothing; one that failed early fails by itself.
            _upload("results.${{ inputs.lane }}.${{ matrix.environment }}.${{ matrix.shard }}", "results", none="warn"),
        ],
    }


def _judge() -> dict[str, object]:
    results = {"pattern": "results.${{ inputs.lane }}.*", "merge-multiple": True, "path": "results"}
    return {
        "name": "All of it",
        "needs": "shard",
        "if": "${{ !cancelled() }}",
        "runs-on": CPU_RUNNER,
        "timeout-minutes": 20,
        "defaults": _BASH,
        "env": {"LANE": "${{ inputs.lane }}", "PIP_EXTRA_INDEX_URL": CPU_INDEX},
        "steps": [
            *_checkout(1),
            {"uses": DOWNLOAD, "with": results},
            {"name": "Environment", "run": jobs.OWN_ENVIRONMENT},
            {"name": "Merge, least counts, report", "run": jobs.JUDGE},
            _upload("judged.${{ inputs.lane }}", "judged", none="error"),
        ],
    }


def _upload(name: str, path: str, *, none: str) -> dict[str, object]:
    """Whatever the tests said. A second attempt of a job takes the place of the first."""
    return {"uses": UPLOAD, "if": "always()", "with": {"name": name, "path": path, "if-no-files-found": none, "overwrite": True}}
