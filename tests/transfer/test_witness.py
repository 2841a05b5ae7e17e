"""The witness: what it records, and that it can hold, fail and damage a call."""

import threading

import pytest
import torch

from harness.core.verdict import ClaimBroken
from harness.transfer.protocol import Endpoint
from harness.transfer.reference.memory import MemoryConnector
from harness.transfer.witness import Call, ConnectorFault, WitnessConnector

SLOT = ("0", "1", "k")


@pytest.fixture
def inner():
    return MemoryConnector()


@pytest.fixture
def witness(inner):
    return WitnessConnector(inner)


def in_background(call):
    """Start `call` on a thread; returns the thread and the list that its result, or exception, will be in."""
    ended = []

    def run():
        try:
            ended.append(call())
        except Exception as error:  # noqa: BLE001
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, ended


def test_calls_pass_and_are_recorded_in_order(witness, inner):
    """Operation, slot, handle and size of each."""
    sender = Endpoint("h", 1)
    assert witness.get(*SLOT, sender) is None
    assert witness.put(*SLOT, b"abc") == inner.put(*SLOT, b"abc")
    assert witness.get(*SLOT) == (b"abc", 3)
    witness.discard(*SLOT)

    assert inner.get(*SLOT) is None
    assert witness.calls() == [Call("get", *SLOT, sender), Call("put", *SLOT, size=3), Call("get", *SLOT, size=3), Call("discard", *SLOT)]


def test_calls_are_picked_by_operation_and_key(witness):
    """Both conditions hold for what is returned."""
    witness.put("0", "1", "kv/0/a", b"x")
    witness.put("0", "1", "kv/0/b", b"x")
    witness.get("0", "1", "kv/0/b")
    assert [c.key for c in witness.calls("put")] == ["kv/0/a", "kv/0/b"]
    assert [c.op for c in witness.calls(key_contains="/b")] == ["put", "get"]
    assert witness.calls("get", "/a") == []


def test_usage_and_close_are_those_of_the_inner(witness, inner):
    """Nothing is held by the witness itself."""
    witness.put(*SLOT, b"abc")
    assert witness.usage() == inner.usage() == {"segments": 1, "bytes": 3}
    witness.close()
    assert inner.usage() == {"segments": 0, "bytes": 0}


def test_a_held_call_waits_and_then_goes_on(witness, inner):
    """It is recorded and counted, has not reached the inner, and ends as it would have."""
    inner.put(*SLOT, b"abc")
    witness.hold("get")
    thread, ended = in_background(lambda: witness.get(*SLOT))
    witness.wait_held("get")
    assert witness.held("get") == 1
    assert witness.calls() == [Call("get", *SLOT)]
    assert ended == []

    witness.release("get")
    thread.join(20)
    assert ended == [(b"abc", 3)]
    assert witness.held("get") == 0


def test_a_gate_stops_its_own_operation_only(witness):
    """A put passes while gets are held."""
    witness.hold("get")
    assert witness.put(*SLOT, b"abc")[0] is True
    assert witness.held("get") == witness.held("put") == 0


def test_a_released_gate_is_open(witness):
    """Later calls pass too."""
    witness.hold("get")
    witness.release("get")
    assert witness.get(*SLOT) is None


def test_several_calls_are_held_at_once(witness):
    """`wait_held` counts them; one release frees all."""
    witness.hold("get")
    threads = [in_background(lambda: witness.get(*SLOT))[0] for _ in range(4)]
    witness.wait_held("get", 4)
    witness.release("get")
    for thread in threads:
        thread.join(20)
    assert witness.held("get") == 0


def test_a_call_nobody_releases_raises(inner):
    """A forgotten release does not hang the engine; the text says what happened."""
    witness = WitnessConnector(inner, limit=0.01)
    witness.hold("get")
    thread, ended = in_background(lambda: witness.get(*SLOT))
    thread.join(20)
    with pytest.raises(TimeoutError, match=r"get of 'k' was held for 0.01 s and never released"):
        raise ended[0]
    assert witness.held("get") == 0


def test_waiting_for_a_call_that_never_comes_raises(inner):
    """The text has both numbers."""
    witness = WitnessConnector(inner, limit=0.01)
    witness.hold("get")
    with pytest.raises(ClaimBroken, match=r"NO TRANSFER: got 0 calls of get under way after 0\.01 s, expected 1"):
        witness.wait_held("get")


