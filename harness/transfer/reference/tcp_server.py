"""The listener of a tcp connector: answers requests for what its process holds, whoever asks and however badly."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from harness.transfer.protocol import Endpoint
from harness.transfer.reference.errors import ProtocolError, TransferError, Unreachable
from harness.transfer.reference.tcp_channel import Channel, Deadline
from harness.transfer.reference.tcp_frames import TEXT_LIMIT, Frame, Op, Status

log = logging.getLogger(__name__)

CONNECTIONS = 64
"""Served at once. One more takes the place of the one that has waited longest for its client's next request, or is told BUSY."""
IDLE_LIMIT = 300.0
"""Seconds that a connection may stay silent between two requests."""
STOP_LIMIT = 30.0
"""Seconds of wall time for a connection's thread to end on close."""
RETRY = 0.1
"""Seconds until the next attempt to accept where the process is out of file descriptors and no connection ends before."""

Answer = Callable[[Frame], Frame]
"""From a request to its reply; called on the connection's thread, does not wait."""


class Connection:
    """One client, on a thread of its own. `idle`: it waits for a request; `evicted`: it had to make room, and ends."""

    def __init__(self, channel: Channel, serve: Callable[[Connection], None], name: str) -> None:
        self.channel = channel
        self.idle = True
        self.evicted = False
        self.thread = threading.Thread(target=serve, args=(self,), name=name, daemon=True)


class Listener:
    """Listens from the start; `boot` tells this life of the listener from an earlier one at the same port.

    A client that sends garbage, half a frame or nothing loses its own connection and harms no other; so does one that takes longer than
    `deadline` seconds over a request or its reply.
    """

    def __init__(self, answer: Answer, at: Endpoint, deadline: float) -> None:
        self._answer, self._seconds = answer, deadline
        self.boot = secrets.randbits(64)
        try:
            self._socket = socket.create_server((at.host, at.port), backlog=CONNECTIONS)
        except OSError as error:
            why = error.strerror or error
            raise Unreachable(f"{at.host}:{at.port}: cannot listen there ({why}); give another port, or 0 for any") from error
        self.endpoint = Endpoint(*self._socket.getsockname()[:2])
        self._changed = threading.Condition()
        self._connections: list[Connection] = []
        """In the order in which they last began to wait for a request."""
        self._closing = False
        self._name = f"tcp-listener-{self.endpoint.port}"
        self._thread = threading.Thread(target=self._accept, name=self._name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the port back, end every connection, and return when their threads have ended. May be called twice."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            serving = list(self._connections)
            self._changed.notify_all()
        # A blocked accept does not notice that its socket is closed; it notices a shutdown.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in serving:
            connection.channel.hang_up()
        for thread in (self._thread, *(connection.thread for connection in serving)):
            thread.join(STOP_LIMIT)
            if thread.is_alive():
                raise TimeoutError(f"{thread.name} did not end within {STOP_LIMIT:g} s")

    def _accept(self) -> None:
        while True:
            try:
                connected, address = self._socket.accept()
            except OSError as error:
                with self._changed:
                    if self._closing:
                        return
                    log.warning("%s: cannot accept a connection: %s", self._name, error)
                    self._changed.wait(RETRY)
                continue
            self._admit(Channel(connected, f"client {address[0]}:{address[1]}"))

    def _admit(self, channel: Channel) -> None:
        connection = Connection(channel, self._serve, f"{self._name}-client")
        # Under the lock: a thread that is listed can be joined. One that the system does not start is one too many.
        with self._changed, suppress(RuntimeError):
            if not self._closing and self._makes_room():
                connection.thread.start()
                self._connections.append(connection)
                return
        self._greet(channel, Status.BUSY)
        channel.close()

    def _makes_room(self) -> bool:
        """Whether one more connection may be served; one that waits for a request may have to go."""
        staying = [connection for connection in self._connections if not connection.evicted]
        if len(staying) < CONNECTIONS:
            return True
        longest_idle = next((connection for connection in staying if connection.idle), None)
        if longest_idle is None:
            return False
        longest_idle.evicted = True
        longest_idle.channel.hang_up()
        return True

    def _serve(self, connection: Connection) -> None:
        try:
            if self._greet(connection.channel, Status.OK):
                while self._await_request(connection):
                    self._exchange(connection.channel)
        except TransferError as error:
            log.info("%s: %s", self._name, error)
        finally:
            connection.channel.close()
            with self._changed:
                self._connections.remove(connection)
                self._changed.notify_all()

    def _greet(self, channel: Channel, status: Status) -> bool:
        try:
            channel.send(Frame(Op.HELLO, self.boot, status), Deadline(self._seconds))
        except TransferError:
            return False
        return True

    def _await_request(self, connection: Connection) -> bool:
        with self._changed:
            connection.idle = True
            self._connections.remove(connection)
            self._connections.append(connection)
            self._changed.notify_all()
        asked = connection.channel.await_frame(IDLE_LIMIT)
        with self._changed:
            connection.idle = False
            self._changed.notify_all()
            return asked and not connection.evicted and not self._closing

    def _exchange(self, channel: Channel) -> None:
        """One request and its reply. What is no request is told so, and ends the connection: nobody knows where the next frame begins."""
        deadline = Deadline(self._seconds)
        try:
            request = channel.receive("a request", TEXT_LIMIT, deadline)
            reply = self._reply(request)
        except TransferError as error:
            told = str(error).encode()[:1024]
            channel.send(Frame(Op.HELLO, self.boot, Status.REFUSED, payload=told), deadline)
            raise
        channel.send(reply, deadline)

    def _reply(self, request: Frame) -> Frame:
        if request.boot != self.boot:
            raise ProtocolError("the request is meant for an earlier listener at this endpoint")
        if request.slot is None or request.op is Op.HELLO:
            raise ProtocolError("a request is a get, a done or a discard, of a key")
        return replace(self._answer(request), boot=self.boot)
