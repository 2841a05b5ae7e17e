"""Leases of cards between real processes, on cards that are simulated: no two hold one, nobody is passed, and the dead hold nothing."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.simulated_cards import simulate, uuid_of
from harness.core import leases
from harness.core.devices import cards
from harness.core.leases import LeaseError, take

PROGRAM = Path(__file__).with_name("lease_holder.py")
ROOT = Path(__file__).parents[2]
GIVE_UP = 60.0
"""Seconds after which a wait of a test fails."""


class Site:
    """Processes that want cards, in the order in which they asked. The log and the queue's files say how they stand."""

    def __init__(self, path, flags):
        self.folder, self.log, self.flags = path / "locks", path / "log", flags
        self.processes, self.needs = [], {}
        self.folder.mkdir(mode=0o700)
        self.log.touch()

    def start(self, number, *flags, deadline=GIVE_UP):
        """One more process, which holds its cards or stands in the queue when this returns."""
        words = [sys.executable, str(PROGRAM), str(self.folder), str(number), str(deadline), str(self.log), *self.flags, *flags]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.processes.append(process)
        self.needs[process.pid] = number
        until(lambda: process.pid in self.holding() or process.pid in self.queued() or process.poll() is not None)
        return process

    def queued(self):
        """Process numbers, in the queue's order."""
        places = sorted(path for path in (self.folder / "queue").glob("[0-9]*"))
        return [int(pid) for path in places for pid in re.findall(r'"pid": (\d+)', read(path))]

    def holding(self):
        """Process number to the cards that it holds, by the log."""
        held = {}
        for word, pid, *indices in map(str.split, self.log.read_text().splitlines()):
            if word == "begin":
                held[int(pid)] = indices
            else:
                del held[int(pid)]
        return held

    def waiting(self):
        """Processes that live and hold nothing, in the order in which they asked."""
        return [p.pid for p in self.processes if p.poll() is None and p.pid not in self.holding()]

    def end(self, process):
        process.stdin.close()
        assert process.wait(GIVE_UP) == 0


def read(path):
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def until(met):
    """Wait for what must come; a deadline that passes is the test's failure."""
    give_up = time.monotonic() + GIVE_UP
    while not met():
        assert time.monotonic() < give_up, "it did not come to that"
        time.sleep(0.01)


def overlaps(log):
    """Cards that were given to a process while another held them."""
    holder, found = {}, []
    for word, pid, *indices in map(str.split, log.splitlines()):
        for index in indices:
            if word == "begin":
                found += [(index, holder[index], pid)] if index in holder else []
                holder[index] = pid
            else:
                holder.pop(index, None)
    return found


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A function that opens a site with a number of cards; whatever runs there at the end is killed."""
    opened = []

    def make(number, *flags):
        simulate(tmp_path / "driver", number, monkeypatch)
        opened.append(Site(tmp_path, flags))
        return opened[0]

    yield make
    for process in (p for site in opened for p in site.processes):
        with process:
            process.kill()
    cards.cache_clear()


def test_sixteen_processes_on_eight_cards(site):
    """Groups of one, two and four: no deadlock, no card given twice, nobody passed, and who waits needs more than is free."""
    draw, at = random.Random(6), site(8)
    for number in draw.sample([1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4], 16):
        at.start(number)
    order, ended = [p.pid for p in at.processes], 0
    while ended < 16:
        until(lambda: not at.waiting() or 8 - sum(map(len, at.holding().values())) < at.needs[at.waiting()[0]])
        holding, waiting = at.holding(), at.waiting()
        assert all(len(held) == at.needs[pid] for pid, held in holding.items())
        assert not waiting or max(order.index(pid) for pid in holding) < order.index(waiting[0])
        ends = draw.choice(sorted(holding))
        at.end(next(p for p in at.processes if p.pid == ends))
        ended += 1

    assert at.log.read_text().count("begin") == 16
    assert overlaps(at.log.read_text()) == []


def test_without_locks_cards_overlap(site):
    """The twin: what the check above looks for does happen where nobody locks."""
    at = site(8, "--without-locks")
    first, second = at.start(4), at.start(4)
    until(lambda: len(at.holding()) == 2)
    at.end(first)
    at.end(second)

    assert overlaps(at.log.read_text()) != []


def test_all_or_none(site):
    """One that needs four of four waits without holding those that are free; one that came later does not take them."""
    at = site(4)
    one, four, late = at.start(1), at.start(4), at.start(1)

    assert [at.holding(), at.waiting()] == [{one.pid: ["0"]}, [four.pid, late.pid]]
    assert [leases.is_held(at.folder / uuid_of(i)) for i in range(1, 4)] == [False] * 3
    at.end(one)
    until(lambda: at.holding() == {four.pid: ["0", "1", "2", "3"]})


@pytest.mark.parametrize("flags", [(), ("--forks",)], ids=["alone", "with a forked child"])
def test_a_killed_process_holds_nothing(site, flags):
    """SIGKILL frees its cards, also while a child that it forked lives on."""
    at = site(2)
    killed, waits = at.start(2, *flags), at.start(2)
    child = int(killed.stdout.readline().split()[1])
    killed.kill()
    until(lambda: waits.pid in at.holding())

    assert not child or is_alive(child)


def test_a_fork_that_kept_the_lock(site):
    """The twin: a child that does not let go keeps the cards, and the one that waits is told so."""
    at = site(2)
    killed = at.start(2, "--forks", "--forks-keep-locks")
    child = int(killed.stdout.readline().split()[1])
    killed.kill()
    killed.wait(GIVE_UP)
    refused = at.start(1, deadline=0.3).communicate()[0]

    assert is_alive(child)
    assert f"card 0 is held by a process that pid {killed.pid} started before it ended" in refused
    os.kill(child, signal.SIGKILL)


def test_a_killed_process_leaves_the_queue(site):
    """One that dies while it waits is no longer waited for."""
    at = site(4)
    one, four, late = at.start(1), at.start(4), at.start(1)
    four.kill()
    until(lambda: late.pid in at.holding())

    assert set(at.holding()) == {one.pid, late.pid}


def is_alive(pid):
    return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()


def test_the_deadline_says_who_holds_what(site):
    """And who waits before."""
    at = site(2)
    one, two = at.start(1), at.start(2)
    refused = at.start(1, deadline=0.3).communicate()[0]

    assert refused.startswith("refused waited 0.3 s for 1 card(s): card 0 is held by pid")
    assert f"card 0 is held by pid {one.pid} (1 card(s), since 20" in refused
    assert f"pid {two.pid} (2 card(s), since 20" in refused
    assert refused.rstrip().endswith("waits before this process")
    assert "card 1" not in refused


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that takes cards in this process, on a machine with eight; they are given back at the end."""
    simulate(tmp_path / "driver", 8, monkeypatch)
    taken = []

    def lease(number, *classes):
        taken.append(take(number, classes, deadline=0, folder=tmp_path / "locks"))
        return taken[-1]

    yield lease
    for one in taken:
        one.release()
    cards.cache_clear()


