"""Clocks: when time moves, when it does not, and what ends a wait."""

import threading
from contextlib import contextmanager

import pytest

from harness.core.clock import TICK, Deadlock, SystemClock, VirtualClock

JOIN = 20.0
"""Seconds of wall time after which a thread of a test is taken to hang."""


def never():
    return False


@contextmanager
def worker(clock, body):
    """Run `body` on a participating thread; its exception, if any, ends up in the list that is yielded."""
    joined, raised = threading.Event(), []

    def run():
        try:
            with clock.participant():
                joined.set()
                body()
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert joined.wait(JOIN)
    yield raised
    thread.join(JOIN)
    assert not thread.is_alive()


def test_virtual_time_starts_at_zero_and_stands_still():
    """Nobody waits, so no time passes."""
    clock = VirtualClock()
    assert clock.now() == clock.now() == 0.0


def test_a_lone_wait_jumps_to_its_deadline():
    """Nobody else works, so an hour passes at once."""
    clock = VirtualClock()
    assert clock.wait(never, 3600.0) is False
    assert clock.now() == 3600.0


def test_a_ready_wait_takes_no_time():
    """A predicate that holds is not waited for, whatever the timeout."""
    clock = VirtualClock()
    assert clock.wait(lambda: True, 5.0) is True
    assert clock.now() == 0.0


@pytest.mark.parametrize("timeout", [0.0, -1.0])
def test_a_wait_without_time_only_looks(timeout):
    """A timeout of nothing returns what the predicate says now."""
    clock = VirtualClock()
    assert clock.wait(never, timeout) is False
    assert clock.now() == 0.0


def test_the_smallest_positive_wait_moves_time():
    """A polling loop whose rest is a rounding error still ends."""
    clock = VirtualClock()
    clock.wait(never, 1e-17)
    assert clock.now() > 0.0


def test_single_ticks_add_up():
    """A thousand ticks one by one end exactly where a thousand at once do."""
    clock, reference = VirtualClock(), VirtualClock()
    for _ in range(1000):
        clock.advance(TICK)
    reference.advance(1000 * TICK)
    assert clock.now() == reference.now() == 1.0


def test_time_does_not_run_backwards():
    """A negative advance is refused."""
    with pytest.raises(ValueError, match="backwards"):
        VirtualClock().advance(-TICK)


def test_a_wait_that_nothing_can_end_is_a_deadlock():
    """The only participant waits for ever: raised, not hung."""
    with pytest.raises(Deadlock, match="1 participants"):
        VirtualClock().wait(never)


def test_an_idle_worker_does_not_save_a_deadlock():
    """A worker that waits for work wakes nobody."""
    clock, done = VirtualClock(), []
    with worker(clock, lambda: clock.wait(lambda: bool(done), idle=True)) as raised:
        with pytest.raises(Deadlock, match="2 participants"):
            clock.wait(never)
        done.append(True)
        clock.notify()
    assert raised == []


def test_a_clock_survives_a_deadlock():
    """Whoever was told of it is no longer counted as waiting."""
    clock = VirtualClock()
    with pytest.raises(Deadlock):
        clock.wait(never)
    clock.wait(never, 1.0)
    assert clock.now() == 1.0


def test_time_stands_still_while_a_worker_runs():
    """A wait with a deadline does not jump over work that is under way."""
    clock, waiting, result = VirtualClock(), threading.Event(), []

    def work():
        assert waiting.wait(JOIN)
        result.append(clock.now())
        clock.notify()

    def ready():
        waiting.set()
        return bool(result)

    with worker(clock, work):
        assert clock.wait(ready, 1.0) is True
    assert result == [0.0]


def test_a_worker_that_ends_lets_time_go_on():
    """A participant that left is not waited for."""
    clock, waiting = VirtualClock(), threading.Event()
    with worker(clock, lambda: waiting.wait(JOIN)):
        assert clock.wait(lambda: waiting.set() or False, 2.0) is False
    assert clock.now() == 2.0


def test_the_earliest_deadline_comes_first():
    """Two waits end in the order of their deadlines, at their deadlines."""
    clock, seen = VirtualClock(), []

    def nap(seconds):
        clock.wait(never, seconds)
        seen.append((seconds, clock.now()))

    with worker(clock, lambda: nap(3.0)), worker(clock, lambda: nap(2.0)):
        nap(5.0)
    assert seen == [(2.0, 2.0), (3.0, 3.0), (5.0, 5.0)]


def test_advance_ends_what_is_due_and_nothing_else():
    """Work due at the end of the advance has been done on return; work due a tick later has not."""
    clock, seen = VirtualClock(), []

    def nap():
        for _ in range(3):
            clock.wait(never, 10 * TICK)
            seen.append(clock.now())

    with worker(clock, nap):
        clock.advance(9 * TICK)
        assert seen == []
        clock.advance(TICK)
        assert seen == [10 * TICK]
        clock.advance(20 * TICK)
        assert seen == [10 * TICK, 20 * TICK, 30 * TICK]
    assert clock.now() == 30 * TICK


def test_advance_waits_for_work_begun_before_it():
    """A worker that was given work just now has done it when advance returns, though no time was asked for."""
    clock, work, done = VirtualClock(), [], []

    def serve():
        while not done:
            clock.wait(lambda: bool(work), idle=True)
            done.append(work.pop())

    with worker(clock, serve):
        work.append("job")
        clock.notify()
        clock.advance(0.0)
        assert done == ["job"]


def test_advance_alone_only_moves_time():
    """Without workers an advance is an addition."""
    clock = VirtualClock()
    clock.advance(1.5)
    assert clock.now() == 1.5


def test_many_threads_wait_in_step():
    """Sixteen workers of four naps each: every nap ends exactly when due, whatever the scheduler does."""
    clock, seen, lock = VirtualClock(), [], threading.Lock()

    def naps(k):
        for i in range(1, 5):
            clock.wait(never, k * TICK)
            with lock:
                seen.append((clock.now(), i * k))

    threads = []
    started = threading.Barrier(17)

    def run(k):
        with clock.participant():
            started.wait(JOIN)
            naps(k)

    for k in range(1, 17):
        threads.append(threading.Thread(target=run, args=(k,), daemon=True))
        threads[-1].start()
    started.wait(JOIN)
    clock.wait(never, 100 * TICK)
    for thread in threads:
        thread.join(JOIN)
    assert len(seen) == 64
    assert all(now == pytest.approx(due * TICK, abs=1e-12) for now, due in seen)
    assert [now for now, _ in seen] == sorted(now for now, _ in seen)
    assert clock.now() == 100 * TICK


@pytest.mark.parametrize("make", [SystemClock, VirtualClock])
def test_a_notify_wakes_a_wait(make):
    """What another thread made true ends the wait, long before its timeout."""
    clock, ready = make(), []

    def work():
        ready.append(True)
        clock.notify()

    with worker(clock, work):
        assert clock.wait(lambda: bool(ready), JOIN) is True
    assert clock.now() < JOIN


def test_system_time_moves():
    """A wait that nothing ends takes its timeout, and not less."""
    clock = SystemClock()
    before = clock.now()
    assert clock.wait(never, 0.01) is False
    assert clock.now() - before >= 0.01
