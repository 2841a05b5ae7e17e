"""Writes what CI systems read, from ci/lanes.toml: `python -m ci.matrix`. `--check` names what is stale instead, and exits with 1."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ci import buildkite, github
from ci.lanes import LANES_TOML, ROOT, Lane, LaneError, read_lanes
from ci.yaml_files import HEAD

FOLDERS = (github.FOLDER, buildkite.FOLDER, buildkite.LANES_FOLDER)


def files(lanes: Sequence[Lane]) -> dict[str, str]:
    """Every generated file, path from the root to text."""
    return github.files(lanes) | buildkite.files(lanes)


def stale(root: Path, wanted: Mapping[str, str]) -> list[str]:
    """The generated files that `root` lacks, holds otherwise, or holds without need."""
    differ = [path for path, text in wanted.items() if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text]
    return sorted([*differ, *_left_over(root, wanted)])


def write(root: Path, wanted: Mapping[str, str]) -> list[str]:
    """Make `root` hold the files, each whole or not at all; returns what changed."""
    changed = stale(root, wanted)
    for path in changed:
        target = root / path
        if path not in wanted:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"{target.name}.new")
        new.write_text(wanted[path], encoding="utf-8")
        new.replace(target)
    return changed


def _left_over(root: Path, wanted: Mapping[str, str]) -> list[str]:
    """Files of a lane or a schedule that is gone. A file that somebody else wrote lacks our head, and is let be."""
    there = [path for folder in FOLDERS for path in (root / folder).glob("*") if path.is_file()]
    ours = [path.relative_to(root).as_posix() for path in there if HEAD in path.read_text(encoding="utf-8").splitlines()[:2]]
    return [path for path in ours if path not in wanted]


def main(arguments: list[str] | None = None, root: Path = ROOT, lanes_toml: Path = LANES_TOML) -> int:
    """The command. Its exit status is 1 where `--check` finds a stale file, 2 where the lanes are written wrongly."""
    parser = argparse.ArgumentParser(prog="python -m ci.matrix", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; name the files that are stale")
    checks = parser.parse_args(arguments).check
    try:
        wanted = files(read_lanes(lanes_toml))
    except LaneError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    for path in (changed := stale(root, wanted) if checks else write(root, wanted)):
        print(f"{path}: {'stale; run python -m ci.matrix' if checks else 'written' if path in wanted else 'removed'}")
    return int(checks and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
