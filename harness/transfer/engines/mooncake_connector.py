"""A connector over Mooncake's transfer engine: the receiver reads the memory that the sender has registered.

Imported only where Mooncake is installed, from inside the adapter's functions.
"""

from __future__ import annotations

import json
import threading
from typing import Any

import torch
from mooncake.engine import TransferEngine

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer, Endpoint
from harness.transfer.reference.errors import PeerTimeout, ProtocolError, TransportError
from harness.transfer.reference.tcp import TcpConnector
from harness.transfer.reference.tcp_channel import Deadline
from harness.transfer.reference.tcp_frames import Slot, check_payload, checksum_of
from harness.transfer.reference.tcp_store import Held

HOST = "127.0.0.1"
DESCRIPTION_LIMIT = 4096
"""Bytes of what the directory says of one payload."""


class Session:
    """One Mooncake engine: TCP on the loopback interface, peers found by handshake. `name` is how peers call it."""

    def __init__(self) -> None:
        self._engine = TransferEngine()
        code = self._engine.initialize(HOST, "P2PHANDSHAKE", "tcp", "")
        if code:
            raise TransportError(f"mooncake: initialize({HOST!r}, 'P2PHANDSHAKE', 'tcp', '') returned {code}")
        self.name = f"{HOST}:{self._engine.get_rpc_port()}"

    def register(self, memory: torch.Tensor) -> None:
        """Let peers read it, and this engine write to it. It must live until `unregister`."""
        code = self._engine.register_memory(memory.data_ptr(), memory.numel())
        if code:
            raise TransportError(f"mooncake {self.name}: register_memory of {memory.numel()} bytes returned {code}")

    def unregister(self, memory: torch.Tensor) -> None:
        code = self._engine.unregister_memory(memory.data_ptr())
        if code:
            raise TransportError(f"mooncake {self.name}: unregister_memory of {memory.numel()} bytes returned {code}")

    def read(self, peer: str, address: int, size: int, deadline: Deadline) -> torch.Tensor:
        """A copy of the peer's memory, uint8[size]. TransportError where Mooncake says so, PeerTimeout where it says nothing."""
        target = torch.empty(size, dtype=torch.uint8)
        ended: list[int | Exception] = []
        # On a thread of its own: the call cannot be told how long it may take. If it stays out, the thread keeps what it writes to.
        reader = threading.Thread(target=self._transfer, args=(peer, address, target, ended), name="mooncake-read", daemon=True)
        reader.start()
        reader.join(deadline.left())
        if not ended:
            raise PeerTimeout(f"mooncake {peer}: read of {size} bytes took longer than {deadline.seconds:g} s (option deadline)")
        if ended[0] != 0:
            raise TransportError(f"mooncake {peer}: transfer_sync_read of {size} bytes ended with {ended[0]}")
        return target

    def _transfer(self, peer: str, address: int, target: torch.Tensor, ended: list[int | Exception]) -> None:
        try:
            self.register(target)
            code = self._engine.transfer_sync_read(peer, target.data_ptr(), address, target.numel())
            self.unregister(target)
        except Exception as error:  # noqa: BLE001 (nobody else would hear of it)
            ended.append(error)
        else:
            ended.append(code)


class MooncakeConnector:
    """See `harness.transfer.protocol.Connector`. Thread-safe.

    Mooncake moves memory between addresses and knows no keys. Which key lies where is told by a directory at the sender, a `TcpConnector`
    that carries descriptions; payloads travel by Mooncake alone. `peer`, `checksum`, `deadline` and `limit` as in `TcpConnector`.
    """

    def __init__(self, peer: str | None, *, checksum: bool, deadline: float, limit: int) -> None:
        self._checksum, self._seconds, self._limit = checksum, deadline, limit
        self._lock = threading.Lock()
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
            self._directory.put(from_stage, to_stage, key, json.dumps(description).encode(), readers)
        except BaseException:
            self._free(description["address"])
            raise
        return True, len(view), self.endpoint

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[Buffer, int] | None:
        """(uint8[n], n), read from the sender's memory; None if nothing is published."""
        deadline = Deadline(self._seconds)
        found = self._directory.get(from_stage, to_stage, key, handle)
        if found is None:
            return None
        peer, address, size, checksum = self._parsed(found[0])
        data = self._engine().read(peer, address, size, deadline) if size else torch.empty(0, dtype=torch.uint8)
        if checksum is not None:
            check_payload(data, checksum, f"mooncake {peer}: {key!r}")
        return data, size

    def done(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
        self._directory.done(from_stage, to_stage, key, handle)

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

    def _registered(self, memory: torch.Tensor, size: int) -> dict[str, Any]:
        """The description of a payload of `size` bytes, whose memory peers may read from now on."""
        session = self._engine()
        session.register(memory)
        with self._lock:
            self._memory[memory.data_ptr()] = memory
        checksum = checksum_of(memory[:size]) if self._checksum else None
        return {"peer": session.name, "address": memory.data_ptr(), "size": size, "checksum": checksum}

    def _parsed(self, description: Buffer) -> tuple[str, int, int, int | None]:
        told = json.loads(bytes(byte_view(description)))
        if told["size"] > self._limit:
            raise ProtocolError(f"mooncake {told['peer']}: announces {told['size']} bytes, the limit is {self._limit} (option limit)")
        return told["peer"], told["address"], told["size"], told["checksum"]

    def _released(self, _: Slot, held: Held) -> None:
        self._free(json.loads(bytes(held.data))["address"])

    def _free(self, address: int) -> None:
        with self._lock:
            memory, session = self._memory.pop(address), self._session
        if session is not None:
            session.unregister(memory)
