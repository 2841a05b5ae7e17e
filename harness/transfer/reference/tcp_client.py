"""The asking side of a tcp connector: connections to peers, kept between requests, and never trusted longer than their peer lives."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict

from harness.transfer.protocol import Endpoint
from harness.transfer.reference.errors import PeerBusy, PeerClosed, PeerRestarted, PeerTimeout, ProtocolError, Unreachable
from harness.transfer.reference.tcp_channel import Channel, Deadline
from harness.transfer.reference.tcp_frames import Frame, Op, Slot, Status

KEPT = 4
"""Idle connections kept for an endpoint."""
TEXT_LIMIT = 4096
"""Bytes of a refusal's text."""


class Session:
    """A connection whose peer has said hello; `boot` is which life of the peer answered."""

    def __init__(self, channel: Channel, boot: int) -> None:
        self.channel, self.boot = channel, boot


class Peers:
    """Asks other endpoints. Thread-safe: a session is used by one thread at a time. Each request has `deadline` seconds, all in all."""

    def __init__(self, deadline: float, limit: int) -> None:
        self._seconds, self._limit = deadline, limit
        self._lock = threading.Lock()
        self._idle: defaultdict[Endpoint, list[Session]] = defaultdict(list)
        self._closed = False

    def ask(self, endpoint: Endpoint, op: Op, slot: Slot) -> Frame:
        """The peer's reply, OK or ABSENT. A TransportError or PeerTimeout names the endpoint; PayloadError for damaged bytes.

        A kept connection that turns out to be lost is replaced once, except for DONE, which the peer may have counted already.
        """
        deadline = Deadline(self._seconds)
        kept = self._take(endpoint)
        if kept is not None:
            try:
                return self._exchange(endpoint, kept, op, slot, deadline)
            except (PeerClosed, PeerRestarted):
                if op is Op.DONE:
                    raise
        return self._exchange(endpoint, self._connect(endpoint, deadline), op, slot, deadline)

    def close(self) -> None:
        """Close what is kept; nothing is kept from now on."""
        with self._lock:
            self._closed = True
            dropped = [session for sessions in self._idle.values() for session in sessions]
            self._idle.clear()
        for session in dropped:
            session.channel.close()

    def _exchange(self, endpoint: Endpoint, session: Session, op: Op, slot: Slot, deadline: Deadline) -> Frame:
        # Whatever happens, an interrupt included, a connection that stopped in the middle is not used again.
        whole = False
        try:
            session.channel.send(Frame(op, session.boot, slot=slot), deadline)
            reply = session.channel.receive(f"the reply to {op.name} of {slot[2]!r}", self._limit, deadline)
            self._check(endpoint, session, op, slot, reply)
            whole = True
        finally:
            if whole:
                self._keep(endpoint, session)
            else:
                session.channel.close()
        return reply

    def _check(self, endpoint: Endpoint, session: Session, op: Op, slot: Slot, reply: Frame) -> None:
        """The reply is this peer's, to this request."""
        if reply.status is Status.REFUSED:
            raise ProtocolError(f"{name_of(endpoint)}: refused {op.name} of {slot[2]!r}: {text_of(reply)}")
        if reply.boot != session.boot:
            raise PeerRestarted(f"{name_of(endpoint)}: the listener was restarted during {op.name} of {slot[2]!r}")
        if reply.op is not op or reply.slot != slot or reply.status not in (Status.OK, Status.ABSENT):
            raise ProtocolError(f"{name_of(endpoint)}: expected the reply to {op.name} of {slot}, got {reply.op.name} of {reply.slot}")

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


def text_of(reply: Frame) -> str:
    """What a refusal says."""
    return bytes(reply.payload.numpy()).decode(errors="replace")
