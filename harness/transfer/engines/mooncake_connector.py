"""A connector over Mooncake's transfer engine: the receiver reads the memory that the sender has registered.

Imported only where Mooncake is installed, from inside the adapter's functions.
"""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import asdict, dataclass
from typing import Any

import torch

from harness.transfer.buffers import byte_view
from harness.transfer.engines.mooncake_session import Session
from harness.transfer.protocol import Buffer, Endpoint
from harness.transfer.reference.errors import PayloadError, ProtocolError, TransportError
from harness.transfer.reference.tcp import TcpConnector
from harness.transfer.reference.tcp_channel import Deadline
from harness.transfer.reference.tcp_frames import Slot, check_payload, checksum_of
from harness.transfer.reference.tcp_store import Held

DESCRIPTION_LIMIT = 4096
"""Bytes of what the directory says of one payload."""


@dataclass(frozen=True)
class Description:
    """Where a payload lies: which session's memory, from which address on, how many bytes. `number` counts the sender's puts.

    Without the number, a payload would look like an earlier one that lay at the same address.
    """

    peer: str
    address: int
    size: int
    checksum: int | None
    number: int

    def __post_init__(self) -> None:
        numbers = (self.address, self.size, self.number)
        if not isinstance(self.peer, str) or not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise ValueError(f"peer {self.peer!r}, address, size and number {numbers}")


class MooncakeConnector:
    """See `harness.transfer.protocol.Connector`. Thread-safe.

    Mooncake moves memory between addresses and knows no keys. Which key lies where is told by a directory at the sender, a `TcpConnector`
    that carries descriptions; payloads travel by Mooncake alone. `peer`, `checksum`, `deadline` and `limit` as in `TcpConnector`.
    """

    carries_device_memory = False

    def __init__(self, peer: str | None, *, checksum: bool, deadline: float, limit: int) -> None:
        self._checksum, self._seconds, self._limit = checksum, deadline, limit
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._memory: dict[int, torch.Tensor] = {}
        """Registered payloads by their address."""
        self._session: Session | None = None
        self._closed = False
        self._directory = TcpConnector(peer, deadline=deadline, limit=DESCRIPTION_LIMIT, released=self._released)
        self.address, self.endpoint = self._directory.address, self._directory.endpoint

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer, readers: int = 1) -> tuple[bool, int, Endpoint]:
        """Copy into registered memory, then publish where it lies."""
        view = byte_view(data)
        if len(view) > self._limit:
            raise ValueError(f"a payload of {len(view)} bytes, the limit is {self._limit} (option limit)")
        # An empty payload gets a byte, and so an address of its own.
        memory = torch.empty(max(len(view), 1), dtype=torch.uint8)
        byte_view(memory)[: len(view)] = view
        description = self._registered(memory, len(view))
        try:
            self._directory.put(from_stage, to_stage, key, json.dumps(asdict(description)).encode(), readers)
        except BaseException:
            self._free(description.address)
            raise
        return True, len(view), self.endpoint

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[Buffer, int] | None:
        """(uint8[n], n), read from the sender's memory; None if nothing is published.

        The sender may free what is being read, and use its memory again. Bytes are delivered if they have their checksum, or if they are
        still published where they were, for memory is freed after that. Otherwise what is published now is read instead.
        """
        deadline = Deadline(self._seconds)
        described = self._described((from_stage, to_stage, key), handle)
        while described is not None:
            failed: Exception | None = None
            try:
                data = self._read(described, key, deadline)
                if described.checksum is not None:
                    return data, described.size
            except (TransportError, PayloadError) as error:
                failed = error
            before, described = described, self._described((from_stage, to_stage, key), handle)
            if described == before:
                if failed is not None:
                    raise failed
                return data, described.size
        return None

    def done(self, from_stage: str, to_stage: str, key: str, handle: Any = None, reader: str = "") -> None:
        self._directory.done(from_stage, to_stage, key, handle, reader)

    def discard(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
        self._directory.discard(from_stage, to_stage, key, handle)

    def holds(self, from_stage: str, to_stage: str, key: str) -> bool:
        return self._directory.holds(from_stage, to_stage, key)

    def usage(self) -> dict[str, int]:
        """`segments` registered and their `bytes`."""
        with self._lock:
            return {"segments": len(self._memory), "bytes": sum(memory.numel() for memory in self._memory.values())}

    def close(self) -> None:
        """Unregister everything and end the engine, which takes Mooncake up to a second. May be called twice."""
        self._directory.close()
        with self._lock:
            self._session, self._closed = None, True

    def _engine(self) -> Session:
        """Booted with the first transfer: the end of one takes a second."""
        with self._lock:
            if self._closed:
                raise ConnectionError(f"{self.address}: the connector is closed")
            if self._session is None:
                self._session = Session()
            return self._session

    def _described(self, slot: Slot, handle: Any) -> Description | None:
        found = self._directory.get(*slot, handle)
        try:
            return None if found is None else Description(**json.loads(bytes(byte_view(found[0]))))
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"{handle or self.address}: what lies under {slot} is no description of a payload: {error}") from error

    def _read(self, described: Description, key: str, deadline: Deadline) -> torch.Tensor:
        if described.size > self._limit:
            raise ProtocolError(f"mooncake {described.peer}: announces {described.size} bytes, the limit is {self._limit} (option limit)")
        if not described.size:
            return torch.empty(0, dtype=torch.uint8)
        data = self._engine().read(described.peer, described.address, described.size, deadline)
        if described.checksum is not None:
            check_payload(data, described.checksum, f"mooncake {described.peer}: {key!r}")
        return data

    def _registered(self, memory: torch.Tensor, size: int) -> Description:
        """The description of a payload of `size` bytes, whose memory peers may read from now on."""
        session = self._engine()
        session.register(memory)
        with self._lock:
            self._memory[memory.data_ptr()] = memory
        checksum = checksum_of(memory[:size]) if self._checksum else None
        return Description(session.name, memory.data_ptr(), size, checksum, next(self._numbers))

    def _released(self, _: Slot, held: Held) -> None:
        self._free(json.loads(bytes(held.data))["address"])

    def _free(self, address: int) -> None:
        with self._lock:
            memory, session = self._memory.pop(address), self._session
        if session is not None:
            session.unregister(memory)
