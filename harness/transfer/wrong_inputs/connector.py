"""Wrong answers of the memory connector."""

from __future__ import annotations

import threading
from typing import Any

import torch

from harness.transfer.buffers import byte_view
from harness.transfer.wrong_inputs.register import wrong_input

MEMORY = "connector/memory"
PAGE = 4096


@wrong_input("connector/stages-ignored", "memory:MemoryConnector.get", "connector.carry.unknown_key", engine=MEMORY)
def stages_ignored(original: Any, connector: Any, from_stage: str, to_stage: str, key: str, handle: Any = None) -> Any:
    """A key is found whatever stages it was put between."""
    return next(((held.data, len(held.data)) for slot, held in connector._held.items() if slot[2] == key), None)


@wrong_input("connector/buffer-kept", "memory:MemoryConnector._copy", "connector.carry.own_copy", engine=MEMORY)
def buffer_kept(original: Any, connector: Any, data: Any) -> Any:
    """The caller's buffer is stored, not a copy of it."""
    return byte_view(data)


@wrong_input("connector/discard-forgotten", "memory:MemoryConnector.discard", "connector.hold.discard", engine=MEMORY)
def discard_forgotten(original: Any, connector: Any, *where: Any) -> None:
    """A discarded payload stays."""


@wrong_input("connector/first-reader-takes", "memory:MemoryConnector.get", "connector.hold.many_reads", engine=MEMORY)
def first_reader_takes(original: Any, connector: Any, from_stage: str, to_stage: str, key: str, handle: Any = None) -> Any:
    """Reading a payload removes it."""
    found = original(connector, from_stage, to_stage, key, handle)
    connector.discard(from_stage, to_stage, key)
    return found


@wrong_input("connector/first-put-wins", "memory:MemoryConnector._publish", "connector.hold.replaced", engine=MEMORY)
def first_put_wins(original: Any, connector: Any, slot: Any, held: Any) -> None:
    """A second payload under a key is dropped."""
    if slot not in connector._held:
        original(connector, slot, held)


