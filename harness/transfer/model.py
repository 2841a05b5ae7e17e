"""What a receiver may answer: a model of a stage boundary in plain dictionaries, written from the protocol alone.

Where the protocol leaves an engine free (whether a prefetch has ended by now, whether one that was dropped took its payload with it), the
model keeps every world that can be the case; each answer rules some of them out. An answer that no world gives is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from harness.core.capabilities import Transfer
from harness.transfer.protocol import Completion, CompletionOutcome, Outcome
from harness.transfer.schedule import Abort, Advance, Consume, Fail, Failing, Hold, Receive, Release, Restart, Send, Side, Start, Step, Stop

ENDED_AS = {
    Outcome.HIT: CompletionOutcome.DONE,
    Outcome.MISS: CompletionOutcome.MISSED,
    Outcome.FAILED: CompletionOutcome.FAILED,
}
MOST_FAILURES = 2
"""Copies that are told to fail and have not yet. More would only multiply worlds."""


@dataclass(frozen=True)
class World:
    """One of the things that can be the case.

    `sent`: requests whose payload waits to be delivered. `ended`: what tracked prefetches have come to, for those that have ended.
    `astray`: prefetches that were dropped and may still be under way, by request, with whether they may take its payload.
    `failures`: copies that are still to fail.
    """

    sent: frozenset[str] = frozenset()
    ended: frozenset[tuple[str, Outcome]] = frozenset()
    astray: frozenset[tuple[str, bool]] = frozenset()
    failures: int = 0

    def end_of(self, request: str) -> Outcome | None:
        """What the request's tracked prefetch has come to."""
        return dict(self.ended).get(request)

    def forgets(self, request: str) -> World:
        """Without its prefetch."""
        return replace(self, ended=frozenset(pair for pair in self.ended if pair[0] != request))

    def ends(self, request: str, outcome: Outcome, failures: int = 0) -> World:
        """Its prefetch has ended, and `failures` copies failed on the way."""
        return replace(self, ended=self.ended | {(request, outcome)}, failures=self.failures - failures)

    def loses(self, request: str) -> World:
        """Without its payload."""
        return replace(self, sent=self.sent - {request})


@dataclass
class Began:
    """A transfer that the receiver began: which use of the id, when (seconds), and as what it may be reported once it is `over`."""

    generation: int
    at: float
    outcomes: set[CompletionOutcome]
    over: bool = False


Answer = tuple[World, Outcome | None]


