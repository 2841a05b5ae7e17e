"""The failure text, word for word: ten lines or fewer, and a command that a shell reads as it was meant."""

import math
import shlex
import subprocess

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.core import guard
from harness.core.capabilities import VOCABULARY
from harness.core.claims import Claim, Level
from harness.core.faults import Fault, Role
from harness.core.judge import Judge
from harness.core.registry import Registry, Selection
from harness.core.spec import Profile, parse_spec
from harness.core.verdict import ClaimBroken, Finding
from harness.pytest_plugin.engines import check_usage
from harness.pytest_plugin.state import Case, Run
from harness.pytest_plugin.text import command, one_line, render

OFFERED = dict.fromkeys((m.value for m in VOCABULARY["connector"]), "full")
SPEC = parse_spec("connector/memory", {"factory": "m:C", "profiles": {"cpu": {}}, "capabilities": OFFERED})
CASE = Case(Selection(SPEC), Profile("cpu"))
CLAIM = Claim("connector.carry.bits", Level.MUST, "a spec", "What was put is got back bit for bit.")
REPLAY = 'pytest "suites/transfer/test_connector.py::test_bits[connector/memory@cpu]" --seed 1234'


def shown(finding, judge=None, *, case=CASE, replay=REPLAY):
    """The text of a finding in a run with seed 1234."""
    run = Run(Registry([SPEC]), [case.selection], frozenset(), seed=1234, deadline=30)
    return render(case, CLAIM, run, finding, judge, replay)


def find(compare):
    """The finding that a comparison ends in."""
    with pytest.raises(Finding) as caught:
        compare()
    return caught.value


def test_bits_that_differ():
    """The whole text: headline, claim, got, expected, extent, stimulus, control, replay."""
    judge = Judge(stimulus="slot 1 recycled at tick 10", control="A, B, A: both A runs identical over 3 records")
    got = torch.ones(2, 4)
    got[1, 2] += 2**-23

    finding = find(lambda: judge.same_bits(got, torch.ones(2, 4), "audio", source="the run without a recycle", axes=["slot", "sample"]))
    assert shown(finding, judge) == (
        "BITS DIFFER  connector/memory@cpu  connector.carry.bits\n"
        "claim     What was put is got back bit for bit.\n"
        "got       audio[slot 1, sample 2] = 0x3f800001 (1.0000001)\n"
        "expected  0x3f800000 (1), from the run without a recycle\n"
        "extent    1/8 values; the first by 1 ulp\n"
        "stimulus  seed 1234; slot 1 recycled at tick 10\n"
        "control   A, B, A: both A runs identical over 3 records\n"
        f"replay    {REPLAY}"
    )


HEAD = "  connector/memory@cpu  connector.carry.bits\nclaim     What was put is got back bit for bit.\n"
TAIL = f"\nstimulus  seed 1234\nreplay    {REPLAY}"
JUDGE = Judge()


@pytest.mark.parametrize(
    ("compare", "headline", "body"),
    [
        (
            lambda: JUDGE.same_bits(torch.zeros(2), torch.zeros(3), "keys", source="the sender"),
            "BITS DIFFER",
            "got       keys of float32[2]\nexpected  float32[3], from the sender\nextent    the whole tensor",
        ),
        (
            lambda: JUDGE.same_bits(torch.tensor([math.nan]), torch.tensor([math.nan]), "keys", source="the sender"),
            "BITS DIFFER",
            "got       keys[axis 0 0] = 0x7fc00000 (nan)\nexpected  0x7fc00000 (nan), from the sender\nextent    1/1 values",
        ),
        (
            lambda: JUDGE.same_bits(None, torch.zeros(3), "keys", source="the sender"),
            "PAYLOAD BROKEN",
            "got       keys: nothing\nexpected  a tensor, from the sender",
        ),
        (
            lambda: JUDGE.equal(1, 2, "calls", source="the witness"),
            "WRONG ANSWER",
            "got       calls = 1\nexpected  2, from the witness",
        ),
        (
            lambda: JUDGE.demand(False, got="hit", expected="no hit: the connector raised"),
            "WRONG ANSWER",
            "got       hit\nexpected  no hit: the connector raised",
        ),
        (
            lambda: JUDGE.differ(torch.zeros(1), torch.zeros(1), "two caches"),
            "STIMULUS INVISIBLE",
            "got       two caches are the same bits\nexpected  a difference, or the check sees nothing",
        ),
        (lambda: JUDGE.taken(0, "the copy"), "PATH NOT TAKEN", "got       the copy: 0 times\nexpected  at least once"),
        (lambda: Judge().close(), "NOTHING COMPARED", "got       0 values compared\nexpected  at least one"),
        (
            lambda: Judge().controlled("k", iter([{"t": 1}, {"t": 2}]).__next__, dict),
            "CONTROL DIFFERS",
            "got       the second A run at t: 2, not 1\nexpected  the first A run, bit for bit",
        ),
        (
            lambda: check_usage("engine", {"pages": 1, "pins": 2}, {"pages": 3, "pins": 2, "futures": 1}),
            "LEAK",
            "got       engine holds futures 1, pages 3 after the test\nexpected  futures None, pages 1, as before it",
        ),
    ],
    ids=lambda p: p if isinstance(p, str) and p.isupper() else "",
)
def test_each_finding(compare, headline, body):
    """What the judge finds reads like this; an empty line is left out."""
    assert shown(find(compare)) == headline + HEAD + body + TAIL


