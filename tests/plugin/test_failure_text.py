"""What a failure looks like, and that the command printed under it fails the same way."""

import re
import shlex
import subprocess

import pytest

from harness.pytest_plugin.text import command

HOLDS = "judge.equal(engine.echo(1), 1, 'echo')"
BREAKS = "judge.equal(engine.echo(1), 2, 'echo', source='arithmetic')"
ESCAPE = "\x1b"


def test_golden(suite):
    """Headline, claim, got, expected, extent, stimulus, control, replay, in that order and aligned."""
    suite.check(
        """
        run = lambda: {"echo": engine.echo(1)}
        judge.controlled("key", run, run)
        judge.stimulus = "four zeros"
        judge.same_bits(torch.zeros(2, 2), torch.tensor([[0.0, 0.0], [0.0, 1.0]]), "audio", source="arithmetic", axes=("tick", "slot"))
        """,
        doc="The toy says what it is told.",
    )
    ran = suite.run("--seed", "5")

    assert ran.shown() == [
        "BITS DIFFER  connector/toy@cpu  connector.toy.it",
        "claim     The toy says what it is told.",
        "got       audio[tick 1, slot 1] = 0x00000000 (0)",
        "expected  0x3f800000 (1), from arithmetic",
        "extent    1/4 values",
        "stimulus  seed 5; four zeros",
        "control   A, B, A: both A runs identical over 1 records",
        'replay    pytest "suites/connector/test_toy.py::test_it[connector/toy@cpu]" --seed 5 --adapter toy:Toy',
    ]


@pytest.mark.parametrize(
    "body",
    [
        BREAKS,
        "engine.fail()",
        "engine.echo(1)",
        "assert [engine.echo(1)] * 30 == list(range(30))",
        "judge.equal(engine.echo('one\\ntwo\\n' * 500), 'three\\n' * 500, 'echo')",
        f"{HOLDS}\nengine.hold(1)",
    ],
    ids=["wrong", "raises", "vacuous", "bare assert", "many lines", "leak"],
)
def test_ten_lines(suite, body):
    """Every failure reads in ten lines or fewer, none of them longer than a reader follows, and without a traceback."""
    suite.check(body)
    ran = suite.run()

    assert ran.ret == 1
    assert 4 <= len(ran.shown()) <= 10
    assert all(len(line) <= 260 for line in ran.shown())
    assert "Traceback" not in ran.stdout
    assert not re.search(r"test_toy\.py:\d", ran.stdout)


def test_traceback_on_demand(suite):
    """With -vv the traceback stands above the text."""
    suite.check(BREAKS)
    ran = suite.run("-vv")

    assert re.search(r"test_toy\.py:\d+", ran.stdout)
    assert "WRONG ANSWER  connector/toy@cpu" in ran.stdout


@pytest.mark.parametrize("args", [[], ["--color=yes"]])
def test_escape_codes(suite, args):
    """Into a file there are no escape codes, nor where NO_COLOR is set; on demand there are."""
    suite.check(BREAKS)
    ran = suite.run(*args)

    assert (ESCAPE in ran.stdout) is bool(args)


def test_no_color(suite, monkeypatch):
    """NO_COLOR is kept to in every table, and so is --color=no."""
    monkeypatch.setenv("NO_COLOR", "1")
    suite.check(BREAKS)

    assert ESCAPE not in suite.run("--color=auto").stdout
    assert ESCAPE not in suite.run("--list-engines").stdout


def replayed(suite, ran, run):
    """The failure as first shown, and as shown by the replay, less the replay command itself."""
    again = run(ran.replay())
    return ran.shown()[:-1], again.shown()[:-1]


def in_process(suite):
    """Runs a command's words in this process."""

    def run(printed):
        words = shlex.split(printed)
        assert words[0] == "pytest"
        return suite.collect(suite.pytester.runpytest_inprocess, *words[1:])

    return run


@pytest.mark.parametrize(
    ("args", "body"),
    [
        ([], BREAKS),
        ([], f"{HOLDS}\nengine.hold(1)"),
        ([], "engine.echo(1)"),
        (["--seed", "7"], "judge.equal(torch.initial_seed(), 0, 'seed')"),
        (["--engine", "connector/toy:mode=loud"], "judge.equal(engine.option(), 'plain', 'mode')"),
        (["--engine", "connector/toy:mode=with space"], "judge.equal(engine.option(), 'plain', 'mode')"),
        (
            ["--set", "transfer.layers=3"],
            "judge.equal(request.config.stash[RUN].workloads['transfer'].layers, 2, 'layers')",
        ),
    ],
    ids=["plain", "leak", "vacuous", "seed", "option", "option with a space", "set"],
)
def test_replay(suite, args, body):
    """The printed command runs the one test and fails the same way: every line but the command itself is the same."""
    suite.check(body, takes="engine, judge, request")
    suite.check(BREAKS, "other")
    ran = suite.run(*args, engine=None if "--engine" in args else "")
    first, again = replayed(suite, ran, in_process(suite))

    assert first == again
    assert len(first) > 2


@pytest.mark.parametrize("option", [["--prove"], ["--fault", "connector/wrong"]], ids=lambda o: o[0])
def test_replay_of_a_fault(suite, option):
    """A failure under a fault is replayed with the fault planted: one seen by hand, and one that a proof complains of."""
    suite.plant("wrong", "alarming")
    suite.check(HOLDS, "first")
    suite.check(HOLDS, "second")
    ran = suite.run(*option)
    again = in_process(suite)(ran.replay())
    kept = ("got ", "expected ", "claim ", "stimulus ")

    assert again.ret == 1
    assert [s for s in ran.shown() if s.startswith(kept)] == [s for s in again.shown() if s.startswith(kept)]
    assert "echo = 2" in again.stdout


def test_replay_in_a_shell(suite):
    """As printed, in a shell, from the root: with an adapter, options, a constant, a deadline and a fault, the failure is the same."""
    suite.plant("wrong")
    suite.check(HOLDS, "first")
    options = ["--engine", "connector/toy:mode=with space", "--set", "transfer.layers=3", "--deadline", "20", "--fault", "connector/wrong"]
    ran = suite.run(*options, engine=None)
    again = suite.shell(ran.replay())

    assert again.returncode == 1
    assert "\n".join(ran.shown()) in again.stdout


@pytest.mark.parametrize("word", ["plain", "two words", "a[b]", 'say "hi"', "$HOME", "`id`", "back\\slash", "it's", "wow!", "", "a;b", "ü"])
def test_quoting(word):
    """A shell reads back the words that were written."""
    printed = subprocess.run(["bash", "-c", f"printf '%s\\n' {command(['x', word])}"], capture_output=True, text=True, check=True).stdout

    assert printed == f"x\n{word}\n"
