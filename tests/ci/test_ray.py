"""Lanes on a real Ray cluster of several nodes of this machine, whose cards are simulated; a node is killed while a shard hangs on it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import junitparser
import pytest
import ray
from ray.cluster_utils import Cluster

from ci import ray_runner
from ci.lanes import Lane
from ci.ray_cluster import declared, options_of, resources_of, satisfiable
from ci.ray_job import Job, Rules
from ci.ray_shards import Shards
from ci.ray_task import commit_of
from tests.ci import checkout

DEADLINE = 120.0
"""Seconds; for what takes a few where nothing else runs."""
STORE = 80 * 2**20
NODE = {"num_cpus": 1, "num_gpus": 2, "resources": declared("H100", 2), "object_store_memory": STORE}


@pytest.fixture(scope="module")
def cluster():
    """A head that runs nothing, and two nodes with one CPU and two cards each. No process of it is left at the end."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: it holds sockets
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "RAY_ADDRESS"):
            patch.delenv(name, raising=False)
        head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False, "temp_dir": folder}
        started = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            started.add_node(**NODE)
        ray.init(address=started.address, log_to_driver=False, logging_level="ERROR")
        yield started
        ray.shutdown()
        started.shutdown()
    assert left(folder) == []
    shutil.rmtree(folder)


@pytest.fixture
def root(tmp_path):
    """A checkout with lanes `dies`, `fails` and `hangs`. No process is left in it at the end."""
    made = checkout.make(tmp_path / "checkout")
    yield made
    assert left(str(made)) == []


def left(folder: str) -> list[str]:
    """The commands that run in a folder, or name it, and do not end within the deadline."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            inside = str((process / "cwd").readlink()).startswith(folder) or folder in command
            if inside and int(process.name) != os.getpid() and not ends(int(process.name)):
                found.append(command)
    return found


def ends(pid: int) -> bool:
    """Whether a process ends within the deadline."""
    handle = os.pidfd_open(pid)
    try:
        return bool(select.select([handle], [], [], DEADLINE)[0])
    finally:
        os.close(handle)


class Driver:
    """`python -m ci.ray_runner` in a process of its own. `hung` waits for a test that hangs, `wait` for the end."""

    def __init__(self, root: Path, address: str, lane: str, *options: str) -> None:
        self.root, self.lane = root, lane
        self._bell = os.open(root / "bell", os.O_RDWR)
        self._output = root / "printed"
        command = [sys.executable, "-m", "ci.ray_runner", "--lane", lane, "--address", address, "--out", "results", *options]
        with self._output.open("w") as output:
            self.process = subprocess.Popen(command, cwd=root, stdout=output, stderr=subprocess.STDOUT)

    def hung(self) -> tuple[int, int]:
        """The process of the test that hangs, and its node's raylet."""
        ready, _, _ = select.select([self._bell], [], [], DEADLINE)
        assert ready, self.printed
        pid, raylet = os.read(self._bell, 100).split()
        return int(pid), int(raylet)

    def wait(self) -> int:
        try:
            return self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            os.close(self._bell)

    @property
    def printed(self) -> str:
        return self._output.read_text()

    @property
    def log(self) -> Path:
        return self.root / f"results/{self.lane}-own.jsonl"

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def cases(self) -> list[str]:
        return [case.name for suite in junitparser.JUnitXml.fromfile(str(self.log.with_suffix(".xml"))) for case in suite]


TESTS = {f"suites/connector/test_small.py::test_{t}[connector/{e}@cpu]" for t in ("first", "second", "third") for e in ("toy", "other")}


def lost(lines: list[dict]) -> set[str]:
    """Tests of the lane `dies` without a result."""
    return TESTS - {line["nodeid"] for line in lines if line.get("when") == "call"}


def doubled(lines: list[dict]) -> set[str]:
    return {test for test, times in Counter(line["nodeid"] for line in lines if line.get("when") == "call").items() if times > 1}


