"""Aborts, reused ids, shutdown and the lab of the reference engine."""

import pytest
import torch

from harness.core.clock import TICK, SystemClock, VirtualClock
from harness.core.spec import EngineConfig
from harness.transfer.engines.reference import ReferenceTransfer
from harness.transfer.protocol import Completion, CompletionOutcome, Outcome, TransferConfig
from harness.transfer.workload import Workload
from tests.transfer.conftest import NOTHING_HELD

WORK = Workload()
SENDER = WORK.endpoint


def test_an_abort_frees_both_sides(stage, receiver):
    """The fetch is dropped and the sender's payload discarded, though nobody read it."""
    stage.engine.lab.lag("copy", 10)
    stage.send("r")
    receiver.start_prefetch("r", SENDER)
    stage.clock.advance(TICK)
    receiver.abort("r")
    assert stage.wire.usage()["segments"] == 0
    stage.clock.advance(10 * TICK)
    assert receiver.completions() == [Completion("r", 0, CompletionOutcome.ABORTED)]
    assert receiver.consume("r").outcome is Outcome.MISS


def test_an_abort_ends_the_wait_for_a_sender(stage, receiver):
    """A prefetch that polls gives up at once, not at the timeout."""
    receiver.start_prefetch("r", SENDER)
    stage.clock.advance(TICK)
    receiver.abort("r")
    stage.clock.advance(0.0)
    assert receiver.completions() == [Completion("r", 0, CompletionOutcome.ABORTED)]
    assert receiver.usage()["copies"] == 0


def test_an_abort_of_an_unknown_request_is_harmless(stage, receiver):
    """No state, no completion, no exception."""
    receiver.abort("unknown")
    assert receiver.completions() == []
    assert receiver.usage()["futures"] == 0


def test_a_reused_id_brings_the_new_bytes(stage, receiver):
    """The first use is aborted under way; the second gets what was sent for it."""
    stage.engine.lab.lag("copy", 10)
    stage.send("r")
    receiver.start_prefetch("r", SENDER)
    stage.clock.advance(TICK)
    receiver.abort("r")
    stage.kv = WORK.kv(torch.Generator().manual_seed(4))
    stage.send("r")
    receiver.start_prefetch("r", SENDER)
    assert stage.is_sent(receiver.consume("r"))
    assert [(c.generation, c.outcome.value) for c in receiver.completions()] == [(0, "aborted"), (1, "done")]


def test_a_queued_fetch_never_reaches_the_connector_after_an_abort(stage, receiver):
    """The witness sees one get, for the request that was under way."""
    stage.send("a")
    stage.send("b")
    stage.wire.hold("get")
    receiver.start_prefetch("a", SENDER)
    stage.wire.wait_held("get")
    receiver.start_prefetch("b", SENDER)
    receiver.abort("b")
    stage.wire.release("get")
    receiver.stop_prefetch()
    assert [c.key for c in stage.wire.calls("get")] == ["kv/0-0/a"]


def test_a_dropped_leftover_can_still_be_received(stage, receiver):
    """Dropping a prefetch costs its request nothing but the head start."""
    stage.send("a")
    receiver.start_prefetch("a", SENDER)
    receiver.start_prefetch("b", None)
    assert stage.is_sent(receiver.receive("a", SENDER, 1.0))


def test_a_receive_replaces_a_prefetch_of_its_request(stage, receiver):
    """A cache is delivered once."""
    stage.send("r")
    receiver.start_prefetch("r", SENDER)
    assert receiver.receive("r", SENDER, 1.0).outcome is Outcome.HIT
    assert receiver.consume("r").outcome is Outcome.MISS


def test_stop_ends_prefetching_for_good(stage, receiver):
    """No worker is left, and a later start submits nothing; the foreground still works."""
    stage.send("r")
    receiver.start_prefetch("x", SENDER)
    receiver.stop_prefetch()
    receiver.start_prefetch("r", SENDER)
    assert receiver.usage() == NOTHING_HELD
    assert stage.is_sent(receiver.receive("r", SENDER, 0.0))


def test_the_engine_counts_and_closes_its_managers(stage, receiver):
    """A manager closed by hand counts no longer; closing the engine twice is nothing."""
    assert stage.engine.usage() == {"managers": 2}
    receiver.close()
    assert stage.engine.usage() == {"managers": 1}
    stage.engine.close()
    stage.engine.close()
    assert stage.engine.usage() == {"managers": 0}


def test_the_lab_needs_virtual_time():
    """On wall time there is none, and a round trip works all the same."""
    engine = ReferenceTransfer.build(EngineConfig("cpu", "cpu", {}, 0), SystemClock())
    assert engine.lab is None
    connector, config = engine.connector(), TransferConfig(WORK.layout())
    manager = engine.deploy(None, connector, config)
    manager.send("r", WORK.kv(torch.Generator().manual_seed(5)), [0], 4)
    manager.start_prefetch("r", SENDER)
    assert manager.consume("r").outcome is Outcome.HIT
    engine.close()


@pytest.mark.parametrize(
    ("misuse", "said"),
    [
        (lambda lab: lab.lag("send", 1), "unknown operation 'send'; this lab knows copy"),
        (lambda lab: lab.fail_next("send"), "unknown operation 'send'"),
        (lambda lab: lab.lag("copy", -1), "a lag of -1 ticks"),
    ],
)
def test_the_lab_refuses_what_it_does_not_know(stage, misuse, said):
    """The text says what there is."""
    with pytest.raises(ValueError, match=said):
        misuse(stage.engine.lab)


def test_a_lag_ends(stage, receiver):
    """A lag of 0 takes no time."""
    stage.engine.lab.lag("copy", 5)
    stage.engine.lab.lag("copy", 0)
    stage.send("r")
    receiver.receive("r", SENDER, 1.0)
    assert stage.clock.now() == 0.0


@pytest.mark.parametrize("options", [{"connector": "pigeon"}, {"speed": "9"}])
def test_the_engine_refuses_options_that_it_does_not_know(options):
    """By name."""
    with pytest.raises(ValueError, match=r"pigeon|speed"):
        ReferenceTransfer.build(EngineConfig("cpu", "cpu", options, 0), VirtualClock())
