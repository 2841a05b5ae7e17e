"""One engine of Mooncake's: registers memory, and reads a peer's.

Imported only where Mooncake is installed, from inside the adapter's functions.
"""

from __future__ import annotations

import threading

import torch
from mooncake.engine import TransferEngine

from harness.transfer.reference.errors import PeerTimeout, TransportError
from harness.transfer.reference.tcp_channel import Deadline

HOST = "127.0.0.1"


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
        # On a thread of its own: no call of Mooncake's can be told how long it may take, and with a silent peer that is a minute
        # (ci/findings/mooncake_silent_peers.py). The thread that stays out keeps the memory that it may still write to.
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
