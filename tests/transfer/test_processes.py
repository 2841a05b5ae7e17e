"""The driver of children: what it asks comes back, what goes wrong there is told here, and nothing of a child outlives it."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from fixtures.processes import answer_or_error
from harness.core import faults, guard
from harness.core.blueprint import Blueprint
from harness.core.spec import EngineConfig
from harness.core.verdict import DeadlineMissed, EngineRaised
from harness.transfer.processes import Child, ChildDied, Drawn, RemoteEngine, RemoteError, parent, warm
from harness.transfer.processes.freight import packed, unpacked
from harness.transfer.processes.leftovers import Leftovers, mark_of
from harness.transfer.protocol import Delivery, KVPayload, Outcome

CONFIG = EngineConfig("cpu", "cpu", {}, 0)
MEMORY = Blueprint("connector/memory", CONFIG)
AWKWARD = Blueprint("connector/awkward", CONFIG, adapter="awkward_engine:Awkward")
SLOT = ("0", "1", "key")
SHORT = 0.5
"""Seconds until a deadline that is meant to be missed."""


@pytest.fixture(autouse=True)
def nursery(monkeypatch):
    warm()
    monkeypatch.syspath_prepend(Path(__file__).parent)


@pytest.fixture
def start():
    """A connector of the blueprint in a new child."""
    children = []

    def start(blueprint=MEMORY, deadline=20.0):
        children.append(Child("the child", deadline))
        return RemoteEngine(children[-1], blueprint).connector()

    yield start
    for child in children:
        child.close()


def is_gone(pid):
    """Neither running nor a zombie: its number leads nowhere."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def wait_until(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "never came true"


def test_a_call_reads_as_within_one_process(start):
    carrier = start()

    assert carrier.put(*SLOT, Drawn(3, 1000)) == (True, 1000, None)
    data, size = carrier.get(*SLOT)
    assert data == Drawn(3, 1000).tensor().numpy().tobytes() != Drawn(4, 1000).tensor().numpy().tobytes()
    assert size == 1000
    assert carrier.usage() == {"segments": 1, "bytes": 1000}
    assert carrier.endpoint is None


def test_what_is_raised_there_is_raised_here(start):
    carrier = start()

    with pytest.raises(ValueError, match="readers = 0") as told:
        carrier.put(*SLOT, b"", 0)
    assert "in put" in told.value.__cause__.trace
    assert carrier.usage()["segments"] == 0


def test_an_exception_of_the_engines_own_keeps_its_name(start):
    with pytest.raises(RemoteError, match="OddError: no such page") as told:
        start(AWKWARD).fail_oddly()
    assert told.value.kind == "OddError"


def test_a_result_that_cannot_cross_is_an_error_and_not_the_end(start):
    awkward = start(AWKWARD)

    with pytest.raises(TypeError, match="cannot cross"):
        awkward.unfit()
    assert awkward.flood(3) == b"xxx"


def test_a_flood_arrives_whole_in_both_directions(start):
    awkward = start(AWKWARD)

    assert awkward.flood(32 << 20) == b"x" * (32 << 20)
    assert awkward.swallow(bytes(32 << 20)) == 32 << 20


def test_an_error_is_an_answer_and_the_end_of_the_process_is_none(start):
    awkward = guard.Guarded(start(AWKWARD), 20.0)

    assert answer_or_error(lambda: awkward.flood(1)) == b"x"
    assert "no such page" in answer_or_error(awkward.fail_oddly)
    with pytest.raises(EngineRaised, match="ended with exit status 7"):
        answer_or_error(awkward.leave)


def test_a_hang_misses_the_deadline_and_shows_where_it_stands(start):
    awkward = start(AWKWARD, SHORT)

    with pytest.raises(DeadlineMissed, match=r"hang\(\) of the child did not return within 0.5 s") as missed:
        awkward.hang()
    assert "awkward_engine.py" in missed.value.stacks
    assert "in hang" in missed.value.stacks
    wait_until(lambda: is_gone(awkward.child.pid))
    with pytest.raises(ChildDied):
        awkward.usage()


def test_arguments_that_nobody_takes_miss_the_deadline(start):
    awkward = start(AWKWARD, SHORT)
    awkward.child.stop()

    with pytest.raises(DeadlineMissed):
        awkward.swallow(bytes(32 << 20))


def test_a_stopped_child_goes_on_where_it_stood(start):
    carrier = start()
    carrier.child.stop()
    pending = carrier.begin("usage")
    assert not pending.ended()
    carrier.child.cont()

    assert pending.result() == {"segments": 0, "bytes": 0}


def test_a_child_that_ends_by_itself_is_told_with_its_status(start):
    with pytest.raises(ChildDied, match="the process of the child ended with exit status 7"):
        start(AWKWARD).leave()


def test_a_killed_child_is_told_with_its_signal(start):
    awkward = start(AWKWARD)
    pending = awkward.begin("hang")
    os.kill(awkward.child.pid, signal.SIGKILL)

    with pytest.raises(ChildDied, match="ended by SIGKILL") as died:
        pending.result()
    assert died.value.exitcode == -9


def test_one_request_at_a_time(start):
    awkward = start(AWKWARD)
    awkward.begin("hang")

    with pytest.raises(RuntimeError, match="another request is under way"):
        awkward.flood(1)