def test_an_engine_that_raised():
    """Several lines of an engine's message are one, and the place stands behind it."""

    def step():
        raise RuntimeError("CUDA error:\n  device-side assert")

    text = shown(find(lambda: guard.call("step", step)))
    place = f"{__file__}:{step.__code__.co_firstlineno + 1}"
    assert text == f"ENGINE RAISED{HEAD}got       RuntimeError: CUDA error: (from step(), at {place}){TAIL}"


def test_a_planted_fault_stands_in_the_headline():
    """So that nobody takes a proof's failure for the engine's; a whole engine shows none."""
    case = Case(CASE.selection, CASE.profile, Fault("connector/null", "m:f", (), len, Role.NULL))

    assert (
        shown(ClaimBroken("X", got="1"), case=case).splitlines()[0] == "X  connector/memory@cpu  connector.carry.bits  fault connector/null"
    )
    assert "fault" not in shown(ClaimBroken("X", got="1"))


@given(got=st.text(max_size=300), expected=st.text(max_size=300), extent=st.text(max_size=300), stimulus=st.text(max_size=300))
@example(got="a\nb\r\nc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i", expected="x\n" * 50, extent="\n", stimulus="\t\n ")
@settings(max_examples=30, deadline=None)
def test_ten_lines_whatever_an_engine_says(got, expected, extent, stimulus):
    """Each part is one line of a length that can be read; the last is the replay."""
    text = shown(ClaimBroken("X", got=got, expected=expected, extent=extent), Judge(stimulus=stimulus, control=got))

    assert len(text.splitlines()) <= 10
    assert len(text.split("\n")) <= 10
    assert all(len(line) <= 10 + 240 + 3 for line in text.splitlines()[:-1])
    assert text.splitlines()[-1] == f"replay    {REPLAY}"


def test_long_lines_are_cut_and_the_replay_never():
    """240 characters are kept whole, one more is cut; a command keeps its length and its spaces."""
    assert one_line("x" * 240) == "x" * 240
    assert one_line("x" * 241) == "x" * 240 + "..."
    assert one_line("  a \n b\t") == "a b"

    replay = f'pytest "{"x" * 400}" --set "transfer.host=a  b"'
    assert one_line(replay, "replay") == replay
    assert shown(ClaimBroken("X", got="1"), replay=replay).endswith(f"\nreplay    {replay}")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00")), min_size=1, max_size=5))
@example(["pytest", "suites/t.py::test_x[connector/memory@cpu]", "", "a'b", 'a"b', "a b", "$HOME", "`x`", "a\\", "!", "é", "*"])
@settings(max_examples=100, deadline=None)
def test_a_command_round_trips(words):
    """What a shell splits is what was joined."""
    assert shlex.split(command(words)) == words


@pytest.mark.parametrize(
    "word", ["", "a b", "a'b", 'a"b', "$HOME", "`id`", "a\\b", "a\\", "!!", "*", "[x]", "~", "#x", "a;b", "a|b", "a&b", "(a)", "é"]
)
def test_a_real_shell_reads_it_too(word):
    """Nothing is expanded."""
    said = subprocess.run(["sh", "-c", f"printf %s {command([word])}"], capture_output=True, text=True, check=True)

    assert said.stdout == word


def test_double_quotes_where_possible():
    """Test names hold brackets, and are read more easily in double quotes; plain words need none."""
    assert command(["pytest", "a[b@cpu]", "--seed", "1", "a'b", "$x"]) == 'pytest "a[b@cpu]" --seed 1 "a\'b" \'$x\''
