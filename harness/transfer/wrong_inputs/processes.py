"""Wrong answers about two processes: of the connector in shared memory, and of the manager over it."""

from __future__ import annotations

import fcntl
import os
from multiprocessing import parent_process
from typing import Any

import torch

from harness.transfer.processes.leftovers import mark_of
from harness.transfer.protocol import Delivery, KVPayload, Outcome
from harness.transfer.reference.shm_slots import link_name
from harness.transfer.reference.shm_transport import PEER, try_lock
from harness.transfer.wrong_inputs.register import wrong_input

SHM = "connector/shm"


@wrong_input(
    "connector/last-byte-lost",
    "shm:ShmConnector.get",
    "connector.processes.bits",
    "connector.processes.sender_killed_after_put",
    engine=SHM,
)
def last_byte_lost(original: Any, connector: Any, *where: Any) -> Any:
    """A payload comes without its last byte."""
    found = original(connector, *where)
    return None if found is None else (found[0][:-1], found[1] - 1)


@wrong_input("connector/first-key", "shm:ShmConnector.get", "connector.processes.many_keys", engine=SHM)
def first_key(original: Any, connector: Any, from_stage: str, to_stage: str, key: str, handle: Any = None) -> Any:
    """Every numbered key leads to the first payload."""
    return original(connector, from_stage, to_stage, f"key0-{key[-1]}", handle)


@wrong_input(
    "connector/never-freed",
    "shm_slots:Slots.free_if",
    "connector.processes.freed",
    "connector.processes.receiver_killed",
    engine=SHM,
)
def never_freed(original: Any, slots: Any, slot: Any, frees: Any) -> None:
    """What a peer is done with, or discards, stays."""


@wrong_input(
    "connector/dead-peer-blocks",
    "shm_transport:Transport._register",
    "connector.processes.sender_restarts",
    "connector.processes.receiver_killed",
    engine=SHM,
    raises=[ConnectionError],
)
def dead_peer_blocks(original: Any, transport: Any) -> Any:
    """Nobody can join where a peer was killed."""
    for home in transport.path.glob(f"{PEER}*"):
        fd = os.open(home, os.O_RDONLY)
        is_dead = try_lock(fd, fcntl.LOCK_EX)
        os.close(fd)
        if is_dead:
            raise ConnectionError(f"{home} belongs to a peer that does not answer")
    return original(transport)


@wrong_input(
    "connector/payloads-outlive-all",
    "shm_slots:Slots._link",
    "connector.processes.both_restarted",
    "connector.processes.nothing_left",
    engine=SHM,
)
def payloads_outlive_all(original: Any, slots: Any, slot: bytes) -> Any:
    """Payloads are found beside the transports, where they outlive whoever put them."""
    run = parent_process()
    return slots._transport.path.with_name(f"{mark_of(run.pid if run else os.getpid())}{link_name(slot)}")


@wrong_input("connector/never-swept", "shm_transport:remove_abandoned", "connector.processes.nothing_left", engine=SHM)
def never_swept(original: Any, path: Any) -> bool:
    """What killed processes left is never removed."""
    return False


@wrong_input("transfer/crossed-last-row", "codec:PayloadCodec._payload", "transfer.processes.bits")
def crossed_last_row(original: Any, codec: Any, *arguments: Any) -> KVPayload:
    """The last row of the last layer comes as zeros."""
    payload = original(codec, *arguments)
    last = payload.values[-1].clone()
    last[-1] = torch.zeros_like(last[-1])
    return KVPayload(payload.keys, (*payload.values[:-1], last))


@wrong_input("transfer/peer-never-freed", "shm_slots:Slots.free_if", "transfer.processes.freed")
def peer_never_freed(original: Any, slots: Any, slot: Any, frees: Any) -> None:
    """What the other process is done with stays."""


@wrong_input(
    "transfer/gone-is-hit",
    "receiver:Receiver._miss",
    "transfer.processes.sender_killed_inside_send",
    "transfer.processes.sender_killed_between",
)
def gone_is_hit(original: Any, receiver: Any, request_id: str) -> Delivery:
    """A sender that does not answer is taken for one that sent nothing new: the request runs on what its pages held."""
    rows = torch.zeros(1, 1, 1)
    return Delivery(Outcome.HIT, KVPayload((rows,), (rows,)), rows.nbytes, 1, {"seq_len": 1, "send": ""})


@wrong_input(
    "transfer/dead-peer-blocks",
    "shm_transport:Transport._register",
    "transfer.processes.sender_restarts",
    "transfer.processes.receiver_killed",
    raises=[ConnectionError],
)
def transfer_dead_peer_blocks(original: Any, transport: Any) -> Any:
    """Nobody takes the place of a side that was killed."""
    return dead_peer_blocks(original, transport)


@wrong_input(
    "transfer/caches-outlive-all",
    "shm_slots:Slots._link",
    "transfer.processes.both_restarted",
    "transfer.processes.nothing_left",
)
def caches_outlive_all(original: Any, slots: Any, slot: bytes) -> Any:
    """Caches are found beside the transports, where they outlive whoever sent them."""
    return payloads_outlive_all(original, slots, slot)