def test_a_held_operation_is_told_and_stays(start):
    carrier = start()
    carrier.child.hold("store")
    pending = carrier.begin("put", *SLOT, b"12345678")
    carrier.child.reached("store")

    assert not pending.ended()


def test_an_operation_that_is_not_reached_is_a_finding(start):
    carrier = start()
    carrier.child.hold("store")
    carrier.begin("usage")

    with pytest.raises(AssertionError, match="OPERATION NOT REACHED"):
        carrier.child.reached("store")


def test_nothing_is_left_of_a_child_however_it_ends(start, monkeypatch):
    monkeypatch.setattr(parent, "GRACE", SHORT)
    start().child.close()  # the server that children are forked from has begun
    before = open_files()
    ends = []
    for end in ("closed", "killed", "left a thread", "stopped", "busy"):
        awkward = start(AWKWARD)
        if end == "killed":
            awkward.child.kill()
        elif end == "left a thread":
            awkward.keep_a_thread()
        elif end == "stopped":
            awkward.begin("hang")
            awkward.child.stop()
        elif end == "busy":
            awkward.begin("hang")
        awkward.child.close()
        ends.append((end, is_gone(awkward.child.pid)))

    assert all(gone for _, gone in ends), ends
    assert open_files() == before


@pytest.mark.parametrize("state", ["stopped", "hanging", "idle"])
def test_a_child_dies_with_the_run_that_started_it(start, state):
    awkward = start(AWKWARD)
    if state == "hanging":
        awkward.begin("hang")
    elif state == "stopped":
        awkward.child.stop()

    # What the kernel does with a run that is killed. The line stays open, so that this alone can end the child.
    awkward.child._lifeline.close()

    wait_until(lambda: is_gone(awkward.child.pid))


def test_a_fault_is_planted_in_the_child_alone(start):
    whole, broken = start(), start(Blueprint("connector/memory", CONFIG, fault="connector/canary"))
    for carrier in (whole, broken):
        carrier.put(*SLOT, b"1234")

    assert whole.get(*SLOT)[0] == b"1234"
    assert broken.get(*SLOT)[0] != b"1234"


def test_a_mistake_in_a_fault_is_told_here(start, monkeypatch):
    monkeypatch.setattr(faults, "MISTAKES", [])
    carrier = start(Blueprint("connector/memory", CONFIG, fault="connector/first-put-wins"))

    with pytest.raises(TypeError):
        carrier.put(*SLOT, 3.5)
    assert faults.MISTAKES == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool])
def test_tensors_cross_bit_for_bit(dtype):
    raw = torch.arange(0, 64, dtype=torch.uint8) % (2 if dtype is torch.bool else 255)
    tensor = raw.view(dtype).view(2, -1)

    got = unpacked(packed([tensor.t(), {"scalar": tensor[0, 0], "none": tensor[:0]}]))

    assert got[0].dtype == dtype
    assert torch.equal(got[0].contiguous().view(torch.uint8), tensor.t().contiguous().view(torch.uint8))
    assert got[1]["scalar"].shape == ()
    assert got[1]["none"].shape == (0, tensor.shape[1])


def test_what_is_the_engines_own_stays_behind():
    rows = (torch.ones(2, 1, 1),)
    delivery = Delivery(Outcome.HIT, KVPayload(rows, (None,)), 8, 2, {"seq_len": 2}, native=object())

    got = unpacked(packed(delivery))

    assert got.native is None
    assert (got.outcome, got.size, got.metadata, got.payload.values) == (Outcome.HIT, 8, {"seq_len": 2}, (None,))
    assert torch.equal(got.payload.keys[0], rows[0])


def test_memory_of_new_names_is_counted_as_it_is_touched(tmp_path):
    (tmp_path / "old").write_bytes(bytes(1 << 16))
    left = Leftovers(tmp_path)
    with (tmp_path / "new").open("wb") as file:
        file.truncate(1 << 20)
        assert left.allocated() == 0
        file.write(b"x" * (1 << 16))
        file.flush()
        os.fsync(file.fileno())

    assert 1 << 16 <= left.allocated() < 1 << 20


def test_leftovers_are_new_names_that_nobody_uses(tmp_path):
    (tmp_path / "old").touch()
    left = Leftovers(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").touch()
    assert left.abandoned() == ["file", "folder"]

    with (tmp_path / "file").open(), (tmp_path / "folder" / "inside").open():
        assert left.abandoned(["file"]) == []


def test_leftovers_of_another_run_are_none(tmp_path):
    left = Leftovers(tmp_path)
    (tmp_path / "assay-shm-1").mkdir()
    (tmp_path / f"{mark_of(1)}file").touch()

    assert left.abandoned(["assay-shm-2", mark_of(2)]) == []
    assert left.abandoned(["assay-shm-1", mark_of(1)]) == ["assay-run-1-file", "assay-shm-1"]


def test_only_what_is_marked_new_and_unused_is_removed(tmp_path):
    (tmp_path / "old-mine").touch()
    left = Leftovers(tmp_path)
    for name in ("new-mine", "used-mine", "somebody's"):
        (tmp_path / name).touch()
    (tmp_path / "folder-mine").mkdir()

    with (tmp_path / "used-mine").open():
        left.remove(["mine"])

    assert sorted(path.name for path in tmp_path.iterdir()) == ["old-mine", "somebody's", "used-mine"]
