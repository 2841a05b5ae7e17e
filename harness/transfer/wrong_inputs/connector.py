"""Wrong answers of the memory connector."""

from __future__ import annotations

from typing import Any

from harness.transfer.buffers import byte_view
from harness.transfer.wrong_inputs.register import wrong_input

MEMORY = "connector/memory"


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
