"""A tiny suite in pytester's directory, run through the plugin with the toy engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import hypothesis.core
import pytest
import rich.table
import xdist.dsession
import xdist.scheduler
import xdist.workermanage

import harness.core.doctor.repeat
import harness.tables
import harness.transfer.faults
import harness.transfer.workload
import harness.transfer.wrong_inputs
from harness.core import faults

BEFOREHAND = (hypothesis.core, harness.core.doctor.repeat, rich.table, xdist.dsession, xdist.scheduler, harness.tables, harness.transfer)
"""Imported before any inner run. pytester forgets what an inner run imports, and these take long or must be the same inside and outside."""

ROOT = Path(__file__).parents[2]
VERSION = metadata.version("pluggy")
"""The version that the toy passes for its own."""

HEADER = """
import json
import pytest
import torch
from harness.core.capabilities import ConnectorCap, requires
from harness.core.claims import Level, claim
from harness.pytest_plugin.state import RUN
from markers import register_ci, register_cuda_ci
"""


@dataclass
class Ran:
    """One inner run: its exit code, what it printed, and what it recorded."""

    ret: int
    stdout: str
    stderr: str
    log: Path
    junit: Path

    @property
    def printed(self) -> str:
        return self.stdout + self.stderr

    def lines(self) -> list[dict]:
        """The report log, a dictionary a line."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def reports(self) -> list[dict]:
        return [line for line in self.lines() if line.get("$report_type") == "TestReport"]

    def properties(self) -> dict[str, dict]:
        """The last properties of each test, by its name without the file."""
        found = {}
        for report in self.reports():
            properties = dict(report["user_properties"])
            if "verdict" in properties:
                found[properties["test"].rpartition("::")[2]] = properties
        return found

    def verdicts(self) -> dict[str, str]:
        return {test: properties["verdict"] for test, properties in self.properties().items()}

    def counts(self) -> Counter[str]:
        return Counter(self.verdicts().values())

    def only(self) -> dict:
        """The properties of the only test."""
        (properties,) = self.properties().values()
        return properties

    @property
    def verdict(self) -> str:
        return self.only()["verdict"]

    def session(self) -> dict:
        (record,) = [line for line in self.lines() if line.get("$report_type") == "AssaySession"]
        return record

    def cases(self) -> list[ET.Element]:
        return list(ET.parse(self.junit).getroot().iter("testcase"))

    def junit_session(self) -> dict:
        """The session's record in the JUnit file."""
        (record,) = [p.get("value") for p in ET.parse(self.junit).getroot().iter("property") if p.get("name") == "assay"]
        return json.loads(record)

    def replay(self) -> str:
        """The replay command as it is printed under the first failure."""
        return re.search(r"^replay +(.+)$", self.stdout, re.MULTILINE)[1]

    def shown(self) -> list[str]:
        """The first failure text, a line each, from the headline to the replay command."""
        lines = self.stdout.splitlines()
        end = next(i for i, line in enumerate(lines) if line.startswith("replay "))
        start = next(i for i in range(end, 0, -1) if lines[i - 1].startswith("____"))
        return lines[start : end + 1]


