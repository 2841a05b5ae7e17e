"""The table of outstanding prefetches and its worker, with a fetch that the test holds in its hand."""

import threading

import pytest

from harness.core.clock import TICK, SystemClock, VirtualClock
from harness.transfer.protocol import Completion, CompletionOutcome, Delivery, Endpoint, Outcome
from harness.transfer.reference import ledger as ledger_module
from harness.transfer.reference.landing import LandingPool
from harness.transfer.reference.ledger import Ledger
from harness.transfer.reference.prefetch import PrefetchTable
from harness.transfer.reference.worker import Worker

SENDER = Endpoint("127.0.0.1", 50051)
LAG = 10 * TICK

DONE, MISSED, FAILED, ABORTED = CompletionOutcome


class Bench:
    """A table whose fetches take LAG of virtual time, land in 8 bytes, and deliver the request's own name as metadata."""

    def __init__(self):
        self.clock, self.ledger, self.fetched = VirtualClock(), Ledger(), []
        self.outcome, self.landing = Outcome.HIT, LandingPool()
        self.table = PrefetchTable(self.fetch, self.clock, self.ledger, self.landing)

    def fetch(self, job):
        self.fetched.append((job.request_id, job.generation))
        job.berth.take(8)
        self.clock.wait(lambda: False, LAG)
        return Delivery(self.outcome, size=7, metadata={"of": job.request_id, "generation": job.generation})

    def start(self, request_id, endpoint=SENDER):
        self.table.start(request_id, endpoint)

    def consume(self, request_id):
        return self.table.consume(request_id)[0]

    def outcomes(self):
        return [(c.request_id, c.generation, c.outcome) for c in self.ledger.take()]


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.table.stop()


def test_a_start_is_tracked_and_consumed_once(bench):
    """One future from start to consume; the second consume misses."""
    bench.start("a")
    assert bench.table.usage()["futures"] == 1
    delivery = bench.consume("a")
    assert delivery.metadata["of"] == "a"
    assert bench.table.usage() == {"futures": 0, "workers": 1, "copies": 0, "held_bytes": 0, "landing_bytes": 0}
    assert bench.consume("a").outcome is Outcome.MISS


def test_who_was_asked_is_known_until_the_end(bench):
    """A consume and an abort name the sender, which is to be told; nobody was asked for a request that is not tracked."""
    bench.start("a")
    assert bench.table.consume("a")[1] == SENDER
    bench.start("a")
    assert bench.table.abort("a") == SENDER
    assert bench.table.abort("a") is None
    assert bench.table.consume("a")[1] is None


def test_a_start_returns_before_the_fetch_ends(bench):
    """No virtual time passes in it; the consume waits for the rest."""
    bench.start("a")
    assert bench.clock.now() == 0.0
    bench.consume("a")
    assert bench.clock.now() == LAG


def test_a_fetched_payload_is_held_until_consumed(bench):
    """Its bytes are in the usage, and nowhere afterwards."""
    bench.start("a")
    bench.clock.advance(LAG)
    assert bench.table.usage() == {"futures": 1, "workers": 1, "copies": 0, "held_bytes": 7, "landing_bytes": 8}
    bench.consume("a")
    assert bench.table.usage()["held_bytes"] == 0


def test_a_second_start_keeps_the_first(bench):
    """Live: queued, under way or fetched, it is fetched once."""
    bench.start("a")
    bench.start("a")
    bench.clock.advance(LAG)
    bench.start("a")
    assert bench.consume("a").metadata["generation"] == 0
    assert bench.fetched == [("a", 0)]


def test_an_id_used_again_is_another_generation(bench):
    """After a consume and after an abort it is fetched anew."""
    bench.start("a")
    bench.consume("a")
    bench.start("a")
    bench.table.abort("a")
    bench.start("a")
    assert bench.consume("a").metadata["generation"] == 2


def test_nothing_is_submitted_without_an_endpoint(bench):
    """No future, no worker, no fetch."""
    bench.start("a", endpoint=None)
    assert bench.table.usage() == {"futures": 0, "workers": 0, "copies": 0, "held_bytes": 0, "landing_bytes": 0}
    assert bench.outcomes() == []


@pytest.mark.parametrize("endpoint", [SENDER, None])
def test_a_start_drops_a_leftover(bench, endpoint):
    """A serial engine has moved on, whether or not the new request can be fetched."""
    bench.start("a")
    bench.start("b", endpoint)
    assert bench.consume("a").outcome is Outcome.MISS


@pytest.mark.parametrize("consumed", ["b", "unknown"])
def test_a_consume_drops_every_other(bench, consumed):
    """Also on a miss: nothing is tracked after it."""
    bench.start("a")
    assert bench.consume(consumed).outcome is Outcome.MISS
    assert bench.table.usage()["futures"] == 0
    assert bench.consume("a").outcome is Outcome.MISS


def test_a_queued_prefetch_is_never_begun_after_an_abort(bench):
    """The first is under way, so the second waits in the queue; aborted there, it is not fetched."""
    bench.start("a")
    bench.clock.advance(TICK)
    bench.start("b")
    bench.table.abort("b")
    bench.clock.advance(2 * LAG)
    assert bench.fetched == [("a", 0)]
    assert bench.table.usage()["copies"] == 0