class Model:
    """One boundary, from its deployment on. Every step goes `passes_over`, the engine's call, `take`, and `heard` if it was answered.

    `depth` is PREFETCH_DEPTH: the request that is started or consumed counts among them, so its prefetch and those of the `depth - 1`
    others that started last are kept, and the rest is dropped. `timeout` is the receive timeout in seconds.
    """

    def __init__(self, *, depth: int, timeout: float, offered: frozenset[Transfer]) -> None:
        self._depth, self._timeout, self._offered = depth, timeout, offered
        self.worlds: frozenset[World] = frozenset({World()})
        self.tracked: dict[str, Began] = {}
        """Prefetches that the receiver tracks, the one that started first at the front."""
        self.held = self._failing = self._stopped = False
        self._began: dict[str, list[Began]] = {}
        self._seen: dict[str, None] = {}
        self._answers: frozenset[Answer] = frozenset()

    def passes_over(self, step: Step) -> bool:
        """Whether the step asks for what this engine does not offer, or for what the protocol says nothing of: then it is left out."""
        if isinstance(step, Send):
            return any(step.request in world.sent for world in self.worlds)
        if isinstance(step, Receive):
            return step.request in self.tracked
        if isinstance(step, Abort):
            return Transfer.ABORT not in self._offered
        if isinstance(step, Fail) and step.what is Failing.COPY:
            return Transfer.LAB not in self._offered or any(world.failures >= MOST_FAILURES for world in self.worlds)
        return isinstance(step, Advance) and Transfer.LAB not in self._offered

    def take(self, step: Step, began: float, ended: float) -> frozenset[Outcome]:
        """The step was taken between these times (seconds). Which answers it may be given; none for a step that has no answer."""
        if isinstance(step, (Consume, Receive, Advance, Stop)) or step == Restart(Side.RECEIVER):
            self.held = False
        self._pass(ended)
        answers = _TAKES[type(step)](self, step, began)
        self._answers = frozenset(answers or ((world, None) for world in self.worlds))
        self.worlds = frozenset(world for world, _ in self._answers)
        return frozenset(outcome for _, outcome in self._answers if outcome is not None)

    def heard(self, outcome: Outcome) -> None:
        """The last step was answered so, which is one of the answers that it may have."""
        self.worlds = frozenset(world for world, answer in self._answers if answer in (outcome, None))

    def is_sent(self, request: str) -> bool:
        """Whether its payload certainly waits."""
        return all(request in world.sent for world in self.worlds)

    def is_gone(self, request: str) -> bool:
        """Whether no payload of it waits any more."""
        return not any(request in world.sent for world in self.worlds)

    def gone(self) -> list[str]:
        """Requests for which a payload was sent and none is left: nothing may be held for them, anywhere."""
        return [request for request in self._seen if self.is_gone(request)]

    @property
    def serial(self) -> bool:
        """Whether prefetches are fetched one after the other."""
        return self._depth == 1

    def failures(self) -> int:
        """Copies that may still be about to fail."""
        return max(world.failures for world in self.worlds)

    def objection(self, told: Iterable[Completion], now: float, *, all_over: bool = False) -> str | None:
        """What is wrong with the completions that this receiver told until `now`, all taken together; None if nothing.

        Those that were answered must be there; those that were dropped too once all background work is `all_over`.
        """
        self._pass(now)
        told = list(told)
        counts = Counter((c.request_id, c.generation) for c in told)
        for completion in told:
            uses = self._began.get(completion.request_id, [])
            name = f"{completion.request_id}, use {completion.generation}"
            if completion.generation >= len(uses):
                return f"{name}: {completion.outcome.value}, of a transfer that never began"
            if counts[completion.request_id, completion.generation] > 1:
                return f"{name}: told {counts[completion.request_id, completion.generation]} times"
            if not self._may_end(completion.request_id, uses[completion.generation], completion.outcome):
                return f"{name}: {completion.outcome.value}"
        owed = [(r, b) for r, uses in self._began.items() for b in uses if all_over or b.over]
        return next((f"{r}, use {b.generation}: nothing told" for r, b in owed if (r, b.generation) not in counts), None)

    def _may_end(self, request: str, transfer: Began, outcome: CompletionOutcome) -> bool:
        if self.tracked.get(request) is transfer:
            return any(ENDED_AS.get(world.end_of(request)) is outcome for world in self.worlds)
        return outcome in transfer.outcomes

    def _pass(self, now: float) -> None:
        """Add every world that background work can have made of these by now."""
        reached, fresh = set(self.worlds), list(self.worlds)
        while fresh:
            for world in self._successors(fresh.pop(), now):
                if world not in reached:
                    reached.add(world)
                    fresh.append(world)
        self.worlds = frozenset(reached)

    def _successors(self, world: World, now: float) -> Iterator[World]:
        if self.held:
            return
        for request, transfer in self.tracked.items():
            if world.end_of(request) is None:
                yield from (after for after, _ in self._fetches(world, request, world.ends))
                # In whole nanoseconds, as clocks keep them: the last bits of a difference of floats decide nothing.
                if request not in world.sent and round(1e9 * (now - transfer.at)) >= round(1e9 * self._timeout):
                    yield world.ends(request, Outcome.MISS)
        for request, takes in world.astray:
            if takes and request in world.sent and world.end_of(request) is not Outcome.HIT:
                yield world.loses(request)
            if world.failures:
                yield replace(world, failures=world.failures - 1)

    def _fetches(self, world: World, request: str, ends: Callable[[str, Outcome, int], World]) -> Iterator[Answer]:
        """A look at the connector: what it ends as, if it ends the fetch."""
        if self._failing:
            yield ends(request, Outcome.FAILED, 0), Outcome.FAILED
        elif request in world.sent and world.failures:
            yield ends(request, Outcome.FAILED, 1), Outcome.FAILED
        elif request in world.sent:
            yield ends(request, Outcome.HIT, 0), Outcome.HIT

    def _drop(self, request: str, *, takes: bool = True) -> None:
        """Its prefetch is tracked no more. What was fetched may be lost with it, or, while it is under way, until it ends."""
        transfer, worlds = self.tracked.pop(request), set()
        for world in self.worlds:
            end, left = world.end_of(request), world.forgets(request)
            transfer.outcomes.add(CompletionOutcome.ABORTED if end is None else ENDED_AS[end])
            worlds.add(replace(left, astray=left.astray | {(request, takes)}) if end is None else left)
            if end is Outcome.HIT:
                worlds.add(left.loses(request))
        self.worlds = frozenset(worlds)

    def _make_room(self, request: str) -> None:
        others = [other for other in self.tracked if other != request]
        for other in others[: max(0, len(others) - (self._depth - 1))]:
            self._drop(other)

    def _begin(self, request: str, now: float) -> Began:
        uses = self._began.setdefault(request, [])
        uses.append(Began(len(uses), now, set()))
        return uses[-1]

    def _send(self, step: Send, now: float) -> None:
        self._seen[step.request] = None
        self.worlds = frozenset(replace(world, sent=world.sent | {step.request}) for world in self.worlds)

    def _start(self, step: Start, now: float) -> None:
        self._make_room(step.request)
        if not self._stopped and step.request not in self.tracked:
            self.tracked[step.request] = self._begin(step.request, now)

    def _consume(self, step: Consume, now: float) -> Iterable[Answer]:
        self._make_room(step.request)
        # What was just dropped may be ahead of it in the queue.
        self._pass(now)
        transfer, self._failing = self.tracked.get(step.request), False
        if transfer is None:
            return [(world, Outcome.MISS) for world in self.worlds]
        answers = {answer for world in self.worlds for answer in self._taken(world, step.request)}
        del self.tracked[step.request]
        return self._concluded(transfer, answers)

    def _taken(self, world: World, request: str) -> Iterator[Answer]:
        """A tracked prefetch is waited for."""
        end, left = world.end_of(request), world.forgets(request)
        if self.serial:
            # One after the other: what was dropped before this one began has ended.
            left = replace(left, astray=frozenset())
        if end is Outcome.HIT:
            yield left.loses(request), end
        elif end is not None:
            yield left, end
        elif request not in world.sent:
            yield left, Outcome.MISS
        # Else it is fetched, or fails; those worlds are among the others.

    def _receive(self, step: Receive, now: float) -> Iterable[Answer]:
        transfer, answers = self._begin(step.request, now), set()
        for world in self.worlds:

            def ends(request: str, outcome: Outcome, failures: int, world: World = world) -> World:
                left = replace(world, failures=world.failures - failures)
                return left.loses(request) if outcome is Outcome.HIT else left

            answers |= set(self._fetches(world, step.request, ends))
            if step.request not in world.sent:
                answers.add((world, Outcome.MISS))
        self._failing = False
        return self._concluded(transfer, answers)

    def _concluded(self, transfer: Began, answers: set[Answer]) -> set[Answer]:
        """The transfer is over, as one of these."""
        transfer.over = True
        transfer.outcomes |= {ENDED_AS[outcome] for _, outcome in answers if outcome}
        if Transfer.FAILURE_REASONS not in self._offered:
            answers |= {(world, Outcome.MISS) for world, outcome in answers if outcome is Outcome.FAILED}
        return answers

    def _abort(self, step: Abort, now: float) -> None:
        if step.request in self.tracked:
            self._drop(step.request, takes=False)
        harmless = {(step.request, True): (step.request, False)}
        self.worlds = frozenset(
            replace(world.loses(step.request), astray=frozenset(harmless.get(one, one) for one in world.astray)) for world in self.worlds
        )

    def _stop(self, step: Stop | None, now: float) -> None:
        for request in list(self.tracked):
            self._drop(request)
        self._pass(now)
        self.worlds = frozenset(replace(world, astray=frozenset()) for world in self.worlds)
        self._stopped = True

    def _restart(self, step: Restart, now: float) -> None:
        """A closed sender leaves what it sent at the connector; a new receiver knows of nothing."""
        if step.side is Side.RECEIVER:
            self._stop(None, now)
            self._stopped, self._failing = False, False
            self._began = {}

    def _fail(self, step: Fail, now: float) -> None:
        if step.what is Failing.GET:
            self._failing = True
        else:
            self.worlds = frozenset(replace(world, failures=world.failures + 1) for world in self.worlds)

    def _hold(self, step: Hold, now: float) -> None:
        self.held = True

    def _release(self, step: Release, now: float) -> None:
        self.held = False

    def _advance(self, step: Advance, now: float) -> None:
        """Time alone decides nothing that background work has not."""


_TAKES: dict[type[Step], Callable[..., Iterable[Answer] | None]] = {
    Send: Model._send,
    Start: Model._start,
    Consume: Model._consume,
    Receive: Model._receive,
    Abort: Model._abort,
    Stop: Model._stop,
    Restart: Model._restart,
    Fail: Model._fail,
    Hold: Model._hold,
    Release: Model._release,
    Advance: Model._advance,
}
