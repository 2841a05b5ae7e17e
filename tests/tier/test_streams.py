"""Simulated streams: computations run when they are waited for, copies as soon as they may, and a lag holds a copy back."""

import pytest
import torch

from harness.tier.reference.streams import Streams


@pytest.fixture
def streams():
    return Streams(torch.device("cpu"))


@pytest.fixture
def said():
    return []


def test_a_computation_runs_when_it_is_waited_for(streams, said):
    event = streams.compute.submit(lambda: said.append("computed"))
    streams.tick()

    assert not said
    assert not event.done()

    event.wait()

    assert said == ["computed"]
    assert event.done()


def test_computations_run_in_order(streams, said):
    first = streams.compute.submit(lambda: said.append(1))
    streams.compute.submit(lambda: said.append(2)).wait()

    assert said == [1, 2]
    assert first.done()


def test_a_copy_waits_for_what_it_needs(streams, said):
    event = streams.compute.submit(lambda: said.append("computed"))
    streams.store.submit(lambda: said.append("stored"), (event,))

    assert not said

    event.wait()

    assert said == ["computed", "stored"]


def test_a_copy_that_needs_nothing_runs_before_the_computation(streams, said):
    event = streams.compute.submit(lambda: said.append("computed"))
    streams.store.submit(lambda: said.append("stored"))
    event.wait()

    assert said == ["stored", "computed"]


def test_waiting_for_a_copy_runs_what_it_needs(streams, said):
    event = streams.compute.submit(lambda: said.append("computed"))
    streams.store.submit(lambda: said.append("stored"), (event,), lag=9).wait()

    assert said == ["computed", "stored"]


def test_a_lag_counts_ticks(streams, said):
    streams.load.submit(lambda: said.append("loaded"), lag=2)
    streams.tick()

    assert not said

    streams.tick()

    assert said == ["loaded"]


def test_a_lag_holds_back_what_comes_after_it_on_its_stream_alone(streams, said):
    streams.load.submit(lambda: said.append("late"), lag=1)
    behind = streams.load.submit(lambda: said.append("behind"))
    streams.store.submit(lambda: said.append("elsewhere"))

    assert said == ["elsewhere"]
    assert not behind.done()

    streams.tick()

    assert said == ["elsewhere", "late", "behind"]


def test_copies_of_two_streams_wait_for_each_other(streams, said):
    load = streams.load.submit(lambda: said.append("loaded"), lag=1)
    streams.store.submit(lambda: said.append("stored"), (load,))

    assert not said

    streams.tick()

    assert said == ["loaded", "stored"]


def test_a_computation_may_wait_in_its_midst(streams, said):
    load = streams.load.submit(lambda: said.append("loaded"), lag=5)

    def compute():
        said.append("first layer")
        streams.compute.wait(load)
        said.append("second layer")

    streams.compute.submit(compute).wait()

    assert said == ["first layer", "loaded", "second layer"]


@pytest.mark.parametrize(("op", "ticks"), [("copy", 1), ("store", -1)])
def test_no_such_lag(streams, op, ticks):
    with pytest.raises(ValueError, match=op):
        streams.lag(op, ticks)
