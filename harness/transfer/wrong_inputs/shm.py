"""Wrong answers of the shared-memory connector."""

from __future__ import annotations

import fcntl
import json
import posixpath
from typing import Any

from harness.transfer.reference.shm_header import Header
from harness.transfer.wrong_inputs.register import wrong_input

SHM = "connector/shm"


@wrong_input("connector/keys-are-paths", "shm_slots:link_name", "connector.keys.odd", engine=SHM)
def keys_are_paths(original: Any, slot: bytes) -> str:
    """A key is a path, and names the file that it leads to."""
    from_stage, to_stage, key = json.loads(slot)
    return original(json.dumps([from_stage, to_stage, posixpath.normpath(key)]).encode())


@wrong_input("connector/stages-joined", "shm:slot_text", "connector.keys.stages", engine=SHM)
def stages_joined(original: Any, from_stage: str, to_stage: str, key: str) -> bytes:
    """Stages and key are joined by underscores, as if neither could hold one."""
    return f"{from_stage}_{to_stage}_{key}".replace("/", "_").encode()


@wrong_input("connector/short-hash", "shm_slots:link_name", "connector.keys.many", engine=SHM)
def short_hash(original: Any, slot: bytes) -> str:
    """Eight bits of a slot's hash name its file."""
    return original(slot)[:2]


@wrong_input(
    "connector/published-first",
    "shm:ShmConnector._fill",
    "connector.store.unfinished",
    "connector.store.replacing",
    "connector.processes.sender_killed_inside_put",
    engine=SHM,
)
def published_first(original: Any, connector: Any, segment: Any, slot: bytes, view: memoryview, readers: int) -> None:
    """A segment is published with its header, and filled then."""
    header = Header(slot, len(view), None, connector._transport.peer, segment.number, segment.incarnation, segment.uses)
    segment.write(0, header.pack(readers))
    segment.unlock()
    connector._slots.publish(segment, slot, len(view))
    original(connector, segment, slot, view, readers)


@wrong_input("connector/readers-unlocked", "shm_slots:Slots.lease", "connector.hold.reader_keeps", "connector.hold.slice_keeps", engine=SHM)
def readers_unlocked(original: Any, slots: Any, slot: bytes) -> int | None:
    """A reader does not keep the sender from writing its segment again."""
    fd = original(slots, slot)
    if fd is not None:
        fcntl.flock(fd, fcntl.LOCK_UN)
    return fd


@wrong_input("connector/one-reader-enough", "shm:ShmConnector._is_last", "connector.hold.readers", engine=SHM)
def one_reader_enough(original: Any, connector: Any, fd: int, reader: str) -> bool:
    """The first reader that is done is taken for the last."""
    return True


@wrong_input("connector/reader-uncounted", "shm:ShmConnector._is_last", "connector.hold.readers", "connector.hold.done", engine=SHM)
def reader_uncounted(original: Any, connector: Any, fd: int, reader: str) -> bool:
    """No reader is the last."""
    return False


@wrong_input("connector/checksum-unread", "shm_header:Header.check", "connector.integrity.damage", engine=SHM)
def checksum_unread(original: Any, header: Any, data: Any) -> None:
    """The checksum is carried, and nobody looks at it."""


@wrong_input("connector/limit-unread", "shm:ShmConnector.put", "connector.input.limit", engine=SHM)
def limit_unread(original: Any, connector: Any, *arguments: Any, **options: Any) -> Any:
    """The option `limit` bounds nothing."""
    connector._limit = 1 << 40
    return original(connector, *arguments, **options)


@wrong_input("connector/peers-outlive", "shm_transport:Transport.leave", "connector.restart.gone", engine=SHM)
def peers_outlive(original: Any, transport: Any) -> None:
    """What a peer published stays findable when it leaves."""
    transport._left = True
    transport.abandon()


@wrong_input("connector/sender-counts-on", "shm_segments:SegmentPool.published", "connector.restart.shared", engine=SHM)
def sender_counts_on(original: Any, pool: Any) -> list[Any]:
    """A sender counts what it put, not what is still held: nobody tells it that a peer freed a payload."""
    return [segment for segment in pool._segments if segment.slot is not None]
