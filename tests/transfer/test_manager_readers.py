"""Several readers of one payload, who come for it, give it up, or turn it down."""

import pytest
import torch

from harness.core.clock import TICK
from harness.transfer.protocol import Completion, CompletionOutcome, Endpoint, Outcome, Topology
from harness.transfer.witness import ConnectorFault
from harness.transfer.workload import Workload

WORK = Workload()
SENDER = WORK.endpoint


@pytest.fixture
def other(stage):
    """Another reader of the same stage boundary."""
    return stage.deploy()


def held(stage):
    return stage.wire.usage()["segments"]


def give_up(receiver, how, request_id="r"):
    """`abort` or `reject`, as `how` says."""
    receiver.abort(request_id) if how == "abort" else receiver.reject(request_id, SENDER)


@pytest.mark.parametrize("how", ["abort", "reject"])
@pytest.mark.parametrize("fetch", ["prefetch", "receive"])
def test_giving_up_after_delivery_takes_nothing_from_another_reader(stage, receiver, other, how, fetch):
    """This reader was done with it already."""
    stage.send("r", readers=2)
    assert stage.is_sent(stage.fetch(receiver, fetch))
    give_up(receiver, how)
    give_up(receiver, how)
    assert held(stage) == 1
    assert stage.is_sent(stage.fetch(other, fetch))
    assert held(stage) == 0


@pytest.mark.parametrize("how", ["abort", "reject"])
def test_giving_up_before_delivery_counts_as_one_reader(stage, receiver, other, how):
    """The twin: the other one still gets it, and is the last."""
    stage.send("r", readers=2)
    give_up(receiver, how)
    assert held(stage) == 1
    assert stage.is_sent(other.receive("r", SENDER, 0.0))
    assert held(stage) == 0


@pytest.mark.parametrize("how", ["abort", "reject"])
@pytest.mark.parametrize("fetch", ["prefetch", "receive"])
def test_a_payload_sent_anew_is_let_go_of(stage, receiver, how, fetch):
    """The id was delivered before; what lies there now is another payload, which this reader will not come for."""
    stage.send("r")
    stage.fetch(receiver, fetch)
    stage.kv = WORK.kv(torch.Generator().manual_seed(9))
    stage.send("r")
    give_up(receiver, how)
    assert held(stage) == 0


@pytest.mark.parametrize("state", ["queued", "under way", "fetched"])
def test_an_aborted_prefetch_counts_as_one_reader(stage, receiver, other, state):
    """Wherever it was; its end is told once, and the other reader has its payload."""
    stage.send("first")
    stage.send("r", readers=2)
    stage.engine.lab.lag("copy", 10)
    if state == "queued":
        receiver.start_prefetch("first", SENDER)
        stage.clock.advance(TICK)
    receiver.start_prefetch("r", SENDER)
    stage.clock.advance(20 * TICK if state == "fetched" else TICK)
    receiver.abort("r")
    stage.clock.advance(40 * TICK)
    ends = [completion for completion in receiver.completions() if completion.request_id == "r"]
    assert ends == [Completion("r", 0, CompletionOutcome.DONE if state == "fetched" else CompletionOutcome.ABORTED)]
    assert stage.is_sent(other.receive("r", SENDER, 0.0))
    assert not stage.wire.holds("0", "1", "kv/0-0/r")


def test_a_failed_receive_keeps_the_payload_for_all(stage, receiver, other):
    """It may be tried again; nobody was done."""
    stage.send("r", readers=2)
    stage.engine.lab.fail_next("copy")
    assert receiver.receive("r", SENDER, 0.0).outcome is Outcome.FAILED
    assert stage.is_sent(receiver.receive("r", SENDER, 0.0))
    assert stage.is_sent(other.receive("r", SENDER, 0.0))
    assert held(stage) == 0


def test_a_sender_that_aborts_takes_it_from_all(stage, receiver, other):
    """Also from those who were promised it; it holds no lease for it either."""
    stage.send("r", readers=2, lease=1.0)
    assert stage.is_sent(receiver.receive("r", SENDER, 0.0))
    stage.sender.abort("r")
    assert (held(stage), stage.sender.usage()["leases"]) == (0, 0)
    assert other.receive("r", SENDER, 0.0).outcome is Outcome.MISS


def test_a_rejection_goes_to_the_sender_that_the_call_names(stage):
    """To the manager's own where it names none; and to the one that was asked, where a fetch had begun."""
    receiver = stage.deploy(own_endpoint=Endpoint("own", 1))
    receiver.reject("a", Endpoint("named", 2))
    receiver.reject("b")
    receiver.start_prefetch("c", Endpoint("asked", 3))
    receiver.reject("c", Endpoint("named", 2))
    assert [(c.key, c.handle) for c in stage.wire.calls("done")] == [
        ("kv/0-0/a", Endpoint("named", 2)),
        ("kv/0-0/b", Endpoint("own", 1)),
        ("kv/0-0/c", Endpoint("asked", 3)),
    ]


def test_a_rejected_request_was_never_begun(stage, receiver):
    """No completion, nothing fetched, nothing held; its id may be sent again."""
    stage.send("r")
    receiver.reject("r", SENDER)
    assert (receiver.completions(), stage.wire.calls("get"), held(stage)) == ([], [], 0)
    stage.send("r")
    assert stage.is_sent(receiver.receive("r", SENDER, 0.0))


@pytest.mark.parametrize("how", ["abort", "reject"])
@pytest.mark.parametrize("cfg_rank", [0, 1])
def test_a_follower_gives_up_nothing_of_its_leaders(stage, how, cfg_rank):
    """Every rank of a stage is told of the end of a request; the payload has one reader among them, the leader."""
    rank = stage.deploy(Topology(world_size=2, rank=cfg_rank, cfg_size=2, cfg_rank=cfg_rank))
    stage.send("r", readers=2)
    give_up(rank, how)
    give_up(stage.deploy(), how)
    assert held(stage) == cfg_rank


@pytest.mark.parametrize("how", ["abort", "reject"])
def test_giving_up_of_one_request_leaves_others(stage, receiver, how):
    """Ids are compared whole."""
    for request in ("r", "r2", "x/r"):
        stage.send(request)
    give_up(receiver, how)
    assert [stage.wire.holds("0", "1", f"kv/0-0/{request}") for request in ("r", "r2", "x/r")] == [False, True, True]


def test_a_connector_that_cannot_be_told_is_told_of(stage, receiver):
    """Giving up raises what the connector raised; the prefetch is dropped all the same."""
    stage.send("r")
    receiver.start_prefetch("r", SENDER)
    stage.wire.fail("done")
    with pytest.raises(ConnectorFault, match="done of 'kv/0-0/r' failed"):
        receiver.abort("r")
    assert receiver.usage()["futures"] == 0
    stage.wire.mend()
    receiver.abort("r")
    assert held(stage) == 0
