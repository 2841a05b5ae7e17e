"""The asking side of a tcp connector: connections to peers, kept between requests, and never trusted longer than their peer lives."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from dataclasses import replace

from harness.transfer.protocol import Endpoint
from harness.transfer.reference.errors import PeerBusy, PeerClosed, PeerRestarted, PeerTimeout, ProtocolError, Unreachable
from harness.transfer.reference.tcp_channel import Channel, Deadline
from harness.transfer.reference.tcp_frames import TEXT_LIMIT, Frame, Op, Slot, Status, checksum_of

KEPT = 4
"""Idle connections kept for an endpoint."""


class Session:
    """A connection whose peer has said hello; `boot` is which life of the peer answered."""

    def __init__(self, channel: Channel, boot: int) -> None:
        self.channel, self.boot = channel, boot


class Peers:
    """Asks other endpoints. Thread-safe: a session is used by one thread at a time. Each request has `deadline` seconds, all in all.

    Only the resolution of a host's name, where an endpoint gives one, takes the system's own time.
    """

    def __init__(self, deadline: float, limit: int) -> None:
        self._seconds, self._limit = deadline, limit
        self._lock = threading.Lock()
        self._idle: defaultdict[Endpoint, list[Session]] = defaultdict(list)
        self._closed = False

    def ask(self, endpoint: Endpoint, op: Op, slot: Slot, reader: bytes = b"") -> Frame:
        """The peer's reply, OK or ABSENT. A TransportError or PeerTimeout names the endpoint; PayloadError for damaged bytes.

        A kept connection that turns out to be lost is replaced once, except for a DONE without a `reader`: the peer may have counted it.
        """
        request = Frame(op, 0, slot=slot, payload=reader, checksum=checksum_of(reader))
        deadline = Deadline(self._seconds)
        kept = self._take(endpoint)
        if kept is not None:
            try:
                return self._exchange(endpoint, kept, request, deadline)
            except (PeerClosed, PeerRestarted):
                if op is Op.DONE and not reader:
                    raise
        return self._exchange(endpoint, self._connect(endpoint, deadline), request, deadline)

    def close(self) -> None:
        """Close what is kept; nothing is kept from now on."""
        with self._lock:
            self._closed = True
            dropped = [session for sessions in self._idle.values() for session in sessions]
            self._idle.clear()
        for session in dropped:
            session.channel.close()

    def _exchange(self, endpoint: Endpoint, session: Session, request: Frame, deadline: Deadline) -> Frame:
        # Whatever happens, an interrupt included, a connection that stopped in the middle is not used again.
        whole = False
        try:
            session.channel.send(replace(request, boot=session.boot), deadline)
            reply = session.channel.receive(f"the reply to {said(request)}", self._limit, deadline)
            self._check(endpoint, session, request, reply)
            whole = True
        finally:
            if whole:
                self._keep(endpoint, session)
            else:
                session.channel.close()
        return reply

    def _check(self, endpoint: Endpoint, session: Session, request: Frame, reply: Frame) -> None:
        """The reply is this peer's, to this request."""
        if reply.status is Status.REFUSED:
            raise ProtocolError(f"{name_of(endpoint)}: refused {said(request)}: {text_of(reply)}")
        if reply.boot != session.boot:
            raise PeerRestarted(f"{name_of(endpoint)}: the listener was restarted during {said(request)}")
        if (reply.op, reply.slot) != (request.op, request.slot) or reply.status not in (Status.OK, Status.ABSENT):
            raise ProtocolError(f"{name_of(endpoint)}: expected the reply to {said(request)}, got {reply.op.name} of {reply.slot}")

    def _connect(self, endpoint: Endpoint, deadline: Deadline) -> Session:
        where = name_of(endpoint)
        try:
            connected = socket.create_connection((endpoint.host, endpoint.port), deadline.left())
        except TimeoutError as error:
            raise PeerTimeout(f"{where}: no connection within {deadline.seconds:g} s (option deadline)") from error
        except OSError as error:
            raise Unreachable(f"{where}: nobody takes a connection there ({error.strerror or error}); expected a sender") from error
        channel = Channel(connected, where)
        try:
            hello = channel.receive("a sender's hello", TEXT_LIMIT, deadline)
            if hello.status is Status.BUSY:
                raise PeerBusy(f"{where}: serves as many connections as it may, and took no more")
            if hello.op is not Op.HELLO or hello.status is not Status.OK:
                raise ProtocolError(f"{where}: expected a sender's hello, got {hello.op.name} {hello.status.name}")
        except BaseException:
            channel.close()
            raise
        self._forget(endpoint, hello.boot)
        return Session(channel, hello.boot)

    def _take(self, endpoint: Endpoint) -> Session | None:
        """A kept session whose peer has not hung up."""
        while True:
            with self._lock:
                sessions = self._idle.get(endpoint)
                session = sessions.pop() if sessions else None
            if session is None or not session.channel.is_stale():
                return session
            session.channel.close()

    def _keep(self, endpoint: Endpoint, session: Session) -> None:
        with self._lock:
            if not self._closed and len(self._idle[endpoint]) < KEPT:
                self._idle[endpoint].append(session)
                return
        session.channel.close()

    def _forget(self, endpoint: Endpoint, boot: int) -> None:
        """Drop the sessions with earlier lives of the peer."""
        with self._lock:
            sessions = self._idle.pop(endpoint, [])
            current = [session for session in sessions if session.boot == boot]
            if current:
                self._idle[endpoint] = current
        for session in sessions:
            if session.boot != boot:
                session.channel.close()


def name_of(endpoint: Endpoint) -> str:
    """As errors name it."""
    return f"{endpoint.host}:{endpoint.port}"


def said(request: Frame) -> str:
    """As errors tell it."""
    return f"{request.op.name} of {request.slot[2]!r}" if request.slot else request.op.name


def text_of(reply: Frame) -> str:
    """What a refusal says."""
    return bytes(reply.payload.numpy()).decode(errors="replace")