class Suite:
    """The inner suite. `check` adds tests, `run` runs them in this process, `shell` and `start` in one of their own."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester, self.path, self.monkeypatch = pytester, pytester.path, monkeypatch
        (self.path / "suites/connector").mkdir(parents=True)
        shutil.copy(ROOT / "pyproject.toml", self.path)
        shutil.copy(Path(__file__).with_name("toy_engine.py"), self.path / "toy.py")
        self.path.joinpath("conftest.py").write_text('pytest_plugins = ["harness.pytest_plugin"]\n')
        self.file = self.path / "suites/connector/test_toy.py"
        self.runs = 0
        monkeypatch.syspath_prepend(str(self.path))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(self.path), str(ROOT)]))
        monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        # xdist froze its copy for the workers when it was imported.
        monkeypatch.setattr(xdist.workermanage, "_sys_path", [str(self.path), str(ROOT), *sys.path])
        for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "FORCE_COLOR", "PY_COLORS"):
            monkeypatch.delenv(name, raising=False)
        # A toy suite that plants its own faults does it in these, and leaves the real ones alone.
        monkeypatch.setattr(faults, "_REGISTERED", dict(faults._REGISTERED))
        monkeypatch.setattr(faults, "KINDS", faults.KINDS)

    def check(self, body: str, name: str = "it", *, takes: str = "engine, judge", before: str = "", doc: str = "The toy does it.") -> None:
        """Add one test of the claim `connector.toy.<name>`."""
        test = f'@claim("connector.toy.{name}", source="the toy")\n{textwrap.dedent(before)}\ndef test_{name}({takes}):\n'
        self.write(test + textwrap.indent(f'"""{doc}"""\n{textwrap.dedent(body)}\n', "    "))

    def write(self, source: str) -> None:
        """Append to the suite's file as it stands."""
        if not self.file.exists():
            self.file.write_text(HEADER)
        with self.file.open("a") as file:
            file.write(f"\n{textwrap.dedent(source)}\n")

    def plant(self, *names: str) -> None:
        """Leave only these of the toy's faults."""
        self.monkeypatch.setenv("TOY_FAULTS", " ".join(names))

    def known(self, **fields: object) -> None:
        """Write ci/known_failures.toml with one entry; a field of None is left out."""
        entry = {
            "engine": "connector/toy", "versions": [VERSION], "claim": "connector.toy.it", "verdict": "FAIL",
            "evidence": "seen here", "issue": "https://example.org/1", "owner": "toy", "opened": "2026-01-01", "look_again": "2026-12-31",
        }  # fmt: skip
        entry |= fields
        lines = [
            f"{k} = {v if k in ('opened', 'look_again') and isinstance(v, str) else json.dumps(v)}"
            for k, v in entry.items()
            if v is not None
        ]
        self.path.joinpath("ci").mkdir(exist_ok=True)
        self.path.joinpath("ci/known_failures.toml").write_text("[[failure]]\n" + "\n".join(lines) + "\n")

    def run(self, *args: str, adapter: str = "Toy", engine: str | None = "") -> Ran:
        """Run in this process: the adapter given, by its own name unless another (or None: none) is given."""
        return self.collect(self.pytester.runpytest_inprocess, *self.args(adapter, engine), *args)

    def spawn(self, *args: str) -> Ran:
        """Run in a process of its own."""
        return self.collect(lambda *a: self.pytester.runpytest_subprocess(*a, timeout=60), *self.args("Toy", ""), *args)

    def args(self, adapter: str = "Toy", engine: str | None = "") -> list[str]:
        engine = f"connector/{adapter.lower()}" if engine == "" else engine
        return ["--adapter", f"toy:{adapter}", *(["--engine", engine] if engine else [])]

    def collect(self, run, *args: str) -> Ran:
        self.runs += 1
        log, junit = self.path / f"run{self.runs}.jsonl", self.path / f"run{self.runs}.xml"
        result = run("-p", "no:cacheprovider", f"--report-log={log}", f"--junitxml={junit}", *args)
        return Ran(int(result.ret), result.stdout.str(), result.stderr.str(), log, junit)

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a printed command as a reader would: in a shell, from the root."""
        return subprocess.run(["bash", "-c", command], cwd=self.path, capture_output=True, text=True, timeout=60, check=False)

    def interrupted(self, *args: str, by: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Run in a process of its own and press Ctrl-C once the toy hangs. The exit code and what was printed."""
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *self.args(), *args]
        with subprocess.Popen(command, cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            give_up = time.monotonic() + 60
            while "hangs" not in self.log() and process.poll() is None and time.monotonic() < give_up:
                time.sleep(0.05)
            process.send_signal(by)
            printed, _ = process.communicate(timeout=60)
        return process.returncode, printed

    def log(self) -> list[str]:
        """What happened to the toy, in order."""
        path = self.path / "toy.log"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """An empty inner suite of kind connector."""
    for name in ("CI", "BUILD_NUMBER"):  # pytest prints longer lines where it finds them
        monkeypatch.delenv(name, raising=False)
    return Suite(pytester, monkeypatch)
