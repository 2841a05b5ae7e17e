"""The record of transfers: which use of a request id each is, and how it ended."""

from __future__ import annotations

import threading
from collections import OrderedDict

from harness.transfer.protocol import Completion, CompletionOutcome

REMEMBERED = 4096
"""Request ids whose uses are counted. The least recently started one is forgotten, so that ids which never return cost nothing."""


class Ledger:
    """Counts uses of request ids and keeps ended transfers until they are asked for. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: OrderedDict[str, int] = OrderedDict()
        self._ended: list[Completion] = []

    def begin(self, request_id: str) -> int:
        """The generation of a transfer that starts now: 0 for the first use of the id, then 1, and so on."""
        with self._lock:
            generation = self._uses.pop(request_id, 0)
            self._uses[request_id] = generation + 1
            if len(self._uses) > REMEMBERED:
                self._uses.popitem(last=False)
            return generation

    def end(self, request_id: str, generation: int, outcome: CompletionOutcome) -> None:
        """Report the end of a transfer; whoever began it does so once. No state is asked whether the request still lives."""
        with self._lock:
            self._ended.append(Completion(request_id, generation, outcome))

    def take(self) -> list[Completion]:
        """The ends reported since the last call, in order."""
        with self._lock:
            ended, self._ended = self._ended, []
            return ended
