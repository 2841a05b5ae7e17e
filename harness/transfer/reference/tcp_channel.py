"""A socket of the tcp connector: carries frames whole, within a deadline, or raises."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import torch

from harness.transfer.buffers import byte_view
from harness.transfer.reference.errors import PeerClosed, PeerTimeout, ProtocolError
from harness.transfer.reference.tcp_frames import HEADER_SIZE, Frame, check_payload, decode_frame, decode_head, head_of

Result = TypeVar("Result")
Space = TypeVar("Space", bytearray, torch.Tensor)


class Deadline:
    """The end of one exchange, however many reads and writes it takes: a peer that drips a byte a second is not waited for any longer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds of wall time, above 0. TimeoutError when it is over."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the deadline of {self.seconds:g} s is over (option deadline)")
        return left


class Channel:
    """A connected socket that carries whole frames. `peer` is how errors name the other end. Used by one thread at a time."""

    def __init__(self, connected: socket.socket, peer: str) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._peer = connected, peer

    def send(self, frame: Frame, deadline: Deadline) -> None:
        """PeerTimeout if the peer does not take it in time, PeerClosed if it has gone."""
        payload = byte_view(frame.payload)
        what = f"to take {len(payload)} bytes after {frame.op.name}"
        try:
            for part in (head_of(frame), payload):
                self._socket.settimeout(deadline.left())
                self._socket.sendall(part)
        except OSError as error:
            raise self._failed(error, what, deadline) from error

    def receive(self, what: str, limit: int, deadline: Deadline) -> Frame:
        """One whole frame, its payload in a tensor of its own. `what` is expected, for the errors; `limit` bounds the payload, in bytes.

        PeerTimeout, PeerClosed; ProtocolError for what is no frame or too long; PayloadError for a payload that fails its checksum.
        """
        # Each length is checked before anything is allocated for it.
        raw = self._filled(bytearray(HEADER_SIZE), f"the header of {what}", deadline)
        head = self._named(decode_head, raw, what, limit)
        key = self._filled(bytearray(head.key_size), f"the key of {what}", deadline)
        frame = self._named(decode_frame, head, key, what)
        payload = self._filled(torch.empty(head.size, dtype=torch.uint8), f"the payload of {what}", deadline)
        return self._checked(replace(frame, payload=payload), what)

    def _named(self, decode: Callable[..., Result], *arguments: Any) -> Result:
        """What a decoder finds wrong is told with the peer's name."""
        try:
            return decode(*arguments)
        except ProtocolError as error:
            raise ProtocolError(f"{self._peer}: {error}") from error

    def _checked(self, frame: Frame, what: str) -> Frame:
        if frame.checksum is not None:
            check_payload(frame.payload, frame.checksum, f"{self._peer}: {what}")
        return frame

    def _filled(self, buffer: Space, what: str, deadline: Deadline) -> Space:
        """The buffer, received to its last byte, straight into it."""
        view, at = byte_view(buffer), 0
        while at < len(view):
            try:
                self._socket.settimeout(deadline.left())
                got = self._socket.recv_into(view[at:])
            except OSError as error:
                raise self._failed(error, f"{what} ({at} of {len(view)} bytes came)", deadline) from error
            if not got:
                raise PeerClosed(f"{self._peer}: closed the connection after {at} of {len(view)} bytes of {what}")
            at += got
        return buffer

    def _failed(self, error: OSError, what: str, deadline: Deadline) -> Exception:
        if isinstance(error, TimeoutError):
            return PeerTimeout(f"{self._peer}: the exchange took longer than {deadline.seconds:g} s (option deadline); expected {what}")
        return PeerClosed(f"{self._peer}: connection lost ({error.strerror or error}); expected {what}")

    def is_stale(self) -> bool:
        """Whether a connection between two exchanges is of no use: the peer has closed it, or says what nobody asked for."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def await_frame(self, seconds: float) -> bool:
        """Wait for the first byte of the next frame; False if the peer ended the connection, or let `seconds` pass."""
        try:
            self._socket.settimeout(seconds)
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def hang_up(self) -> None:
        """Wake whoever reads or writes here; they find the connection lost."""
        with suppress(OSError):  # the peer may have been faster
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
