"""The sending half: what is live, what a failed send leaves behind, readers and leases."""

import pytest

from harness.core.clock import TICK
from harness.transfer.protocol import Topology
from harness.transfer.reference.errors import TransferError
from harness.transfer.workload import Workload

WORK = Workload()
SENDER = WORK.endpoint
EMPTY = {"segments": 0, "bytes": 0}


def one_to_two(stage):
    """A sender that publishes two shards of a request: half of the heads for each of two receivers."""
    return stage.deploy(Topology(source_tp=1, target_tp=2), sends=True, receives=False)


def test_a_live_id_is_refused(stage, receiver):
    """Until it is received: a second send would take the payload from whoever was promised the first."""
    stage.send("r")
    with pytest.raises(ValueError, match="request 'r' is live"):
        stage.send("r")
    assert len(stage.wire.calls("put")) == 1
    assert stage.is_sent(receiver.receive("r", SENDER, 0.0))
    stage.send("r")


@pytest.mark.parametrize("end", ["abort", "reject", "lease"])
def test_an_id_is_free_when_its_payload_was_let_go_of(stage, receiver, end):
    """Withdrawn by its sender, turned down by its reader, or out of its lease."""
    stage.send("r", lease=10 * TICK)
    {
        "abort": lambda: stage.sender.abort("r"),
        "reject": lambda: receiver.reject("r", SENDER),
        "lease": lambda: stage.clock.advance(10 * TICK),
    }[end]()
    assert stage.wire.usage() == EMPTY
    stage.send("r")
    assert stage.is_sent(receiver.receive("r", SENDER, 0.0))


def test_an_id_is_live_while_one_of_its_shards_is(stage):
    """Half of a request that was received does not free its name."""
    sender = one_to_two(stage)
    sender.send("r", stage.kv, [0], 4)
    stage.wire.discard("0", "1", "kv/0-0/r")
    with pytest.raises(ValueError, match="is live"):
        sender.send("r", stage.kv, [0], 4)
    stage.wire.discard("0", "1", "kv/0-1/r")
    sender.send("r", stage.kv, [0], 4)


@pytest.mark.parametrize("trouble", ["refused", "raised"])
def test_a_send_that_fails_half_way_leaves_nothing(stage, monkeypatch, trouble):
    """The second of two shards is not taken: the first is discarded, and the id may be sent again."""
    sender, put = one_to_two(stage), stage.wire.put

    def second_fails(source, target, key, *rest):
        if key != "kv/0-1/r":
            return put(source, target, key, *rest)
        if trouble == "raised":
            raise OSError("no space")
        return False, 0, None

    monkeypatch.setattr(stage.wire, "put", second_fails)
    with pytest.raises((TransferError, OSError), match=r"refused \d+ bytes of request 'r'|no space"):
        sender.send("r", stage.kv, [0], 4)
    assert len(stage.wire.calls("put", "kv/0-0/r")) == 1
    assert stage.wire.usage() == EMPTY
    assert sender.usage()["leases"] == 0

    monkeypatch.undo()
    sender.send("r", stage.kv, [0], 4)
    assert stage.wire.usage()["segments"] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"readers": 0}, "readers = 0"),
        ({"lease": 0.0}, "lease = 0.0"),
        ({"lease": -1.0}, "lease = -1.0"),
        ({"lease": float("nan")}, "lease = nan"),
    ],
)
def test_readers_and_leases_that_cannot_be_are_refused(stage, options, said):
    """Before anything is published."""
    with pytest.raises(ValueError, match=said):
        stage.send("r", **options)
    assert stage.wire.calls() == []


@pytest.mark.parametrize("readers", [1, 2, 3])
def test_a_payload_is_held_until_its_last_reader_has_it(stage, readers):
    """Each of them gets it whole; one more finds nothing."""
    stage.send("r", readers=readers)
    for _ in range(readers):
        assert stage.wire.usage()["segments"] == 1
        assert stage.is_sent(stage.deploy().receive("r", SENDER, 0.0))
    assert stage.wire.usage() == EMPTY
    assert stage.deploy().receive("r", SENDER, 0.0).outcome.value == "miss"


def test_a_lease_ends_what_nobody_received(stage, receiver):
    """On its tick: before it the payload is there, after it nothing is held, nor counted."""
    stage.send("r", lease=10 * TICK)
    stage.clock.advance(9 * TICK)
    assert (stage.sender.usage()["leases"], stage.wire.usage()["segments"]) == (1, 1)
    stage.clock.advance(TICK)
    assert (stage.sender.usage()["leases"], stage.wire.usage()) == (0, EMPTY)
    assert receiver.receive("r", SENDER, 0.0).outcome.value == "miss"


def test_a_lease_counts_no_more_once_its_payload_was_received(stage, receiver):
    """Though it would still run."""
    stage.send("r", lease=10 * TICK)
    receiver.receive("r", SENDER, 0.0)
    assert stage.sender.usage()["leases"] == 0


@pytest.mark.parametrize("lease", [None, 50 * TICK])
def test_an_old_lease_does_not_end_a_new_payload(stage, receiver, lease):
    """The first was received within its lease; what is sent under the id since is another payload."""
    stage.send("r", lease=10 * TICK)
    receiver.receive("r", SENDER, 0.0)
    stage.clock.advance(5 * TICK)
    stage.send("r", lease=lease)
    stage.clock.advance(20 * TICK)
    assert stage.is_sent(receiver.receive("r", SENDER, 0.0))


def test_a_closed_sender_gives_no_lease(stage):
    """Its leases ended with it; a payload that could not be kept to its time is not published."""
    stage.send("r", lease=1.0)
    stage.send("kept")
    stage.sender.close()
    assert (stage.sender.usage()["leases"], stage.wire.usage()["segments"]) == (0, 1)
    with pytest.raises(RuntimeError, match="no lease of s"):
        stage.send("s", lease=1.0)
    assert stage.wire.usage()["segments"] == 1
