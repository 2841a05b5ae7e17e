"""A connector over TCP: what was put stays in the sender's process, and its listener gives it to whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer, Endpoint
from harness.transfer.reference.lab import ConnectorLab
from harness.transfer.reference.tcp_client import Peers
from harness.transfer.reference.tcp_frames import Frame, Op, Slot, Status, check_payload, encode_slot, encode_text
from harness.transfer.reference.tcp_server import Listener
from harness.transfer.reference.tcp_store import Held, Store, forget

SCHEME = "tcp://"
ANY_PORT = Endpoint("127.0.0.1", 0)
LIMIT = 1 << 30
"""Bytes of the largest payload."""
DEADLINE = 10.0
"""Seconds that one request may take, connection included: a payload of the limit needs about as long at a gigabit a second."""


class TcpConnector:
    """See `harness.transfer.protocol.Connector`. Thread-safe; ends its threads on `close`.

    `peer` is the address of another connector, which is asked where a call names no sender; without one, this connector itself is. It
    listens `at` an endpoint, by default of the loopback interface; port 0 is any that is free. `checksum` says whether its payloads are put
    with one. `deadline` (seconds) and `limit` (bytes) as the constants of this module. `lab` and `released` as in `Store`.
    """

    carries_device_memory = False

    def __init__(
        self,
        peer: str | None = None,
        *,
        at: Endpoint = ANY_PORT,
        checksum: bool = True,
        deadline: float = DEADLINE,
        limit: int = LIMIT,
        lab: ConnectorLab | None = None,
        released: Callable[[Slot, Held], None] = forget,
    ) -> None:
        self._peer = None if peer is None else parse_address(peer)
        self._limit, self._closed = limit, False
        self._store = Store(checksum, lab, released)
        self._peers = Peers(deadline, limit)
        self._listener = Listener(self._answer, at, deadline)
        self.endpoint: Endpoint = self._listener.endpoint
        self.address = f"{SCHEME}{self.endpoint.host}:{self.endpoint.port}"

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer, readers: int = 1) -> tuple[bool, int, Endpoint]:
        """Keep a copy for `readers` readers, found at the endpoint that is returned. ValueError for a payload over the limit."""
        if readers < 1:
            raise ValueError(f"readers = {readers}; a payload has at least one")
        slot = _slot(from_stage, to_stage, key)
        size = self._store.put(slot, data, readers, self._limit)
        return True, size, self.endpoint

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[Buffer, int] | None:
        """(uint8[n] or a read-only view of the sender's own copy, n), checked against its checksum; None if nothing is published."""
        slot, sender = _slot(from_stage, to_stage, key), self._sender(handle)
        return self._own(slot) if sender is None else self._fetched(sender, slot)

    def done(self, from_stage: str, to_stage: str, key: str, handle: Any = None, reader: str = "") -> None:
        self._tell(Op.DONE, _slot(from_stage, to_stage, key), self._sender(handle), encode_text("reader", reader))

    def discard(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
        self._tell(Op.DISCARD, _slot(from_stage, to_stage, key), self._sender(handle))

    def holds(self, from_stage: str, to_stage: str, key: str) -> bool:
        return self._store.find((from_stage, to_stage, key)) is not None

    def usage(self) -> dict[str, int]:
        """`segments` put here and still held, and their `bytes`."""
        return self._store.usage()

    def close(self) -> None:
        """Free what is held, give the port back, end the threads. May be called twice."""
        self._closed = True
        self._store.close()
        self._peers.close()
        self._listener.close()

    def _sender(self, handle: Any) -> Endpoint | None:
        """Whom to ask; None for this connector's own store."""
        if handle is None:
            return self._peer
        if not isinstance(handle, Endpoint) or not 0 < handle.port < 1 << 16:
            raise ValueError(f"handle {handle!r}: give the sender's Endpoint, or what its put returned")
        # Its own port may be somebody else's once it is closed.
        return None if self._closed and handle == self.endpoint else handle

    def _own(self, slot: Slot) -> tuple[Buffer, int] | None:
        held = self._store.find(slot)
        if held is None:
            return None
        if held.checksum is not None:
            check_payload(held.data, held.checksum, f"{self.address}: {slot}")
        return held.data, len(held.data)

    def _fetched(self, sender: Endpoint, slot: Slot) -> tuple[Buffer, int] | None:
        reply = self._peers.ask(sender, Op.GET, slot)
        return None if reply.status is Status.ABSENT else (reply.payload, len(reply.payload))

    def _tell(self, op: Op, slot: Slot, sender: Endpoint | None, reader: bytes = b"") -> None:
        if sender is not None:
            self._peers.ask(sender, op, slot, reader)
        elif op is Op.DONE:
            self._store.done(slot, reader)
        else:
            self._store.discard(slot)

    def _answer(self, request: Frame) -> Frame:
        """The listener's word on one request."""
        slot = request.slot
        assert slot is not None
        if request.op is Op.GET:
            held = self._store.find(slot)
            if held is None:
                return Frame(request.op, request.boot, Status.ABSENT, slot)
            return Frame(request.op, request.boot, Status.OK, slot, held.data, held.checksum)
        self._tell(request.op, slot, None, bytes(byte_view(request.payload)))
        return Frame(request.op, request.boot, Status.OK, slot)


def _slot(from_stage: str, to_stage: str, key: str) -> Slot:
    slot = (from_stage, to_stage, key)
    encode_slot(slot)  # what cannot be asked for cannot be put either
    return slot


def parse_address(address: str) -> Endpoint:
    """The endpoint of another connector's `address`. ValueError for anything else."""
    host, colon, port = address.removeprefix(SCHEME).rpartition(":")
    if not address.startswith(SCHEME) or not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"address {address!r}: write {SCHEME}host:port, as another tcp connector's address says")
    return Endpoint(host, int(port))
