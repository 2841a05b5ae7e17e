"""An observer outside the engine: a connector around a connector, which sees every call and can hold, fail or damage one.

What it reports does not pass through the engine under test, so an engine that lies about itself is found out here.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer, Connector

OPS = ("put", "get", "discard")
DAMAGE = ("truncate", "flip")
"""`truncate` drops the second half of a payload; `flip` changes one bit in its middle and leaves its length."""

HOLD_LIMIT = 20.0
"""Seconds of wall time that a held call, or a wait for one, lasts before it raises TimeoutError."""


class ConnectorFault(RuntimeError):
    """Raised inside an engine's call of the connector, because a check asked for it."""


@dataclass(frozen=True)
class Call:
    """One call as it came in. `size` is the bytes put or got, 0 for a get that found nothing and for a call that failed or is held."""

    op: str
    from_stage: str
    to_stage: str
    key: str
    handle: Any = None
    size: int = 0


class WitnessConnector:
    """Passes every call on to `inner` and records it. Thread-safe.

    Under a VirtualClock a thread held here counts as running, as a real one would: virtual time stands still until it is released.
    """

    def __init__(self, inner: Connector, limit: float = HOLD_LIMIT) -> None:
        self._inner, self._limit = inner, limit
        self._changed = threading.Condition()
        self._calls: list[Call] = []
        self._closed_gates: set[str] = set()
        self._waiting: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._damages: list[str] = []
        self._published: dict[tuple[str, str, str], None] = {}

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer) -> tuple[bool, int, Any]:
        number = self._arrive(Call("put", from_stage, to_stage, key))
        with self._changed:
            # Before the call: a put that fails half-way may still have left something.
            self._published[from_stage, to_stage, key] = None
        ok, size, handle = self._inner.put(from_stage, to_stage, key, data)
        self._settle(number, size)
        return ok, size, handle

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[Buffer, int] | None:
        number = self._arrive(Call("get", from_stage, to_stage, key, handle))
        found = self._inner.get(from_stage, to_stage, key, handle)
        if found is None:
            return None
        found = self._damaged(*found)
        self._settle(number, found[1])
        return found

    def discard(self, from_stage: str, to_stage: str, key: str) -> None:
        self._arrive(Call("discard", from_stage, to_stage, key))
        self._inner.discard(from_stage, to_stage, key)
        with self._changed:
            self._published.pop((from_stage, to_stage, key), None)

    def usage(self) -> Mapping[str, int]:
        return self._inner.usage()

    def close(self) -> None:
        """Close `inner`, and let go of every held call."""
        for op in OPS:
            self.release(op)
        self._inner.close()

    def calls(self, op: str | None = None, key_contains: str | None = None) -> list[Call]:
        """The calls so far, in the order in which they came, held ones included; only those of `op` and with the text in their key."""
        with self._changed:
            return [c for c in self._calls if op in (None, c.op) and (key_contains is None or key_contains in c.key)]

    def hold(self, op: str) -> None:
        """From now on a call of `op` is recorded and then waits for `release`, HOLD_LIMIT seconds at most."""
        _known("operation", op, OPS)
        with self._changed:
            self._closed_gates.add(op)

    def release(self, op: str) -> None:
        """Let the held calls of `op` go on, and later ones pass."""
        _known("operation", op, OPS)
        with self._changed:
            self._closed_gates.discard(op)
            self._changed.notify_all()

    def held(self, op: str) -> int:
        """How many calls of `op` wait now."""
        _known("operation", op, OPS)
        with self._changed:
            return self._waiting[op]

    def wait_held(self, op: str, n: int = 1) -> None:
        """Return once `n` calls of `op` wait. TimeoutError if they do not within the limit."""
        _known("operation", op, OPS)
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting[op] >= n, self._limit):
                raise TimeoutError(f"{self._waiting[op]} calls of {op} are held after {self._limit:g} s, expected {n}")

    def fail_next(self, op: str) -> None:
        """The next call of `op` to pass raises ConnectorFault and does not reach `inner`. Called twice, it fails the next two."""
        _known("operation", op, OPS)
        with self._changed:
            self._failures[op] += 1

    def damage_next(self, op: str, how: str) -> None:
        """The next `get` that finds a payload is given a damaged copy (see DAMAGE); what `inner` holds is untouched."""
        _known("operation", op, ("get",))
        _known("damage", how, DAMAGE)
        with self._changed:
            self._damages.append(how)

    def drain(self) -> None:
        """Discard, unrecorded, whatever was put and not discarded since: what a test leaves behind on purpose."""
        with self._changed:
            left, self._published = list(self._published), {}
        for slot in left:
            self._inner.discard(*slot)

    def _arrive(self, call: Call) -> int:
        """Record the call, hold it at a closed gate, fail it if asked to. Returns its number in the record."""
        with self._changed:
            self._calls.append(call)
            number = len(self._calls) - 1
            self._pass_gate(call)
            if self._failures[call.op] > 0:
                self._failures[call.op] -= 1
                raise ConnectorFault(f"{call.op} of {call.key!r} failed, as the witness was told")
        return number

    def _pass_gate(self, call: Call) -> None:
        if call.op not in self._closed_gates:
            return
        self._waiting[call.op] += 1
        self._changed.notify_all()
        try:
            if not self._changed.wait_for(lambda: call.op not in self._closed_gates, self._limit):
                raise TimeoutError(f"{call.op} of {call.key!r} was held for {self._limit:g} s and never released")
        finally:
            self._waiting[call.op] -= 1

    def _settle(self, number: int, size: int) -> None:
        with self._changed:
            self._calls[number] = replace(self._calls[number], size=size)

    def _damaged(self, data: Buffer, size: int) -> tuple[Buffer, int]:
        with self._changed:
            how = self._damages.pop(0) if self._damages else None
        if how is None:
            return data, size
        spoiled = bytearray(byte_view(data))
        if how == "truncate":
            del spoiled[len(spoiled) // 2 :]
        else:
            spoiled[len(spoiled) // 2] ^= 1
        # An engine that was given a tensor is given a tensor again, on the same device.
        is_tensor = isinstance(data, torch.Tensor)
        return (torch.frombuffer(spoiled, dtype=torch.uint8).to(data.device) if is_tensor else bytes(spoiled)), len(spoiled)


def _known(what: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise ValueError(f"unknown {what} {name!r}; there are {', '.join(names)}")