def test_a_call_on_the_holders_own_thread_is_told(witness):
    """Nobody could release it: it raises inside the engine, which may swallow that, and `wait_held` says so all the same."""
    witness.hold("get")
    with pytest.raises(ConnectorFault, match="came on the thread that would release it"):
        witness.get(*SLOT)
    with pytest.raises(ClaimBroken, match="CALL BLOCKS: got get of 'k' inside a call of the engine"):
        witness.wait_held("get")


def test_close_frees_held_calls(witness):
    """A test that failed half-way leaves no thread behind."""
    witness.hold("get")
    thread, ended = in_background(lambda: witness.get(*SLOT))
    witness.wait_held("get")
    witness.close()
    thread.join(20)
    assert ended == [None]


@pytest.mark.parametrize("error", [ConnectorFault, OSError])
@pytest.mark.parametrize(("op", "call"), [("get", lambda w: w.get(*SLOT)), ("put", lambda w: w.put(*SLOT, b"abc"))])
def test_calls_fail_until_they_are_mended(witness, inner, op, call, error):
    """They are recorded and do not reach the inner, however often the engine tries."""
    witness.fail(op, error)
    for _ in range(2):
        with pytest.raises(error, match=f"{op} of 'k' failed"):
            call(witness)
    assert inner.usage()["segments"] == 0
    witness.mend()
    call(witness)
    assert len(witness.calls(op)) == 3


@pytest.mark.parametrize(("how", "given"), [("truncate", b"\0\0"), ("flip", b"\0\0\1\0")])
def test_copies_are_damaged_until_they_are_mended(witness, inner, how, given):
    """Cut in half, or one bit changed in the middle; what is held stays whole."""
    witness.put(*SLOT, b"\0\0\0\0")
    witness.damage(how)
    assert witness.get(*SLOT) == witness.get(*SLOT) == (given, len(given))
    witness.mend()
    assert witness.get(*SLOT) == inner.get(*SLOT) == (b"\0\0\0\0", 4)


def test_an_action_follows_the_first_empty_look(witness):
    """Once, and the look itself still finds nothing; one that finds something leaves it waiting."""
    witness.put("0", "1", "there", b"x")
    witness.when_empty(lambda: witness.put(*SLOT, b"abc"))
    assert witness.get("0", "1", "there") == (b"x", 1)
    assert witness.get(*SLOT) is None
    assert witness.get(*SLOT) == (b"abc", 3)


def test_a_tensor_is_damaged_as_a_tensor():
    """An engine that carries tensors is given one; the original is untouched."""
    original = torch.zeros(4, dtype=torch.uint8)

    class Carries(MemoryConnector):
        def get(self, *slot):
            return original, 4

    witness = WitnessConnector(Carries())
    witness.damage("flip")
    data, _ = witness.get(*SLOT)
    assert data.tolist() == [0, 0, 1, 0]
    assert original.tolist() == [0, 0, 0, 0]


def test_drain_discards_what_was_left(witness, inner):
    """What was put and not discarded, unrecorded; what others put is not touched."""
    inner.put("0", "1", "not ours", b"x")
    witness.put(*SLOT, b"abc")
    witness.put("0", "1", "gone", b"abc")
    witness.discard("0", "1", "gone")
    witness.drain()
    assert inner.usage() == {"segments": 1, "bytes": 1}
    assert len(witness.calls("discard")) == 1


@pytest.mark.parametrize(
    "misuse",
    [
        lambda w: w.hold("fetch"),
        lambda w: w.release("fetch"),
        lambda w: w.held("fetch"),
        lambda w: w.fail("fetch"),
        lambda w: w.damage("burn"),
    ],
)
def test_unknown_words_are_refused(witness, misuse):
    """The text lists the known ones."""
    with pytest.raises(ValueError, match=r"unknown (operation|damage) '.*'; there (are|is)"):
        misuse(witness)


def test_it_says_whether_it_holds_calls(witness):
    """From the order to hold on, whether or not a call has come, and until the last release."""
    assert not witness.holds_calls()
    witness.hold("get")
    witness.hold("put")
    witness.release("get")
    assert witness.holds_calls()
    witness.release("put")
    assert not witness.holds_calls()
