"""A line between two of our own processes: whole messages, a deadline on every wait."""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from typing import Any

_LENGTH = struct.Struct("<Q")
LONGEST = 1 << 31
"""Bytes of one message. A length beyond it is noise, not a message."""


class LineBroken(RuntimeError):
    """The other end is gone, or sent what is no message."""


class Line:
    """One end. Messages are pickled: only what this package starts is ever at the other end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: Any, deadline: float | None = None) -> None:
        """TimeoutError if the other end has not taken it within `deadline` seconds (None: waits for ever); LineBroken if it is gone."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._end.settimeout(deadline)
        try:
            self._end.sendall(_LENGTH.pack(len(data)) + data)
        except (BrokenPipeError, ConnectionResetError) as gone:
            raise LineBroken("the other end of the line is gone") from gone

    def receive(self, deadline: float | None = None) -> Any:
        """The next message; TimeoutError or LineBroken as in `send`."""
        until = None if deadline is None else time.monotonic() + deadline
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, until))
        if length > LONGEST:
            raise LineBroken(f"a message of {length} bytes; at most {LONGEST} are read")
        return pickle.loads(self._exactly(length, until))

    def is_ready(self) -> bool:
        """Whether a message, or the end, has begun to arrive."""
        return bool(select.select([self._end], [], [], 0)[0])

    def close(self) -> None:
        self._end.close()

    def _exactly(self, size: int, until: float | None) -> bytearray:
        data = bytearray(size)
        view, got = memoryview(data), 0
        while got < size:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self._end.settimeout(left)
            try:
                count = self._end.recv_into(view[got:])
            except ConnectionResetError:
                count = 0
            if not count:
                raise LineBroken("the other end of the line is gone")
            got += count
        return data
