"""Runs shards on a Ray cluster: hands them out, follows them, and runs again those that died.

A shard dies with its node, with its worker, or where a signal ended its process (as when memory ran out): it is run again, as a new
attempt. One whose tests failed, which ran into its time limit, or which a node refused is not. Ray's own retries are off: it would not tell
of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray import exceptions

from ci import ray_cluster, ray_task
from ci.ray_job import BROKEN, INTERRUPTED, Job, Rules

DEATHS = (
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.RayActorError,
    exceptions.ObjectLostError,  # of which OwnerDiedError is one
    exceptions.LocalRayletDiedError,
    exceptions.OutOfMemoryError,
    exceptions.RaySystemError,
)
"""What Ray raises where the machine, not the shard, gave way."""

CANCELLED_WITHIN = 30.0
"""Seconds that a cancelled shard has to end its process; its worker is ended then."""


@dataclass
class _Attempt:
    job: Job
    number: int
    files: Path
    """Without suffix."""
    started: bool = False
    done: int = 0
    rest: bytes = b""
    outcome: str = ""
    status: int = BROKEN


@dataclass
class Shards:
    """A run of shards. `folder` gets the files of every attempt, in a folder of its own; `say` a line for each thing that happens."""

    jobs: Sequence[Job]
    rules: Rules
    folder: Path
    say: Callable[[str], None]
    statuses: dict[str, int] = field(default_factory=dict)
    """Shard to its exit status, of those that are done with."""
    _running: dict[Any, _Attempt] = field(default_factory=dict)
    _lacking_since: float | None = None

    def run(self) -> None:
        """Run all; returns when each is done with. A KeyboardInterrupt ends those that run, and passes."""
        ray.cloudpickle.register_pickle_by_value(ray_task)
        try:
            for job in self.jobs:
                self._submit(job, 1)
            while self._running:
                ready, _ = ray.wait(list(self._running), num_returns=1, timeout=1.0)
                for stream in ready:
                    self._take(stream)
                self._give_up_on_the_impossible()
        except BaseException:
            self._cancel()
            raise

    def _submit(self, job: Job, number: int) -> None:
        files = self.folder / f"attempt-{number}" / job.name
        files.parent.mkdir(parents=True, exist_ok=True)
        order = {**self.rules.order, "name": job.name, "environment": job.environment, "command": list(job.command)}
        order["seconds"] = self.rules.seconds
        options = {**ray_cluster.options_of(job.resources), "max_retries": 0, "num_returns": "streaming", "name": job.name}
        stream = ray.remote(ray_task.attempt).options(**options).remote(order)
        self._running[stream] = _Attempt(job, number, files)

    def _take(self, stream: Any) -> None:
        """The next message of an attempt, or its end."""
        attempt = self._running[stream]
        try:
            self._hear(attempt, *ray.get(next(stream)))
        except StopIteration:
            del self._running[stream]
            self._conclude(attempt)
        except DEATHS as death:
            del self._running[stream]
            self._died(attempt, f"{type(death).__name__}: {str(death).partition('. ')[0]}")
        except exceptions.RayError as broken:
            del self._running[stream]
            self._end(attempt, BROKEN, f"broke on its node: {broken}")

    def _hear(self, attempt: _Attempt, kind: str, told: Any) -> None:
        match kind:
            case "started":
                attempt.started = True
                host, resources = told
                self._say(attempt, f"started on {host} with {ray_cluster.written(resources)}, {len(attempt.job.tests)} tests")
            case "log":
                self._append(attempt, ".jsonl", told)
                *lines, attempt.rest = (attempt.rest + told).split(b"\n")
                done = sum(b'"when": "teardown"' in line for line in lines)
                attempt.done += done
                if done:
                    self._say(attempt, f"{attempt.done} of {len(attempt.job.tests)} tests")
            case "junit":
                self._append(attempt, ".xml", told)
            case "refused":
                attempt.outcome = f"refused: {told}"
            case "late":
                attempt.outcome = f"ended at its limit of {told:g} s (--seconds)"
            case "ended":
                attempt.status, output = (BROKEN, told[1]) if attempt.outcome else told
                if attempt.status not in (0, 5) and output.strip():
                    self.say(_printable(output))

    def _append(self, attempt: _Attempt, suffix: str, data: bytes) -> None:
        with attempt.files.with_name(attempt.files.name + suffix).open("ab") as file:
            file.write(data)

    def _conclude(self, attempt: _Attempt) -> None:
        if attempt.outcome:
            self._end(attempt, BROKEN, attempt.outcome)
        elif attempt.status < 0 or attempt.status > 128:
            self._died(attempt, f"its process was ended by a signal (exit status {attempt.status})")
        else:
            self._end(attempt, attempt.status, f"exit status {attempt.status}, {attempt.done} of {len(attempt.job.tests)} tests")

    def _died(self, attempt: _Attempt, why: str) -> None:
        if attempt.number <= self.rules.retries:
            self._say(attempt, f"died after {attempt.done} tests, is run again: {why}")
            self._submit(attempt.job, attempt.number + 1)
        else:
            self._end(attempt, BROKEN, f"died after {attempt.done} tests, for the last time (--retries {self.rules.retries}): {why}")

    def _end(self, attempt: _Attempt, status: int, how: str) -> None:
        self.statuses[attempt.job.name] = status
        self._say(attempt, how)

    def _say(self, attempt: _Attempt, what: str) -> None:
        again = f" (attempt {attempt.number})" if attempt.number > 1 else ""
        self.say(f"{attempt.job.name}{again}: {what}")

    def _give_up_on_the_impossible(self) -> None:
        """End what waits, where no node has been able to run it for as long as the rules' patience."""
        waiting = {stream: attempt for stream, attempt in self._running.items() if not attempt.started}
        nodes = ray.nodes() if waiting else []
        lacking = {s: a for s, a in waiting.items() if not ray_cluster.satisfiable(a.job.resources, nodes)}
        if not lacking:
            self._lacking_since = None
            return
        self._lacking_since = self._lacking_since or time.monotonic()
        if time.monotonic() - self._lacking_since < self.rules.patience:
            return
        for stream, attempt in lacking.items():
            del self._running[stream]
            ray.cancel(stream, force=True)
            asked, have = ray_cluster.written(attempt.job.resources), ray_cluster.inventory(nodes)
            waited = f"waited {self.rules.patience:g} s (--patience)"
            self._end(attempt, BROKEN, f"no node can run it: it asks for {asked}; the cluster has {have}; {waited}")

    def _cancel(self) -> None:
        """End all that run, and wait for it."""
        for stream in self._running:
            ray.cancel(stream)
        end = time.monotonic() + CANCELLED_WITHIN
        while self._running and time.monotonic() < end:
            ready, _ = ray.wait(list(self._running), num_returns=1, timeout=1.0)
            for stream in ready:
                attempt = self._running[stream]
                try:
                    self._hear(attempt, *ray.get(next(stream)))
                except (StopIteration, exceptions.RayError):
                    del self._running[stream]
                    self._end(attempt, INTERRUPTED, f"cancelled after {attempt.done} tests")
        for stream in self._running:
            ray.cancel(stream, force=True)


def _printable(output: bytes) -> str:
    """The output without what would steer a terminal."""
    return "".join(c for c in output.decode(errors="replace") if c.isprintable() or c in "\n\t")