def kill_node(cluster: Cluster, raylet: int) -> None:
    """End a node with all that runs on it, without a word, and put another in its place."""
    (node,) = [n for n in cluster.worker_nodes if n.all_processes["raylet"][0].process.pid == raylet]
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(**NODE)


def test_nothing_is_lost_or_counted_twice_when_a_node_dies(cluster, root):
    """The shard that ran there runs again, elsewhere, and no other does."""
    driver = Driver(root, cluster.address, "dies")
    kill_node(cluster, driver.hung()[1])
    status, lines, ran = driver.wait(), driver.lines(), Counter(checkout.runs(root))
    shard_of = {line["nodeid"]: line["assay_shard"] for line in lines if "assay_shard" in line}
    (again,) = {shard_of[test] for test, times in ran.items() if times == 2}

    assert status == 0, driver.printed
    assert (lost(lines), doubled(lines)) == (set(), set())
    assert sorted(driver.cases()) == sorted(test.partition("::")[2] for test in TESTS)
    assert f"{again} (attempt 2): started" in driver.printed
    assert {test for test, times in ran.items() if times == 1} >= {test for test in TESTS if shard_of[test] != again}
    assert len(set(shard_of.values())) == 2

    counted_twice = [*lines, *(line for line in lines if line.get("assay_shard") == again)]
    assert doubled(counted_twice) == {test for test in TESTS if shard_of[test] == again}


def test_a_shard_that_died_and_is_not_run_again_is_missed(cluster, root):
    """What it had come through is merged; what it had not is lost, and that is said."""
    driver = Driver(root, cluster.address, "dies", "--retries", "0")
    kill_node(cluster, driver.hung()[1])
    status, lines = driver.wait(), driver.lines()
    (hung,) = [test for test in checkout.runs(root) if "test_second" in test and test in lost(lines)]

    assert status == 3, driver.printed
    assert hung in lost(lines)
    assert doubled(lines) == set()
    assert "for the last time (--retries 0): NodeDiedError" in driver.printed
    assert "no attempt is complete" in driver.printed
    assert lines[-1]["exitstatus"] == 3


