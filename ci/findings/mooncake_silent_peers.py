"""How long Mooncake's transfer engine waits for a peer that says nothing: `python ci/findings/mooncake_silent_peers.py`, about 100 seconds.

No call of it takes a timeout, so whoever needs one must wait on another thread. Needs mooncake-transfer-engine-non-cuda and nothing of
Assay.
"""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
import time

from mooncake.engine import TransferEngine

SIZE = 1 << 20


def engine() -> TransferEngine:
    """One over TCP on the loopback interface."""
    made = TransferEngine()
    assert made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return made


def read(reader: TransferEngine, port: int, address: int) -> str:
    """What a read ends with, and after how long."""
    target = ctypes.create_string_buffer(SIZE)
    assert reader.register_memory(ctypes.addressof(target), SIZE) == 0
    begun = time.monotonic()
    code = reader.transfer_sync_read(f"127.0.0.1:{port}", ctypes.addressof(target), address, SIZE)
    took = time.monotonic() - begun
    assert reader.unregister_memory(ctypes.addressof(target)) == 0
    return f"transfer_sync_read returned {code} after {took:.1f} s"


def serve() -> None:
    """The sender's process: registers a MiB, says where, and stays."""
    sender, memory = engine(), ctypes.create_string_buffer(SIZE)
    assert sender.register_memory(ctypes.addressof(memory), SIZE) == 0
    print(sender.get_rpc_port(), ctypes.addressof(memory), flush=True)
    signal.pause()


def main() -> None:
    """A good peer, one that is stopped after a first transfer, and one that accepts and never says a word."""
    reader = engine()
    with subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as sender:
        assert sender.stdout is not None
        port, address = map(int, sender.stdout.readline().split())
        print("good peer:", read(reader, port, address), flush=True)
        sender.send_signal(signal.SIGSTOP)
        print("stopped peer:", read(reader, port, address), flush=True)
        sender.kill()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        print("silent peer:", read(reader, silent.getsockname()[1], address), flush=True)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
