"""Unpacks the archive of voices, trusting nothing in it: the engine itself would extract whatever it names, where no folder is yet."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

FOLDER = "voices"
LIMIT = 1 << 30
"""Bytes that the members may have together, far above the released archive's."""


def unpack_voices(archive: Path) -> Path:
    """The folder `voices` beside the archive, unpacked whole or not at all; one that is there already is left as it is.

    Raises ValueError for a member that is neither a file nor a folder, lies outside the folder `voices`, or goes beyond LIMIT.
    """
    folder = archive.parent / FOLDER
    if folder.is_dir():
        return folder
    making = Path(tempfile.mkdtemp(prefix=f".{FOLDER}-", dir=archive.parent))
    try:
        with tarfile.open(archive, "r:gz") as opened:
            members = _checked(archive, opened)
            for member in members:
                _extract(opened, member, making)
        (making / FOLDER).rename(folder)
    except OSError:
        # Another process has unpacked it meanwhile.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _checked(archive: Path, opened: tarfile.TarFile) -> list[tarfile.TarInfo]:
    members, total = [], 0
    for member in opened:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or path.parts[:1] != (FOLDER,):
            raise ValueError(f"{archive}: member {member.name!r} lies outside the folder {FOLDER}")
        if not member.isreg() and not member.isdir():
            raise ValueError(f"{archive}: member {member.name!r} is neither a file nor a folder")
        total += member.size
        if total > LIMIT:
            raise ValueError(f"{archive}: its members have more than {LIMIT} bytes")
        members.append(member)
    if not any(member.isreg() for member in members):
        raise ValueError(f"{archive}: no file in the folder {FOLDER}")
    return members


def _extract(opened: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> None:
    """The bytes alone: no owner, mode or time of the archive's."""
    target = into / member.name
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = opened.extractfile(member)
    assert source is not None
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