@wrong_input("connector/discard-by-prefix", "memory:MemoryConnector.discard", "connector.hold.discard_one", engine=MEMORY)
def discard_by_prefix(original: Any, connector: Any, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
    """A discard reaches every key that begins alike."""
    for held in [slot for slot in connector._held if slot[:2] == (from_stage, to_stage) and slot[2].startswith(key)]:
        original(connector, *held)


@wrong_input("connector/memoryview-unread", "memory:MemoryConnector._copy", "connector.carry.kinds", engine=MEMORY)
def memoryview_unread(original: Any, connector: Any, data: Any) -> bytes:
    """Of a memoryview the length is taken and not the bytes."""
    return bytes(len(data)) if isinstance(data, memoryview) else original(connector, data)


@wrong_input("connector/whole-pages", "memory:MemoryConnector._copy", "connector.carry.large", engine=MEMORY)
def whole_pages(original: Any, connector: Any, data: Any) -> bytes:
    """What lies behind the last whole page of a large payload is dropped."""
    held = original(connector, data)
    return held[: len(held) // PAGE * PAGE] if len(held) > PAGE else held


@wrong_input("connector/empty-is-none", "memory:MemoryConnector.get", "connector.carry.empty", engine=MEMORY)
def empty_is_none(original: Any, connector: Any, *where: Any) -> Any:
    """A payload of no bytes is taken for none."""
    found = original(connector, *where)
    return found if found and found[1] else None


@wrong_input("connector/fixed-table", "memory:MemoryConnector._publish", "connector.keys.many", engine=MEMORY)
def fixed_table(original: Any, connector: Any, slot: Any, held: Any) -> None:
    """There is room for sixty-four payloads; the next takes the place of the oldest."""
    original(connector, slot, held)
    if len(connector._held) > 64:
        connector._held.pop(next(iter(connector._held)))


@wrong_input("connector/first-done-frees", "memory:MemoryConnector.done", "connector.hold.readers", engine=MEMORY)
def first_done_frees(original: Any, connector: Any, *where: Any) -> None:
    """The first reader that is done frees the payload of all."""
    connector.discard(*where)


@wrong_input("connector/done-forgotten", "memory:MemoryConnector.done", "connector.hold.readers", "connector.hold.done", engine=MEMORY)
def done_forgotten(original: Any, connector: Any, *where: Any) -> None:
    """Nobody counts the readers that are done."""


@wrong_input("connector/holds-all", "memory:MemoryConnector.holds", "connector.hold.told", engine=MEMORY)
def holds_all(original: Any, connector: Any, *where: Any) -> bool:
    """`holds` is true of any key as soon as something is held."""
    return bool(connector._held)


@wrong_input("connector/close-forgets", "memory:MemoryConnector.close", "connector.hold.close", engine=MEMORY)
def close_forgets(original: Any, connector: Any) -> None:
    """A closed connector keeps what was put."""


@wrong_input("connector/torn-replacement", "memory:MemoryConnector._publish", "connector.threads.one_key", engine=MEMORY)
def torn_replacement(original: Any, connector: Any, slot: Any, held: Any) -> None:
    """Of a payload that replaces another only the first half is written."""
    older = connector._held.get(slot)
    if older is not None:
        half = len(held.data) // 2
        held.data = held.data[:half] + older.data[half : len(held.data)]
    original(connector, slot, held)


@wrong_input("connector/one-staging-buffer", "memory:MemoryConnector._copy", "connector.threads.keys", engine=MEMORY)
def one_staging_buffer(original: Any, connector: Any, data: Any) -> Any:
    """All payloads of one size share one buffer."""
    staging = vars(connector).setdefault("staging", {})
    return staging.setdefault(len(byte_view(data)), bytearray(original(connector, data)))


@wrong_input("connector/failure-swallowed", "memory:MemoryConnector._copy", "connector.store.failed", engine=MEMORY)
def failure_swallowed(original: Any, connector: Any, data: Any) -> bytes:
    """A copy that fails leaves what it has got so far, and nobody is told."""
    try:
        return original(connector, data)
    except RuntimeError:
        return bytes(byte_view(data)[: len(data) // 2])


@wrong_input("connector/no-reader", "memory:MemoryConnector.put", "connector.input.readers", engine=MEMORY)
def no_reader(original: Any, connector: Any, from_stage: str, to_stage: str, key: str, data: Any, readers: int = 1) -> Any:
    """A payload for no reader is kept for one."""
    return original(connector, from_stage, to_stage, key, data, max(1, readers))


@wrong_input("connector/any-tensor", "memory:MemoryConnector._copy", "connector.input.tensors", engine=MEMORY)
def any_tensor(original: Any, connector: Any, data: Any) -> bytes:
    """Whatever tensor comes is carried as its bytes, dtype and shape forgotten."""
    return original(connector, data.contiguous().view(-1).view(torch.uint8) if isinstance(data, torch.Tensor) else data)


@wrong_input("connector/names-ignored", "memory:MemoryConnector.done", "connector.hold.named_readers", engine=MEMORY)
def names_ignored(original: Any, connector: Any, from_stage: str, to_stage: str, key: str, handle: Any = None, reader: str = "") -> None:
    """A reader that says twice that it is done counts as two."""
    original(connector, from_stage, to_stage, key, handle)


@wrong_input("connector/threads-uncounted", "memory:MemoryConnector.done", "connector.threads.readers", engine=MEMORY)
def threads_uncounted(original: Any, connector: Any, *done: Any) -> None:
    """Only readers of the main thread count."""
    if threading.current_thread() is threading.main_thread():
        original(connector, *done)


@wrong_input("connector/written-in-place", "memory:MemoryConnector._copy", "connector.hold.replaced_keeps", engine=MEMORY)
def written_in_place(original: Any, connector: Any, data: Any) -> Any:
    """A payload as long as the one before is written into the same memory."""
    view = byte_view(data)
    held = vars(connector).get("held_before")
    if held is None or len(held) != len(view):
        held = connector.held_before = bytearray(len(view))
    held[:] = view
    return held