def test_a_queued_prefetch_that_nobody_aborts_is_begun(bench):
    """The twin of the above."""
    bench.start("a")
    bench.clock.advance(TICK)
    bench.start("b")
    bench.clock.advance(2 * LAG)
    assert bench.fetched == [("a", 0), ("b", 0)]


def test_an_abort_under_way_drops_the_result(bench):
    """The copy goes on to its end; then it is reported aborted, once, and nothing is held."""
    bench.start("a")
    bench.clock.advance(TICK)
    bench.table.abort("a")
    assert bench.outcomes() == []
    assert bench.table.usage()["copies"] == 1
    bench.clock.advance(LAG)
    assert bench.outcomes() == [("a", 0, ABORTED)]
    assert bench.table.usage() == {"futures": 0, "workers": 1, "copies": 0, "held_bytes": 0, "landing_bytes": 0}


def test_an_abort_spares_longer_ids(bench):
    """Ids are compared whole, not by prefix."""
    bench.start("a_retry")
    bench.table.abort("a")
    assert bench.consume("a_retry").outcome is Outcome.HIT


def test_an_abort_of_nothing_is_nothing(bench):
    """Unknown ids, and ids already consumed, leave no trace."""
    bench.table.abort("unknown")
    bench.start("a")
    bench.consume("a")
    bench.table.abort("a")
    assert bench.outcomes() == [("a", 0, DONE)]


@pytest.mark.parametrize(("outcome", "reported"), [(Outcome.HIT, DONE), (Outcome.MISS, MISSED), (Outcome.FAILED, FAILED)])
def test_an_end_is_reported_once(bench, outcome, reported):
    """As the fetch ended, whether or not anybody consumes it."""
    bench.outcome = outcome
    bench.start("a")
    bench.clock.advance(LAG)
    assert bench.outcomes() == [("a", 0, reported)]
    bench.consume("a")
    assert bench.outcomes() == []


def test_an_id_reused_under_way_has_two_ends(bench):
    """The aborted use and its successor are told apart by generation."""
    bench.start("a")
    bench.clock.advance(TICK)
    bench.table.abort("a")
    bench.start("a")
    assert bench.consume("a").metadata["generation"] == 1
    assert bench.outcomes() == [("a", 0, ABORTED), ("a", 1, DONE)]


def test_stop_drops_everything_and_ends_the_worker(bench):
    """Under way, it is waited for; later starts submit nothing; a second stop is nothing."""
    bench.start("a")
    bench.clock.advance(TICK)
    bench.start("b")
    bench.table.stop()
    bench.start("c")
    bench.table.stop()
    assert bench.table.usage() == {"futures": 0, "workers": 0, "copies": 0, "held_bytes": 0, "landing_bytes": 0}
    assert bench.fetched == [("a", 0)]
    assert sorted(bench.outcomes()) == [("a", 0, ABORTED), ("b", 0, ABORTED)]


def test_many_requests_end_once_each():
    """Two hundred starts, aborts and consumes on wall time: one report for each, none twice, nothing held."""
    ledger = Ledger()
    table = PrefetchTable(lambda _: Delivery(Outcome.HIT, size=1), SystemClock(), ledger, LandingPool())
    for number in range(200):
        table.start(f"r{number % 7}", SENDER)
        if number % 3 == 0:
            table.abort(f"r{number % 7}")
        if number % 3 == 1:
            assert table.consume(f"r{number % 7}")[0].outcome is Outcome.HIT
    table.stop()
    ends = [(c.request_id, c.generation) for c in ledger.take()]
    assert len(ends) == len(set(ends)) >= 133
    assert table.usage() == {"futures": 0, "workers": 0, "copies": 0, "held_bytes": 0, "landing_bytes": 0}


def test_a_worker_does_jobs_in_order_on_one_thread():
    """And not on the caller's."""
    clock, seen = VirtualClock(), []
    worker = Worker("w", lambda job: seen.append((job, threading.get_ident())), clock)
    for job in range(5):
        worker.submit(job)
    clock.advance(0.0)
    worker.close()
    assert [job for job, _ in seen] == list(range(5))
    assert len({thread for _, thread in seen} - {threading.get_ident()}) == 1


def test_a_closed_worker_takes_no_job():
    """The text names the worker."""
    worker = Worker("w", lambda _: None, VirtualClock())
    worker.close()
    with pytest.raises(RuntimeError, match="w is closed"):
        worker.submit("job")


def test_the_ledger_counts_uses_and_forgets_old_ids(monkeypatch):
    """Memory is bounded: an id not seen for long starts from 0."""
    monkeypatch.setattr(ledger_module, "REMEMBERED", 2)
    ledger = Ledger()
    assert [ledger.begin(i) for i in ("a", "a", "b", "a", "c", "b", "a")] == [0, 1, 0, 2, 0, 0, 0]


def test_the_ledger_gives_each_end_once():
    """An end of a request nobody knows is reported like any other."""
    ledger = Ledger()
    ledger.end("unknown", 3, ABORTED)
    assert ledger.take() == [Completion("unknown", 3, ABORTED)]
    assert ledger.take() == []
