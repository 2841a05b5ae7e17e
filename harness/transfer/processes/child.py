"""What runs in a child: it does what it is asked over its line, one request after the other, until the line ends."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import select
import signal
import socket
import threading
import traceback
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch

from harness.core import faults
from harness.core.blueprint import Blueprint
from harness.core.clock import SystemClock
from harness.transfer.processes.freight import packed, unpacked
from harness.transfer.processes.line import Line, LineBroken
from harness.transfer.protocol import Connector, Delivery
from harness.transfer.witness import WitnessConnector

NCCL_ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",  # NVLink multicast needs rights that a container seldom has, and no claim is about it
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # a lost rank is an error of the call, not the end of the process
}
"""Of ranks over NCCL, before they join."""
WORKSHOP = 0
"""The number of the `Workshop` among the objects that a child keeps."""


@dataclass(frozen=True)
class Kept:
    """An object that stays in the child, by its number: a result, and then an argument of later requests, also inside a sequence."""

    number: int


@dataclass(frozen=True)
class Request:
    """Call the method `name` of object `target`, or read that attribute. `keep`: the result stays, and is given a number."""

    target: int
    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    call: bool = True
    keep: bool = False


@dataclass(frozen=True)
class Method:
    """In place of a value: the attribute that was read is a method."""


@dataclass(frozen=True)
class Answer:
    """The end of a request: a value; or an exception's type, text and traceback. `mistakes`: see `harness.core.faults.MISTAKES`."""

    value: Any = None
    error: tuple[str, str, str] | None = None
    mistakes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reached:
    """Sent when the child stands inside a held operation, as it then does until it is killed."""

    op: str


class JoinedWitness(WitnessConnector):
    """A witness of a connector that really leads to another process: handles go on as they came."""

    def _resolved(self, handle: Any) -> Any:
        return handle


class Hold:
    """A lab in which one operation, once entered, is told to the parent and never ends. Until `op` is set nothing is held."""

    free_memory = None
    """Devices have what they have."""

    def __init__(self, line: Line, lock: threading.Lock) -> None:
        self.op: str | None = None
        self._line, self._lock = line, lock

    def enter(self, op: str) -> None:
        if op == self.op:
            with self._lock:
                self._line.send(Reached(op))
            threading.Event().wait()

    def takes(self, op: str) -> bool:
        """Nothing is made to fail."""
        return False


class Workshop:
    """What a child can do by itself."""

    def __init__(self, line: Line, lock: threading.Lock) -> None:
        self._hold = Hold(line, lock)
        self._cleanup = ExitStack()

    def build(self, blueprint: Blueprint) -> Any:
        """The engine, with its fault planted first, on wall time. One of ours is given the lab that `hold` acts on."""
        self._cleanup.enter_context(blueprint.planted())
        engine = blueprint.build(SystemClock())
        self._cleanup.callback(engine.close)
        if blueprint.spec().reference:
            engine.lab = self._hold
        return engine

    def hold(self, op: str) -> None:
        """From now on this process stops for ever inside `op`, an operation of its engine's lab."""
        self._hold.op = op

    def witness(self, connector: Connector) -> JoinedWitness:
        return JoinedWitness(connector)

    def join(self, rank: int, size: int, store: str, timeout: float, backend: str = "gloo") -> None:
        """Become a rank of a torch.distributed world; `store` is a file that all ranks share. Over NCCL, on card `rank` of those here."""
        how: dict[str, Any] = {}
        if backend == "nccl":
            os.environ |= NCCL_ENVIRONMENT
            how["device_id"] = torch.device("cuda", rank)
            torch.cuda.set_device(rank)
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        kept = torch.distributed.FileStore(store, size)
        torch.distributed.init_process_group(backend, store=kept, rank=rank, world_size=size, timeout=timedelta(seconds=timeout), **how)
        self._cleanup.callback(self._leave)

    def lies_on(self, delivery: Delivery) -> set[str]:
        """The devices of the payload's tensors."""
        payload = delivery.payload
        return {str(tensor.device) for tensor in (*payload.keys, *payload.values)} if payload else set()

    def _leave(self) -> None:
        """Of the world. What a rank that died left on the card would be waited for; aborting ends it."""
        if torch.distributed.get_backend() == "nccl":
            torch.distributed.group.WORLD.abort()
        torch.distributed.destroy_process_group()

    def close(self) -> None:
        """Close what was built here."""
        self._cleanup.close()


def main(end: socket.socket, stacks: socket.socket, lifeline: socket.socket) -> None:
    """The child's life. `stacks` is where every thread's stack goes on SIGUSR1, which then ends the process; `lifeline` says nothing."""
    _die_with(lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, file=stacks.fileno(), all_threads=True, chain=True)
    torch.set_num_threads(1)
    line, lock = Line(end), threading.Lock()
    kept: list[Any] = [Workshop(line, lock)]
    while True:
        try:
            request = line.receive()
        except LineBroken:
            break
        answer = _answered(kept, request)
        with lock:
            _tell(line, answer)
    kept[WORKSHOP].close()


def _tell(line: Line, answer: Answer) -> None:
    try:
        line.send(answer)
    except LineBroken:
        return
    except Exception as unfit:  # noqa: BLE001 (what cannot be pickled is the request's error, not the child's end)
        line.send(Answer(error=(type(unfit).__name__, f"the result cannot cross to another process: {unfit}", "")))


def _answered(kept: list[Any], request: Request) -> Answer:
    value, error = None, None
    try:
        value = _done(kept, request)
    except (Exception, SystemExit) as raised:  # noqa: BLE001 (whatever an engine raises is told)
        error = (type(raised).__name__, str(raised), traceback.format_exc())
    mistakes = tuple(faults.MISTAKES)
    faults.MISTAKES.clear()
    return Answer(value, error, mistakes)


def _done(kept: list[Any], request: Request) -> Any:
    def here(value: Any) -> Any:
        if isinstance(value, Kept):
            return kept[value.number]
        return type(value)(map(here, value)) if type(value) in (tuple, list) else unpacked(value)

    attribute = getattr(kept[request.target], request.name)
    if not request.call:
        return Method() if callable(attribute) else packed(attribute)
    result = attribute(*map(here, request.args), **{name: here(value) for name, value in request.kwargs.items()})
    if request.keep:
        kept.append(result)
        return Kept(len(kept) - 1)
    return packed(result)


def _die_with(lifeline: socket.socket) -> None:
    """Have the kernel send SIGKILL to this process when the other end is closed, as it is when the run dies.

    A child that hangs, or is stopped, would not notice by itself; and its parent by birth, the server that forks, outlives the run for as
    long as it has children.
    """
    if not hasattr(fcntl, "F_SETSIG"):  # on Linux only; elsewhere a child ends with its line
        return
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it was closed before
        os._exit(1)
