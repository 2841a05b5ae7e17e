"""Catalogued faults of the connectors. Kind B of the catalogue, beside those of the manager."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from harness.core.faults import fault
from harness.transfer.buffers import byte_view
from harness.transfer.faults.register import REFERENCE
from harness.transfer.reference.memory import Held


@fault(
    "transfer/read-during-store",
    seam=f"{REFERENCE}.memory:MemoryConnector.put",
    claims=["connector.store.unfinished", "connector.store.replacing"],
    source="LMCache#207",
    engine="connector/memory",
)
def read_during_store(
    original: Any, connector: Any, from_stage: str, to_stage: str, key: str, data: Any, readers: int = 1
) -> tuple[bool, int, Any]:
    """The key is published before the payload has been copied."""
    held = Held(bytes(len(byte_view(data))), readers)
    connector._publish((from_stage, to_stage, key), held)
    held.data = connector._copy(data)
    return True, len(held.data), None


@fault(
    "transfer/stale-peer-generation",
    seam=f"{REFERENCE}.shm_views:Mappings._incarnation",
    claims=["connector.restart.fresh"],
    source="nixl#2051",
    engine="connector/shm",
)
def stale_peer_generation(original: Any, mappings: Any, fd: int, header: Any) -> Hashable:
    """A mapping is kept under the name of its segment, which a restarted peer gives to another one."""
    return header.peer, header.number
