"""What a transport leaves in shared memory: names under /dev/shm that came since, and that no living process uses."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")

_BLOCK = 512
"""Bytes of a block as stat(2) counts them."""

PATIENCE = 1.0
"""Seconds in which a name may still go: other programs on this machine put and free segments too, and theirs are nobody's for a moment."""

ASSAY = "assay-"
"""Stands in every name that a child of any run of Assay gives, our own transports and adapters' prefixes alike."""


def mark_of(run: int) -> str:
    """Stands in names that outlast every process of the run with this process id, and belong to it all the same."""
    return f"{ASSAY}run-{run}-"


class Leftovers:
    """The listing at the time it was made, to be compared with later ones. Empty where there is no /dev/shm."""

    def __init__(self, root: Path = SHARED_MEMORY) -> None:
        self._root = root
        self._before = self._listing()

    def new(self) -> set[str]:
        """Names that were not there."""
        return self._listing() - self._before

    def allocated(self) -> int:
        """Bytes of memory behind the new names: of a file that is being written, those that have been touched."""
        total = 0
        for name in self.new():
            with suppress(OSError):  # gone meanwhile
                total += (self._root / name).stat().st_blocks * _BLOCK
        return total

    def abandoned(self, own: Iterable[str] = ()) -> list[str]:
        """New names that no process has open or mapped: those with one of `own` in them, and others if they do not go within PATIENCE.

        Those of other runs of Assay are none: what a test there has just killed, it has not swept yet.
        """
        left, until = self.new() - self._used(self.new()), time.monotonic() + PATIENCE
        ours = _marked(left, own)
        left = {name for name in left - ours if ASSAY not in name}
        while left and time.monotonic() < until:
            left &= self._listing()
            left -= self._used(left)
        return sorted(ours | left)

    def remove(self, own: Iterable[str]) -> None:
        """Take away what is new, unused and has one of `own` in its name: a broken engine costs one test and not the machine's memory.

        Nothing else: a file without a mark may be anybody's, who has just written it and closed it.
        """
        marked = _marked(self.new(), own)
        for name in marked - self._used(marked):
            path = self._root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _listing(self) -> set[str]:
        return {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()

    def _used(self, names: set[str]) -> set[str]:
        """Those of the names under which some process has something open or mapped. Processes that this user may not look into use none."""
        used: set[str] = set()
        for process in Path("/proc").glob("[0-9]*"):
            for path in (*_opened(process), *_mapped(process)):
                inside = path.removeprefix(f"{self._root}/")
                if inside != path:
                    used.add(inside.split("/")[0].removesuffix(" (deleted)"))
        return names & used


def _marked(names: set[str], marks: Iterable[str]) -> set[str]:
    marks = list(marks)
    return {name for name in names if any(mark in name for mark in marks)}


def _opened(process: Path) -> Iterator[str]:
    with suppress(OSError):
        for opened in (process / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                yield str(opened.readlink())


def _mapped(process: Path) -> list[str]:
    try:
        lines = (process / "maps").read_text().splitlines()
    except OSError:
        return []
    return [line.split(maxsplit=5)[5] for line in lines if " /dev/shm/" in line]
