"""The Makefile, run with a Python that only notes what it was asked to do."""

import os
import re
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from harness.core.registry import builtin_specs

ROOT = Path(__file__).resolve().parents[2]
RUN = "-m pytest suites -m cpu --junitxml=results/conformance.xml --report-log=results/conformance.jsonl"
REPORT = "-m harness report results/conformance.jsonl -o results/report"
TARGETS = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)

FAKE_PYTHON = """\
#!/bin/sh
# Passes every check, makes environments that hold a copy of it, and writes down its pip and pytest commands.
case "$*" in
  "-m venv "*) for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python"; echo venv >> log ;;
  *ensurepip*) [ ! -e no-venv ] ;;
  *version_info*) [ ! -e too-old ] ;;
  *"-m pip install"*) echo pip >> log; [ ! -e no-network ] ;;
  *engine_env.py*) echo building; echo ./python ;;
  "-m pytest"*) echo "$*" >> log; mkdir -p results; [ -e no-record ] || echo {} > results/conformance.jsonl; [ ! -e tests-fail ] ;;
  "-m harness report"*) echo "$*" >> log; [ ! -e report-fails ] ;;
  -V) echo Python 3.9.2 ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python").write_text(FAKE_PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(checkout, *arguments):
    # What a make around this test was given, such as ARGS, is not meant for the one inside.
    given = {name: value for name, value in os.environ.items() if name not in ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")}
    return subprocess.run(["make", "PYTHON=./python", *arguments], cwd=checkout, env=given, capture_output=True, text=True, check=False)


def done(checkout):
    """The commands of the fake Python since the last call."""
    log = checkout / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def test_help_is_the_default_and_lists_every_target(checkout):
    shown = make(checkout).stdout

    assert re.findall(r"^make (\w+)", shown, flags=re.MULTILINE) == TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_dry_run(checkout, target):
    ran = make(checkout, "--dry-run", target, "NAME=vllm-omni")

    assert (ran.returncode, ran.stderr) == (0, "")


def test_first_run_installs_and_second_does_not(checkout):
    assert make(checkout, "conformance").returncode == 0
    assert done(checkout)[:3] == ["venv", "pip", "pip"]
    assert make(checkout, "conformance").returncode == 0

    assert done(checkout) == [RUN, REPORT]


@pytest.mark.parametrize(
    ("broken", "did", "status"),
    [
        ((), [RUN, REPORT], 0),
        (("tests-fail",), [RUN, REPORT], 2),
        (("report-fails",), [RUN, REPORT], 2),
        (("tests-fail", "report-fails"), [RUN, REPORT], 2),
        (("tests-fail", "no-record"), [RUN], 2),
    ],
)
def test_conformance_ends_in_a_report(checkout, broken, did, status):
    """Also where tests fail; not of an earlier run's record. make itself exits with 2 where a command fails."""
    make(checkout, "conformance")
    done(checkout)
    for name in broken:
        (checkout / name).touch()

    assert make(checkout, "conformance").returncode == status
    assert done(checkout) == did


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_a_changed_pin_installs_into_the_environment_that_is_there(checkout, name):
    make(checkout, "lint")
    done(checkout)
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    make(checkout, "lint")

    assert done(checkout) == ["pip", "pip"]


def test_an_interrupted_install_is_done_anew(checkout):
    (checkout / "no-network").touch()
    assert make(checkout, "lint").returncode != 0
    assert done(checkout) == ["venv", "pip"]
    (checkout / "no-network").unlink()
    make(checkout, "lint")

    assert done(checkout) == ["venv", "pip", "pip"]


def test_test_runs_tests_then_embedded_engines_then_proof(checkout):
    make(checkout, "test", "EMBEDDED=*/reference connector/memory", "WORKERS=2", "ARGS=-x")
    tests, embedded, proof = done(checkout)[3:]

    assert tests.startswith("-m pytest tests -n 2 ")
    assert embedded.startswith("-m pytest suites -m cpu --engine */reference --engine connector/memory ")
    assert proof.startswith("-m pytest suites --prove ")
    assert all(line.endswith(" -x") for line in (tests, embedded, proof))


@pytest.mark.parametrize(
    ("name", "picked"),
    [
        ("vllm-omni", "*/vllm-omni* --engine duplex/personaplex"),
        ("vllm-omni-0.30", "*/vllm-omni* --engine duplex/personaplex"),
        ("moshi-0.2.13", "*/moshi*"),
        ("sglang2", "*/sglang2*"),
    ],
)
def test_engine_is_what_begins_like_the_environment_without_its_version(checkout, name, picked):
    assert make(checkout, "engine", f"NAME={name}").returncode == 0

    assert done(checkout) == [
        f"-m pytest suites -m cpu --engine {picked} --junitxml=results/engine-{name}.xml --report-log=results/engine-{name}.jsonl"
    ]


def test_every_engine_that_has_an_environment_is_picked_by_its_name(checkout):
    """Also one that is called otherwise."""
    housed = [spec for spec in builtin_specs() if spec.environment]
    assert housed
    for spec in housed:
        make(checkout, "engine", f"NAME={spec.environment}")
        words = done(checkout)[-1].split()
        patterns = [words[at + 1] for at, word in enumerate(words) if word == "--engine"]

        assert any(fnmatchcase(spec.name, pattern) for pattern in patterns), (spec.name, patterns)


@pytest.mark.parametrize(
    ("arguments", "marker", "says"),
    [
        (["test"], "too-old", "Assay needs Python 3.10 to 3.13; ./python is Python 3.9.2"),
        (["test"], "no-venv", "python3-venv"),
        (["test", "PYTHON=no-such-python"], None, "no-such-python is not there"),
        (["engine"], None, "NAME=vllm-omni"),
    ],
)
def test_what_is_missing_is_named(checkout, arguments, marker, says):
    if marker:
        (checkout / marker).touch()
    ran = make(checkout, *arguments)

    assert ran.returncode == 2
    assert says in ran.stderr
    assert done(checkout) == []
