"""Wrong answers of the tcp connector, and its canary."""

from __future__ import annotations

from functools import partial
from typing import Any

from harness.core.faults import Role, fault
from harness.transfer.reference.errors import TransportError, Unreachable
from harness.transfer.reference.tcp_frames import Frame, Op, Status
from harness.transfer.strangers import STOP_LIMIT
from harness.transfer.wrong_inputs.register import wrong_input

TCP = "connector/tcp"
REFERENCE = "harness.transfer.reference"

tcp_wrong_input = partial(wrong_input, engine=TCP)


@fault(
    "connector/tcp-canary",
    seam=f"{REFERENCE}.tcp_store:Store._copy",
    role=Role.CANARY,
    claims=[
        "connector.carry.bits",
        "connector.hold.many_reads",
        "connector.keys.many",
        "connector.endpoint.named",
        "connector.endpoint.next_works",
    ],
    engine=TCP,
)
def tcp_canary(original: Any, store: Any, view: memoryview) -> memoryview:
    """One bit of every payload is flipped as it is stored, before its checksum is taken."""
    held = bytearray(original(store, view))
    held[-1] ^= 1
    return memoryview(held)


@tcp_wrong_input("connector/tcp-endpoint-ignored", "tcp:TcpConnector._sender", "connector.endpoint.named")
def endpoint_ignored(original: Any, connector: Any, handle: Any) -> Any:
    """The first endpoint that was ever named is asked for ever."""
    first = vars(connector).setdefault("first", original(connector, handle))
    return first if handle is not None else original(connector, None)


@tcp_wrong_input("connector/tcp-sender-not-told", "tcp:TcpConnector._tell", "connector.endpoint.told")
def sender_not_told(original: Any, connector: Any, op: Op, slot: Any, sender: Any, *reader: Any) -> None:
    """What should reach another sender is done at home."""
    original(connector, op, slot, None, *reader)


@tcp_wrong_input("connector/tcp-unreachable-is-empty", "tcp_client:Peers.ask", "connector.endpoint.refused", "connector.endpoint.closed")
def unreachable_is_empty(original: Any, peers: Any, endpoint: Any, op: Op, slot: Any, *reader: Any) -> Frame:
    """A sender that cannot be reached reads as one that has published nothing."""
    try:
        return original(peers, endpoint, op, slot, *reader)
    except Unreachable:
        return Frame(op, 0, Status.ABSENT, slot)


@tcp_wrong_input("connector/tcp-port-kept", "tcp_server:Listener.close", "connector.endpoint.closed")
def port_kept(original: Any, listener: Any) -> None:
    """A closed connector goes on listening, and says that it holds nothing."""


@tcp_wrong_input("connector/tcp-deadline-a-read", "tcp_channel:Deadline.left", "connector.endpoint.dripping")
def deadline_a_read(original: Any, deadline: Any) -> float:
    """The deadline is one of each read, not of the exchange."""
    return deadline.seconds


@tcp_wrong_input("connector/tcp-deadline-forgotten", "tcp_channel:Deadline.left", "connector.endpoint.silent")
def deadline_forgotten(original: Any, deadline: Any) -> float:
    """A read waits for as long as it takes."""
    return STOP_LIMIT


@tcp_wrong_input("connector/tcp-lost-is-empty", "tcp_client:Peers.ask", "connector.endpoint.cut", "connector.endpoint.stranger")
def lost_is_empty(original: Any, peers: Any, endpoint: Any, op: Op, slot: Any, *reader: Any) -> Frame:
    """Any trouble with a sender reads as if it had published nothing."""
    try:
        return original(peers, endpoint, op, slot, *reader)
    except TransportError:
        return Frame(op, 0, Status.ABSENT, slot)


@tcp_wrong_input("connector/tcp-part-delivered", "tcp_channel:Channel._filled", "connector.endpoint.cut")
def part_delivered(original: Any, channel: Any, buffer: Any, what: str, deadline: Any) -> Any:
    """What came of a payload before the connection ended is taken for all of it."""
    try:
        return original(channel, buffer, what, deadline)
    except TransportError:
        if "payload" in what:
            channel._checked = lambda frame, _: frame
            return buffer
        raise


@tcp_wrong_input("connector/tcp-checksum-unread", "tcp_channel:Channel._checked", "connector.endpoint.flipped")
def checksum_unread(original: Any, channel: Any, frame: Frame, what: str) -> Frame:
    """The checksum is carried, and nobody compares it."""
    return frame


@tcp_wrong_input("connector/tcp-seal-unread", "tcp_frames:check_seal", "connector.endpoint.flipped")
def seal_unread(original: Any, raw: Any, seal: int, what: str) -> None:
    """A header is believed as it comes: a flipped bit turns a reply into another one."""


@tcp_wrong_input("connector/tcp-limit-unread", "tcp_channel:decode_head", "connector.endpoint.oversize")
def limit_unread(original: Any, raw: Any, what: str, limit: int) -> Any:
    """A payload may be of any size that its sender announces."""
    return original(raw, what, 1 << 62)


@tcp_wrong_input("connector/tcp-error-latches", "tcp_client:Peers.ask", "connector.endpoint.next_works")
def error_latches(original: Any, peers: Any, endpoint: Any, op: Op, slot: Any, *reader: Any) -> Frame:
    """After one failure nobody is asked any more."""
    if vars(peers).get("failed"):
        return Frame(op, 0, Status.ABSENT, slot)
    peers.failed = True
    reply = original(peers, endpoint, op, slot, *reader)
    peers.failed = False
    return reply
