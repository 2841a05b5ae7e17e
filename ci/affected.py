"""Which lanes a change needs: `python -m ci.affected --base REV`, or the names of changed files as arguments or on stdin.

A lane needs every file that its tests, conftest.py and the adapters of its engines lead to. What is no file of ours that can be read as
Python, or is not there any more, could change anything: it means all lanes, but for what ci/lanes.toml lists under `no_lane`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ci.assign import AssignError, Taken, assign
from ci.collect import CollectError, collect
from ci.imports import import_graph, reached
from ci.lanes import ROOT, Lane, LaneError, read_lanes, read_no_lane
from ci.sources import SourceError
from harness.core.registry import builtin_specs

_SAME_IN_ALL = ("ci/*.py",)
"""What runs the lanes themselves."""


class GitError(ValueError):
    """git cannot say what has changed; the text says why."""


class Needs:
    """What each lane of a checkout needs."""

    def __init__(self, root: Path = ROOT) -> None:
        """Read the checkout. Raises LaneError, CollectError, AssignError, SourceError where it is wrong."""
        self.root = root
        lanes_toml = root / "ci" / "lanes.toml"
        self.lanes: list[Lane] = read_lanes(lanes_toml)
        self.no_lane = read_no_lane(lanes_toml)
        self.taken = assign(collect(root), self.lanes)
        self.graph = import_graph(root)
        self._files = {name: reached(self.graph, roots) for name, roots in _roots(root, self.taken).items()}

    def lanes_of(self, file: str) -> set[str]:
        """The names of the lanes that a change of the file needs; its path below the root, with slashes."""
        every = {lane.name for lane in self.lanes}
        if any(fnmatchcase(file, pattern) for pattern in self.no_lane):
            return set()
        environment = _environment(file)
        if environment is not None:
            return {lane.name for lane in self.lanes if environment in lane.environments}
        if file not in self.graph or any(fnmatchcase(file, pattern) for pattern in _SAME_IN_ALL):
            return every
        return {name for name, files in self._files.items() if file in files}


def affected(files: Iterable[str], root: Path = ROOT) -> list[str]:
    """The names of the lanes that need one of the changed files, in the order of ci/lanes.toml. Raises as `Needs`."""
    needs = Needs(root)
    wanted = {name for file in files for name in needs.lanes_of(file)}
    return [lane.name for lane in needs.lanes if lane.name in wanted]


def changed(base: str, root: Path = ROOT) -> list[str]:
    """What differs from a revision of git: changed, new, deleted, and both names of what was renamed. Raises GitError."""
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}").strip()
    differing = _git(root, "diff", "--name-only", "--no-renames", "-z", commit, "--")
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted({name for name in (differing + new).split("\0") if name})


def _git(root: Path, *arguments: str) -> str:
    try:
        ran = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as wrong:
        raise GitError(f"git {arguments[0]}: {wrong}") from None
    if ran.returncode:
        told = ran.stderr.strip() or f"there is no commit {arguments[-1].removesuffix('^{commit}')!r} here; fetch it, or name another"
        raise GitError(f"git {arguments[0]}: {told}")
    return ran.stdout


def _roots(root: Path, taken: Taken) -> dict[str, set[str]]:
    """Lane to the files that it starts from."""
    factory = {spec.name: spec.factory.partition(":")[0].replace(".", "/") for spec in builtin_specs(root / "harness" / "engines.toml")}
    roots: dict[str, set[str]] = {}
    for lane, environments in taken.items():
        items = [item for own in environments.values() for item in own]
        adapters = {f"{factory[item.engine]}{end}" for item in items for end in (".py", "/__init__.py")}
        roots[lane] = {"conftest.py", *(item.module for item in items), *adapters}
    return roots


def _environment(file: str) -> str | None:
    path = Path(file)
    return path.stem if path.parent.as_posix() == "ci/engines" and path.suffix == ".txt" else None


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """The command: 0, 1 where the suites or the lanes are wrong, 2 for wrong use."""
    parser = argparse.ArgumentParser(prog="python -m ci.affected", description="The lanes that a change needs, a name each.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="changed files, as git names them; a line each on stdin without any")
    parser.add_argument("--base", metavar="REV", help="what differs from this revision, in place of names")
    parser.add_argument("--json", action="store_true", help="the names as one JSON list, for a CI system's matrix")
    args = parser.parse_args(argv)
    if args.base is not None and args.files:
        parser.error("give --base or the names of files, not both")
    try:
        files = changed(args.base, root) if args.base is not None else args.files or sys.stdin.read().splitlines()
        names = affected([file for file in files if file], root)
    except GitError as wrong:
        print(f"ci.affected: {wrong}", file=sys.stderr)
        return 2
    except (LaneError, CollectError, AssignError, SourceError) as wrong:
        print(wrong, file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(names))
    else:
        print(*names, sep="\n", end="\n" if names else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