def test_a_shard_whose_tests_failed_is_not_run_again(cluster, root):
    driver = Driver(root, cluster.address, "fails")

    assert driver.wait() == 1, driver.printed
    assert sorted(Counter(checkout.runs(root)).values()) == [1, 1]
    assert "run again" not in driver.printed
    assert driver.printed.count("= FAILURES =") == 1
    assert [line["exitstatus"] for line in driver.lines() if "exitstatus" in line] == [1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_shards(cluster, root, number):
    """With what they run, and with what it had."""
    driver = Driver(root, cluster.address, "hangs")
    pid, _ = driver.hung()
    watched = os.pidfd_open(pid)
    driver.process.send_signal(number)

    assert driver.wait() == 2, driver.printed
    assert select.select([watched], [], [], DEADLINE)[0], "the test still hangs"
    assert "hangs-own-1: cancelled after 0 tests" in driver.printed
    assert driver.lines()[-1]["exitstatus"] == 3
    os.close(watched)


class Told:
    """Shards of scripts in place of lanes, run in this process: what was said, and the exit statuses."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines, self.statuses = folder, [], {}

    def run(self, *scripts: str, asks: dict | None = None, **changes) -> Told:
        """Each script is run as a shard by the node's Python, with `--out FOLDER` behind it."""
        order = {"checkout": str(checkout.ROOT), "python": None, "platform": "cpu", "commit": commit_of(checkout.ROOT), "most_bytes": 2**20}
        environment = changes.pop("environment", "own")
        order |= {key: changes.pop(key) for key in list(changes) if key in order}
        rules = Rules(**{"retries": 2, "seconds": DEADLINE, "patience": DEADLINE, "order": order} | changes)
        jobs = [
            Job(f"shard-{n}", environment, ("a test",), ("-c", script), asks or {"CPU": 1}) for n, script in enumerate(scripts, start=1)
        ]
        shards = Shards(jobs, rules, self.folder, self.lines.append)
        shards.run()
        self.statuses = shards.statuses
        return self

    def said(self, text: str) -> int:
        """How many lines say it."""
        return sum(text in line for line in self.lines)


@pytest.fixture
def shards(cluster, tmp_path):
    return Told(tmp_path / "attempts")


@pytest.mark.parametrize("status", [0, 1, 2, 3, 4, 5, 127])
def test_a_shard_that_ended_is_taken_at_its_word(shards, status):
    told = shards.run(f"raise SystemExit({status})")

    assert told.statuses == {"shard-1": status}
    assert told.said(": started") == 1


def test_a_shard_whose_process_a_signal_ended_is_run_again(shards, tmp_path):
    """As when memory ran out. The second attempt ends well."""
    seen = tmp_path / "seen"
    told = shards.run(f"import os, pathlib; p = pathlib.Path({str(seen)!r}); p.exists() or (p.touch(), os.kill(os.getpid(), 9))")

    assert told.statuses == {"shard-1": 0}
    assert told.said("died after 0 tests, is run again: its process was ended by a signal") == 1
    assert told.said(": started") == 2


def test_it_is_run_again_so_often_and_no_more(shards):
    told = shards.run("import os; os.kill(os.getpid(), 9)", retries=1)

    assert told.statuses == {"shard-1": 3}
    assert told.said(": started") == 2
    assert told.said("for the last time (--retries 1)") == 1


def test_a_shard_whose_worker_died_is_run_again(shards, tmp_path):
    """The worker is the process that holds the pipe of the shard's lifeline."""
    seen = tmp_path / "seen"
    worker = "int(open(f'/proc/{lifeline}/stat').read().split()[3])"
    kill = f"lifeline = os.getppid(); shim = {worker}; lifeline = shim; os.kill({worker}, 9); threading.Event().wait({DEADLINE})"
    told = shards.run(f"import os, pathlib, threading\np = pathlib.Path({str(seen)!r})\nif not p.exists():\n    p.touch(); {kill}")

    assert told.statuses == {"shard-1": 0}
    assert told.said("is run again: WorkerCrashedError") == 1


def test_a_shard_gets_the_cards_that_it_asked_for(shards):
    """Two of a class, and no other shard gets them meanwhile: each has the cards of a node to itself."""
    script = "import os; print('cards', os.environ['CUDA_VISIBLE_DEVICES'], os.environ['RAY_RAYLET_PID']); raise SystemExit(1)"
    told = shards.run(script, asks={"CPU": 1, "GPU": 2, "H100": 2})

    assert told.said("with CPU 1, GPU 2, H100 2, 1 tests") == 1
    assert told.said("cards 0,1 ") == 1


@pytest.mark.parametrize("asks", [{"CPU": 1, "GPU": 4, "H100": 4}, {"CPU": 1, "GPU": 1, "H200": 1}, {"CPU": 3}])
def test_what_no_node_has_is_said_within_a_deadline(shards, asks):
    told = shards.run("", asks=asks, patience=1)

    assert told.statuses == {"shard-1": 3}
    assert told.said(f"it asks for {', '.join(f'{k} {v}' for k, v in asks.items())}; the cluster has ") == 1
    assert told.said("(CPU 1, GPU 2, H100 2)") == 1


def test_a_shard_ends_at_its_time_limit_and_is_not_run_again(shards):
    told = shards.run(f"import threading; threading.Event().wait({DEADLINE})", seconds=1)

    assert told.statuses == {"shard-1": 3}
    assert told.said("ended at its limit of 1 s") == told.said(": started") == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"checkout": "/nowhere"}, "no checkout of Assay at /nowhere"),
        ({"python": "/nowhere/python"}, "no Python at /nowhere/python"),
        ({"environment": "vllm-omn"}, "environment vllm-omn was not built"),
        ({"commit": "of another"}, "the driver's at of another; check out the same on every node"),
    ],
    ids=["checkout", "python", "environment", "commit"],
)
def test_a_node_refuses_what_it_cannot_run(shards, changes, text):
    told = shards.run("", **changes)

    assert told.statuses == {"shard-1": 3}
    assert told.said(text) == 1


