"""Peers that a connector should never meet, on real sockets, none of which knows any connector's protocol.

One refuses, one is silent, one talks of something else, and a proxy before a good sender cuts, flips or slows what passes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

from harness.transfer.protocol import Endpoint

LOOPBACK = "127.0.0.1"
CHUNK = 1 << 16
STOP_LIMIT = 10.0
"""Seconds of wall time for a stranger's thread to end on close."""


class Stranger:
    """Has a port of its own for as long as it is open; a context manager."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind((LOOPBACK, 0))
        self.endpoint = Endpoint(*self._socket.getsockname())

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()


class Refusing(Stranger):
    """Holds its port, so that nobody else can listen there, and takes no connection."""


class Accepting(Stranger):
    """Takes every connection, and does with it what `serve` does, on a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._closing = threading.Event()
        self._open: list[socket.socket] = []
        self._socket.listen()
        self._threads = [threading.Thread(target=self._accept, name="stranger", daemon=True)]
        self._threads[0].start()

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """End every connection, and return when the threads have ended."""
        self._closing.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        super().close()
        for connected in list(self._open):
            _hang_up(connected)
        for thread in list(self._threads):
            thread.join(STOP_LIMIT)
            if thread.is_alive():
                raise TimeoutError(f"a stranger's thread did not end within {STOP_LIMIT:g} s")
        for connected in self._open:
            connected.close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._socket.accept()[0]
            except OSError:
                return
            self._keep(client)
            self._begin(self._served, client)

    def _begin(self, run: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=run, args=arguments, name="stranger", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _served(self, client: socket.socket) -> None:
        with suppress(OSError):
            self.serve(client)
        _hang_up(client)

    def _keep(self, connected: socket.socket) -> None:
        self._open.append(connected)


class Silent(Accepting):
    """Says nothing for `patience` seconds, then hangs up: whoever still waits there has no deadline."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        super().__init__()

    def serve(self, client: socket.socket) -> None:
        self._closing.wait(self._patience)


class Babbling(Accepting):
    """Says `text` to everybody, then hangs up: the port belongs to another service."""

    HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 12\r\nConnection: close\r\n\r\nBad Request\n"

    def __init__(self, text: bytes = HTTP) -> None:
        self._text = text
        super().__init__()

    def serve(self, client: socket.socket) -> None:
        client.sendall(self._text)


class Way(str, Enum):
    """One direction through a proxy."""

    UP = "up"
    """From the client to the sender."""
    DOWN = "down"
    """From the sender to the client."""


class What(str, Enum):
    """What is wrong with it."""

    CUT = "cut"
    """The connection ends after `at` bytes."""
    FLIP = "flip"
    """The lowest bit of byte `at` is flipped."""
    DRIP = "drip"
    """A byte at a time, with `pause` seconds before each."""


@dataclass(frozen=True)
class Trouble:
    """What befalls each connection through a proxy, counted in its own bytes of that direction."""

    what: What
    way: Way = Way.DOWN
    at: int = 0
    pause: float = 0.0


class Proxy(Accepting):
    """Stands before the sender `to`. `passed` counts the bytes that came by each way, over all connections."""

    def __init__(self, to: Endpoint, trouble: Trouble | None = None) -> None:
        self._to, self._trouble = to, trouble
        self.passed = dict.fromkeys(Way, 0)
        super().__init__()

    def serve(self, client: socket.socket) -> None:
        sender = socket.create_connection((self._to.host, self._to.port), STOP_LIMIT)
        self._keep(sender)
        sender.settimeout(None)
        up = self._begin(self._pump, client, sender, Way.UP)
        self._pump(sender, client, Way.DOWN)
        up.join()

    def _pump(self, source: socket.socket, sink: socket.socket, way: Way) -> None:
        trouble = self._trouble if self._trouble is not None and self._trouble.way is way else None
        at = 0
        with suppress(OSError):
            while chunk := source.recv(CHUNK):
                self.passed[way] += len(chunk)
                if not self._passes(bytearray(chunk), at, sink, trouble):
                    break
                at += len(chunk)
        _hang_up(source)
        _hang_up(sink)

    def _passes(self, chunk: bytearray, at: int, sink: socket.socket, trouble: Trouble | None) -> bool:
        """Hand on bytes `at` and following of a connection; False where it ends."""
        place = trouble.at - at if trouble else -1
        if trouble and trouble.what is What.DRIP:
            return self._drips(chunk, sink, trouble.pause)
        if trouble and trouble.what is What.CUT and place < len(chunk):
            sink.sendall(chunk[: max(place, 0)])
            return False
        if trouble and trouble.what is What.FLIP and 0 <= place < len(chunk):
            chunk[place] ^= 1
        sink.sendall(chunk)
        return True

    def _drips(self, chunk: bytearray, sink: socket.socket, pause: float) -> bool:
        for byte in chunk:
            if self._closing.wait(pause):
                return False
            sink.sendall(bytes([byte]))
        return True


def _hang_up(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