def test_the_environment_names_the_cards(machine):
    """By UUID; another lease is given others, and each gives back what it found."""
    first, second = machine(2, "H100"), machine(1)

    assert os.environ["CUDA_VISIBLE_DEVICES"] == uuid_of(2)
    second.release()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == f"{uuid_of(0)},{uuid_of(1)}"
    first.release()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_card_without_a_uuid_goes_by_its_index(machine, tmp_path, monkeypatch):
    """In the driver's own order, which is not CUDA's default."""
    program = tmp_path / "driver/nvidia-smi"
    program.write_text(program.read_text().replace(uuid_of(1), "[N/A]"))
    cards.cache_clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    machine(1)

    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"]) == ("1", "PCI_BUS_ID")
    assert (tmp_path / "locks/index-1").exists()


@pytest.mark.parametrize("visible", ["5,3", f"{uuid_of(5)},{uuid_of(3)}", "3,5,-1,0"])
def test_only_among_those_that_the_user_left(machine, monkeypatch, visible):
    """However they are named."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert [card.index for card in machine(2).cards] == [3, 5]


@pytest.mark.parametrize(
    ("visible", "number", "classes", "text"),
    [
        ("5,3", 4, ["H100"], "one process needs 4 card(s), each of class H100; 2 of 2 here fit"),
        ("0", 1, ["H100", "L4"], "each of class H100 and L4; 0 of 1 here fit; run classes apart, with -m"),
        ("MIG-1", 1, [], "CUDA_VISIBLE_DEVICES=MIG-1: leases are of whole cards"),
    ],
)
def test_cards_that_cannot_be_had(machine, monkeypatch, visible, number, classes, text):
    """Nobody waits for what will not come."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    with pytest.raises(LeaseError) as refused:
        machine(number, *classes)
    assert text in str(refused.value)


def test_refused_once_cuda_runs(machine, monkeypatch):
    """torch says so."""
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)

    with pytest.raises(LeaseError, match="CUDA runs in this process already"):
        machine(1)


DRIVER = "int cuDeviceGetCount(int *count) { *count = 1; return %d; }"
"""Of libcuda, what is asked."""


@pytest.mark.parametrize(("code", "refused"), [(0, True), (3, False)], ids=["initialised", "not initialised"])
def test_refused_once_the_driver_is_initialised(tmp_path, code, refused):
    """Also by what torch does not count, such as torch.cuda.is_available: the driver's library is asked, where it is loaded."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (tmp_path / "driver.c").write_text(DRIVER % code)
    library = ["-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *library, str(tmp_path / "driver.c")], check=True)
    asked = f"import ctypes; kept = ctypes.CDLL('{tmp_path}/libcuda.so.1'); from harness.core import leases; leases.refuse_if_started()"
    ran = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )

    assert ("CUDA runs in this process already" in ran.stderr, ran.returncode) == (refused, int(refused))


def test_a_folder_of_somebody_elses(machine, tmp_path, monkeypatch):
    """The name of the common folder can be guessed: one that another user made first is not written to."""
    monkeypatch.setattr(leases.os, "getuid", lambda: 12345)

    with pytest.raises(LeaseError, match="is not a folder of this user's; remove it"):
        machine(1)