def test_results_come_back_as_they_were_written_up_to_a_limit(shards):
    """More than a message holds; the shard that wrote too much is refused."""
    text = "".join(f"{n}\n" for n in range(100_000))
    write = "import sys, pathlib; (pathlib.Path(sys.argv[2]) / 'shard-1.{}').write_text(''.join(f'{{n}}\\n' for n in range(100_000)))"
    told = shards.run(f"{write.format('jsonl')}\n{write.format('xml')}", most_bytes=2 * len(text))

    assert told.statuses == {"shard-1": 0}
    assert [path.read_text() == text for path in sorted(told.folder.rglob("shard-1.*"))] == [True, True]

    told = shards.run(f"{write.format('jsonl')}\n{write.format('xml')}", most_bytes=2 * len(text) - 1)
    assert told.statuses == {"shard-1": 3}
    assert told.said("allow more with --max-mib") == 1


def test_output_does_not_steer_the_terminal(shards):
    told = shards.run("print('\\x1b[2Jred\\x07'); raise SystemExit(1)")

    assert told.said("[2Jred") == 1
    assert told.said("\x1b") == 0


def lane(**changes) -> Lane:
    given = {"platform": "cpu", "schedules": ("weekly",), "shards": 1, "minutes": 1, "suites": ("small",)} | changes
    return Lane(name="a", title="a", marks="cpu", environments=("own",), **given)


def test_a_lane_asks_for_its_cards_by_class():
    asked = resources_of(lane(platform="cuda", card_class="H100", cards=4), 8)

    assert asked == {"CPU": 8, "GPU": 4, "H100": 4}
    assert options_of(asked) == {"num_cpus": 8, "num_gpus": 4, "resources": {"H100": 4}}
    assert options_of(resources_of(lane(), 1)) == {"num_cpus": 1, "num_gpus": 0, "resources": {}}


@pytest.mark.parametrize(
    ("card", "asked", "fits"),
    [("H200", "H100", True), ("H100", "H100", True), ("H100", "H200", False), ("L4", "H100", False), ("H100", "L4", False)],
)
def test_a_card_stands_for_every_class_that_it_satisfies(card, asked, fits):
    node = {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 2.0, **declared(card, 2)}}
    wanted = resources_of(lane(platform="cuda", card_class=asked, cards=2), 1)

    assert satisfiable(wanted, [node]) is fits
    assert not satisfiable(wanted, [{**node, "Alive": False}])


def test_no_two_nodes_add_up_to_one():
    nodes = [{"Alive": True, "Resources": {"CPU": 1.0}}] * 2

    assert not satisfiable({"CPU": 2}, nodes)


def test_what_a_node_is_started_with_is_printed(capsys):
    assert ray_runner.main(["--node", "H200", "8"]) == 0
    assert capsys.readouterr().out == """ray start ... --num-gpus=8 --resources='{"H100": 8, "H200": 8}'\n"""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--node", "H20", "8"], "unknown card class 'H20'; nearest: H200"),
        (["--lane", "cp"], "unknown lane 'cp'; nearest: cpu"),
        (["--lane", "cpu", "--environment", "vllm"], "lane cpu: unknown environment 'vllm'; there are: own"),
        (["--lane", "cpu", "--python", "/x"], "--python: give the --environment that it is of"),
        (["--lane", "cpu", "--address", "ray://head:10001"], "a Ray client cannot follow shards"),
    ],
    ids=["class", "lane", "environment", "python", "client"],
)
def test_wrong_use_says_what_to_write(capsys, arguments, text):
    assert ray_runner.main(arguments) == 2
    assert text in capsys.readouterr().err
