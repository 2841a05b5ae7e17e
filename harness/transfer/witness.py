"""An observer outside the engine: a connector around a connector, which sees every call and can hold, fail or damage one.

What it reports does not pass through the engine under test, so an engine that lies about itself is found out here.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.core.verdict import ClaimBroken
from harness.transfer.buffers import byte_view
from harness.transfer.protocol import Buffer, Connector, Endpoint

OPS = ("put", "get", "done", "discard")
DAMAGE = ("truncate", "flip", "exchange")
"""`truncate` drops the second half of a payload; `flip` changes one bit in its middle and leaves its length; `exchange` gives the payload
that was put last, whatever key is asked for."""

HOLD_LIMIT = 20.0
"""Seconds of wall time that a held call, or a wait for one, lasts before it raises TimeoutError."""


class ConnectorFault(RuntimeError):
    """Raised inside an engine's call of the connector, because a check asked for it."""


@dataclass(frozen=True)
class Call:
    """One call as it came in. `size` is the bytes put or got, 0 for a get that found nothing and for a call that failed or is held.

    `device`: where a put's data lay.
    """

    op: str
    from_stage: str
    to_stage: str
    key: str
    handle: Any = None
    size: int = 0
    device: str = "cpu"


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
        self._holder: int | None = None
        self._stuck: str | None = None
        self._failing: dict[str, type[Exception]] = {}
        self._damage: str | None = None
        self._refusing = False
        self._when_empty: Callable[[], None] | None = None
        self._published: dict[tuple[str, str, str], None] = {}

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def endpoint(self) -> Endpoint | None:
        return self._inner.endpoint

    @property
    def carries_device_memory(self) -> bool:
        return self._inner.carries_device_memory

    def put(self, from_stage: str, to_stage: str, key: str, data: Buffer, readers: int = 1) -> tuple[bool, int, Any]:
        device = data.device.type if isinstance(data, torch.Tensor) else "cpu"
        number = self._arrive(Call("put", from_stage, to_stage, key, device=device))
        with self._changed:
            # Before the call: a put that fails half-way may still have left something.
            if self._refusing:
                return False, 0, None
            self._published.pop((from_stage, to_stage, key), None)
            self._published[from_stage, to_stage, key] = None
        ok, size, handle = self._inner.put(from_stage, to_stage, key, data, readers)
        self._settle(number, size)
        return ok, size, handle

    def get(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> tuple[Buffer, int] | None:
        number = self._arrive(Call("get", from_stage, to_stage, key, handle))
        slot = self._exchanged((from_stage, to_stage, key))
        found = self._inner.get(*slot, self._resolved(handle))
        if found is None:
            with self._changed:
                action, self._when_empty = self._when_empty, None
            if action is not None:
                action()
            return None
        found = self._damaged(*found)
        self._settle(number, found[1])
        return found

    def done(self, from_stage: str, to_stage: str, key: str, handle: Any = None, reader: str = "") -> None:
        self._arrive(Call("done", from_stage, to_stage, key, handle))
        self._inner.done(from_stage, to_stage, key, self._resolved(handle), reader)

    def discard(self, from_stage: str, to_stage: str, key: str, handle: Any = None) -> None:
        self._arrive(Call("discard", from_stage, to_stage, key, handle))
        self._inner.discard(from_stage, to_stage, key, self._resolved(handle))
        with self._changed:
            self._published.pop((from_stage, to_stage, key), None)

    def holds(self, from_stage: str, to_stage: str, key: str) -> bool:
        """Unrecorded: asking moves nothing."""
        return self._inner.holds(from_stage, to_stage, key)

    def usage(self) -> Mapping[str, int]:
        return self._inner.usage()

    def close(self) -> None:
        """Close `inner`, and let go of every held call."""
        self.let_go()
        self._inner.close()

    def let_go(self) -> None:
        """Release every held call."""
        for op in OPS:
            self.release(op)

    def calls(self, op: str | None = None, key_contains: str | None = None) -> list[Call]:
        """The calls so far, in the order in which they came, held ones included; only those of `op` and with the text in their key."""
        with self._changed:
            return [c for c in self._calls if op in (None, c.op) and (key_contains is None or key_contains in c.key)]

    def hold(self, op: str) -> None:
        """From now on a call of `op` is recorded and then waits for `release`, HOLD_LIMIT seconds at most.

        On the thread that asks for this nobody could release it: there it raises at once, and `wait_held` tells.
        """
        _known("operation", op, OPS)
        with self._changed:
            self._closed_gates.add(op)
            self._holder = threading.get_ident()

    def release(self, op: str) -> None:
        """Let the held calls of `op` go on, and later ones pass."""
        _known("operation", op, OPS)
        with self._changed:
            self._closed_gates.discard(op)
            self._changed.notify_all()

    def holds_calls(self) -> bool:
        """Whether calls of some operation are held, now or when they come."""
        with self._changed:
            return bool(self._closed_gates)

    def held(self, op: str) -> int:
        """How many calls of `op` wait now."""
        _known("operation", op, OPS)
        with self._changed:
            return self._waiting[op]

    def wait_held(self, op: str, n: int = 1) -> None:
        """Return once `n` calls of `op` wait. ClaimBroken if one came in the foreground, or not enough of them within the limit."""
        _known("operation", op, OPS)
        with self._changed:
            enough = self._changed.wait_for(lambda: self._stuck is not None or self._waiting[op] >= n, self._limit)
            if self._stuck is not None:
                raise ClaimBroken("CALL BLOCKS", got=f"{self._stuck} inside a call of the engine", expected="it is made in the background")
            if not enough:
                raise ClaimBroken(
                    "NO TRANSFER",
                    got=f"{self._waiting[op]} calls of {op} under way after {self._limit:g} s",
                    expected=f"{n} in the background",
                )

    def fail(self, op: str, error: type[Exception] = ConnectorFault) -> None:
        """From now on calls of `op` raise `error` and do not reach `inner`, until `mend`: an engine may try again, in vain."""
        _known("operation", op, OPS)
        with self._changed:
            self._failing[op] = error

    def refuse_puts(self) -> None:
        """From now on a put says that it did not succeed, and nothing reaches `inner`, until `mend`."""
        with self._changed:
            self._refusing = True

    def damage(self, how: str) -> None:
        """From now on each get is given a damaged copy of its payload (see DAMAGE), until `mend`; what `inner` holds is untouched."""
        _known("damage", how, DAMAGE)
        with self._changed:
            self._damage = how

    def mend(self) -> None:
        """End `fail`, `damage` and `refuse_puts`."""
        with self._changed:
            self._refusing = False
            self._failing.clear()
            self._damage = None

    def when_empty(self, action: Callable[[], None]) -> None:
        """The next get that finds nothing runs `action` before it says so: the sender comes just after the receiver looked."""
        with self._changed:
            self._when_empty = action

    def drain(self) -> None:
        """Discard, unrecorded, whatever was put and not discarded since: what a test leaves behind on purpose."""
        with self._changed:
            left, self._published = list(self._published), {}
        for slot in left:
            self._inner.discard(*slot)

    def _resolved(self, handle: Any) -> Any:
        """Every endpoint that a check makes up leads to the one sender there is, as a name service would have it."""
        return self._inner.endpoint if isinstance(handle, Endpoint) and self._inner.endpoint else handle

    def _arrive(self, call: Call) -> int:
        """Record the call, hold it at a closed gate, fail it if asked to. Returns its number in the record."""
        with self._changed:
            self._calls.append(call)
            number = len(self._calls) - 1
            self._pass_gate(call)
            error = self._failing.get(call.op)
            if error is not None:
                raise error(f"{call.op} of {call.key!r} failed, as the witness was told")
        return number

    def _pass_gate(self, call: Call) -> None:
        if call.op not in self._closed_gates:
            return
        if threading.get_ident() == self._holder:
            self._stuck = f"{call.op} of {call.key!r}"
            raise ConnectorFault(f"{self._stuck} is held, and came on the thread that would release it")
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

    def _exchanged(self, slot: tuple[str, str, str]) -> tuple[str, str, str]:
        with self._changed:
            return next(reversed(self._published), slot) if self._damage == "exchange" else slot

    def _damaged(self, data: Buffer, size: int) -> tuple[Buffer, int]:
        how = self._damage
        if how in (None, "exchange"):
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
