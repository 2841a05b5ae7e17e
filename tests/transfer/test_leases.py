"""Leases on a virtual clock: each runs out once, at its time, unless it was ended or begun anew."""

import logging
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.core.clock import TICK, VirtualClock
from harness.transfer.reference.leases import Leases


class Bench:
    """Leases that write down which of them ran out, and when, in ticks."""

    def __init__(self):
        self.clock, self.ran_out, self.broken = VirtualClock(), [], set()
        self.leases = Leases(self.expire, self.clock)

    def expire(self, name):
        self.ran_out.append((name, round(self.clock.now() / TICK)))
        if name in self.broken:
            raise OSError(f"{name} cannot be freed")

    def begin(self, name, ticks):
        self.leases.begin(name, ticks * TICK)

    def advance(self, ticks):
        self.clock.advance(ticks * TICK)


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.leases.close()


def test_a_lease_runs_out_once_at_its_time(bench):
    """Not a tick before, and never again."""
    bench.begin("a", 10)
    bench.advance(9)
    assert (bench.ran_out, bench.leases.names()) == ([], ["a"])
    bench.advance(1)
    assert (bench.ran_out, bench.leases.names()) == ([("a", 10)], [])
    bench.advance(100)
    assert bench.ran_out == [("a", 10)]


def test_leases_run_out_in_the_order_of_their_ends(bench):
    """Whichever began first."""
    bench.begin("long", 30)
    bench.advance(1)
    bench.begin("short", 4)
    bench.begin("middle", 9)
    bench.advance(50)
    assert bench.ran_out == [("short", 5), ("middle", 10), ("long", 30)]


@pytest.mark.parametrize(("again", "at"), [(50, 55), (2, 7)], ids=["longer", "shorter"])
def test_a_lease_begun_anew_has_its_new_end_alone(bench, again, at):
    """The earlier one ends unheard, whichever would have been the first."""
    bench.begin("a", 10)
    bench.advance(5)
    bench.begin("a", again)
    bench.advance(100)
    assert bench.ran_out == [("a", at)]


def test_a_lease_that_was_ended_does_not_run_out(bench):
    """The others do; ending what has none is nothing."""
    bench.begin("a", 10)
    bench.begin("b", 10)
    bench.leases.end("a")
    bench.leases.end("unknown")
    bench.advance(20)
    assert bench.ran_out == [("b", 10)]


def test_an_expiry_that_raises_does_not_stop_the_keeper(bench, caplog):
    """It is logged, not tried again, and the next lease ends all the same."""
    bench.broken = {"a"}
    bench.begin("a", 1)
    bench.begin("b", 2)
    with caplog.at_level(logging.ERROR):
        bench.advance(10)
    assert bench.ran_out == [("a", 1), ("b", 2)]
    assert [record.getMessage() for record in caplog.records] == ["the lease of a ended, but its payload could not be freed"]


def test_close_ends_every_lease_and_its_thread(bench):
    """At once; a second close is nothing, and no lease begins after it."""
    bench.broken = {"a"}
    bench.begin("a", 10)
    bench.begin("b", 20)
    bench.advance(1)
    bench.leases.close()
    bench.leases.close()
    assert bench.ran_out == [("a", 1), ("b", 1)]
    assert [thread for thread in threading.enumerate() if thread.name == "kv-leases"] == []
    with pytest.raises(RuntimeError, match="no lease of c: its keeper is closed"):
        bench.begin("c", 1)


def test_no_thread_runs_before_the_first_lease(bench):
    """And one does from then on: the twin of the above."""
    assert [thread for thread in threading.enumerate() if thread.name == "kv-leases"] == []
    bench.begin("a", 1)
    assert len([thread for thread in threading.enumerate() if thread.name == "kv-leases"]) == 1


def test_nothing_is_begun_or_ended_amid_an_expiry(bench):
    """Else the expiry of an old lease could free what was published under its name since."""
    amid = []
    bench.leases._expire = lambda _: amid.append(bench.leases._lock.locked())
    bench.begin("a", 1)
    bench.advance(1)
    assert amid == [True]
    assert not bench.leases._lock.locked()


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from("abc"), st.integers(1, 9)),
        st.tuples(st.just("end"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("advance"), st.just(""), st.integers(0, 9)),
    ),
    max_size=12,
)


@example([("begin", "a", 9), ("advance", "", 9)])
@given(ACTS)
def test_any_order_of_calls_ends_as_a_dictionary_would(acts):
    """A model without threads: names and the tick at which each ends."""
    bench, until, now, ended = Bench(), {}, 0, []
    for act, name, ticks in acts:
        if act == "begin":
            bench.begin(name, ticks)
            until[name] = now + ticks
        elif act == "end":
            bench.leases.end(name)
            until.pop(name, None)
        else:
            bench.advance(ticks)
            now += ticks
            due = {name: at for name, at in until.items() if at <= now}
            ended += due.items()
            until = {name: at for name, at in until.items() if at > now}
    left = sorted(bench.leases.names())
    ran_out = sorted(bench.ran_out)
    bench.leases.close()
    assert (left, ran_out) == (sorted(until), sorted(ended))
