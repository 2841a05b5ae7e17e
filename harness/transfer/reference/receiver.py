"""Fetching one payload: wait for the sender, copy, check, deliver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from harness.core.clock import TICK, Clock, Predicate
from harness.transfer.protocol import Buffer, Delivery, KVPayload, Outcome
from harness.transfer.reference.codec import PayloadCodec
from harness.transfer.reference.devices import DeviceCopy
from harness.transfer.reference.lab import ReferenceLab

FIRST_PAUSE, LONGEST_PAUSE = TICK, 16 * TICK
"""Seconds between two looks at the connector; they double from the first to the longest."""

Look = Callable[[], tuple[Buffer, int] | None]


class Receiver:
    """Used by one thread at a time."""

    def __init__(self, codec: PayloadCodec, clock: Clock, lab: ReferenceLab | None) -> None:
        self._codec, self._clock, self._lab = codec, clock, lab
        self._device_copy = DeviceCopy()

    def fetch(
        self, request_id: str, look: Look, timeout: float, device: torch.device | None = None, unwanted: Predicate = lambda: False
    ) -> Delivery:
        """`look` until there is a payload, `timeout` seconds have passed, or the payload is `unwanted`. Never raises.

        HIT with the payload on `device` (on the host for None); MISS if none came; FAILED, with the reason, for anything that raised.
        """
        try:
            found = self._await(look, timeout, unwanted)
            if found is None:
                return self._miss(request_id)
            data, size = found
            payload, metadata = self._load(request_id, data, device)
        except Exception as error:  # noqa: BLE001 (on a worker nobody else would hear of it)
            return self._failure(request_id, error)
        return self._hit(payload, size, metadata)

    def _await(self, look: Look, timeout: float, unwanted: Predicate) -> tuple[Buffer, int] | None:
        deadline, pause = self._clock.now() + timeout, FIRST_PAUSE
        while (found := look()) is None:
            left = deadline - self._clock.now()
            if left <= 0 or self._clock.wait(unwanted, min(pause, left)):
                return None
            pause = min(2 * pause, LONGEST_PAUSE)
        return found

    def _load(self, request_id: str, data: Buffer, device: torch.device | None) -> tuple[KVPayload, Mapping[str, Any]]:
        if self._lab is not None:
            self._lab.enter("copy")
        payload, metadata = self._codec.decode(request_id, data)
        return self._device_copy.to(payload, device), metadata

    def _miss(self, request_id: str) -> Delivery:
        return Delivery(Outcome.MISS)

    def _failure(self, request_id: str, error: Exception) -> Delivery:
        return Delivery(Outcome.FAILED, reason=f"{type(error).__name__}: {error}")

    def _hit(self, payload: KVPayload, size: int, metadata: Mapping[str, Any]) -> Delivery:
        return Delivery(Outcome.HIT, payload, size, self._valid_tokens(payload, metadata), metadata)

    def _valid_tokens(self, payload: KVPayload, metadata: Mapping[str, Any]) -> int:
        """Rows that hold KV; fewer than the metadata's seq_len where the sender's blocks held fewer."""
        return min(len(payload.keys[0]), metadata["seq_len"])
