"""What the reference manager delivers, and what it says when it cannot."""

import re

import pytest

from harness.core.clock import TICK
from harness.transfer.protocol import Completion, CompletionOutcome, Delivery, Outcome
from harness.transfer.reference.errors import TransferError
from harness.transfer.workload import Workload

WORK = Workload()
SENDER = WORK.endpoint


@pytest.mark.parametrize("how", ["prefetch", "receive"])
def test_a_cache_arrives_whole_and_is_held_no_longer(stage, receiver, how):
    """The rows of the block table, the metadata and the size that the connector carried; then the key is free."""
    stage.send("r")
    delivery = stage.fetch(receiver, how)
    assert delivery.outcome is Outcome.HIT
    assert stage.is_sent(delivery)
    assert (delivery.valid_tokens, delivery.metadata["seq_len"]) == (10, 10)
    assert delivery.size == stage.wire.calls("put")[0].size > 0
    assert stage.wire.usage() == {"segments": 0, "bytes": 0}
    assert receiver.completions() == [Completion("r", 0, CompletionOutcome.DONE)]


def test_two_blocks_deliver_eight_rows_and_say_ten(stage, receiver):
    """The seeds' pair: fewer rows than the metadata names, and `valid_tokens` tells the truth."""
    stage.send("r", [0, 1], 10)
    delivery = receiver.receive("r", SENDER, 1.0)
    assert stage.is_sent(delivery, [0, 1])
    assert (len(delivery.payload.keys[0]), delivery.valid_tokens, delivery.metadata["seq_len"]) == (8, 8, 10)


def test_a_hit_is_applied_and_nothing_else_is(stage, receiver):
    """`apply` gives the request's past_key_values; a miss has none."""
    stage.send("r")
    delivery = receiver.receive("r", SENDER, 1.0)
    assert receiver.apply(delivery).keys[1] is delivery.payload.keys[1]
    with pytest.raises(ValueError, match="only a HIT can be applied, not MISS"):
        receiver.apply(Delivery(Outcome.MISS))


def test_send_is_a_snapshot(stage, receiver):
    """Blocks that are reused after `send` do not reach the receiver."""
    stage.send("r")
    kept = [pages.clone() for pages in stage.kv]
    for pages in stage.kv:
        pages.zero_()
    delivery = receiver.receive("r", SENDER, 1.0)
    stage.kv = kept
    assert stage.is_sent(delivery)


def test_a_miss_comes_at_the_timeout(stage, receiver):
    """Not before it and not after."""
    assert receiver.receive("r", SENDER, 0.25) == Delivery(Outcome.MISS)
    assert stage.clock.now() == pytest.approx(0.25, abs=1e-8)
    assert receiver.completions() == [Completion("r", 0, CompletionOutcome.MISSED)]


def test_a_late_sender_is_waited_for(stage, receiver):
    """The prefetch began with nothing there; what is sent within the timeout arrives."""
    receiver.start_prefetch("r", SENDER)
    stage.clock.advance(0.5)
    stage.send("r")
    assert stage.is_sent(receiver.consume("r"))


def test_consume_without_a_start_misses(stage, receiver):
    """Nothing is asked of the connector."""
    stage.send("r")
    assert receiver.consume("r") == Delivery(Outcome.MISS)
    assert stage.wire.calls("get") == []


def test_consume_waits_for_a_copy_under_way(stage, receiver):
    """The lag passes in the consume."""
    stage.send("r")
    stage.engine.lab.lag("copy", 50)
    receiver.start_prefetch("r", SENDER)
    assert receiver.consume("r").outcome is Outcome.HIT
    assert stage.clock.now() == pytest.approx(50 * TICK)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (lambda stage: stage.wire.fail("get"), "ConnectorFault: get of 'kv/0-0/r' failed"),
        (lambda stage: stage.wire.damage("truncate"), "PayloadError: payload of .* bytes, sent as"),
        (lambda stage: stage.wire.damage("flip"), "PayloadError: payload checksum"),
        (lambda stage: stage.engine.lab.fail_next("copy"), "InjectedFailure: copy failed"),
    ],
    ids=["connector", "truncated", "flipped", "copy"],
)
@pytest.mark.parametrize("how", ["prefetch", "receive"])
def test_trouble_is_a_failure_with_a_reason(stage, receiver, how, trouble, said):
    """Never a hit, never a miss; the payload stays, so that another receive gets it."""
    stage.send("r")
    trouble(stage)
    delivery = stage.fetch(receiver, how)
    assert (delivery.outcome, delivery.payload, delivery.size, delivery.valid_tokens) == (Outcome.FAILED, None, 0, 0)
    assert re.match(said, delivery.reason)
    assert receiver.completions() == [Completion("r", 0, CompletionOutcome.FAILED)]
    stage.wire.mend()
    assert stage.is_sent(receiver.receive("r", SENDER, 1.0))


def test_another_layout_is_a_failure(stage):
    """A stage of three layers does not take a cache of two."""
    stage.send("r")
    delivery = stage.deploy(layers=3).receive("r", SENDER, 1.0)
    assert delivery.outcome is Outcome.FAILED
    assert "3 layers" in delivery.reason


def test_a_connector_that_refuses_is_told_to_the_sender(stage, monkeypatch):
    """`send` raises, so that nobody waits for what was never published."""
    monkeypatch.setattr(stage.wire, "put", lambda *_: (False, 0, None))
    with pytest.raises(TransferError, match=r"refused .* bytes of request 'r'"):
        stage.send("r")


def test_a_done_that_fails_costs_no_hit(stage, receiver):
    """The request has its cache; what could not be let go is logged, and still held."""
    stage.send("r")
    stage.wire.fail("done")
    assert stage.is_sent(receiver.receive("r", SENDER, 1.0))
    assert stage.wire.usage()["segments"] == 1


@pytest.mark.parametrize("how", ["prefetch", "receive"])
def test_a_reader_cannot_change_the_bytes(stage, receiver, how):
    """Two readers of one payload share nothing with each other."""
    stage.send("r", readers=2)
    stage.fetch(stage.deploy(), how).payload.keys[0].zero_()
    assert stage.is_sent(stage.fetch(receiver, how))
