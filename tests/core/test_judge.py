"""The judge: each way of comparing accepts the right answer, finds the wrong one, and says so in these words."""

import math
import threading
from enum import Enum

import pytest
import torch

from harness.core import guard
from harness.core.judge import Figure, Judge, Series, first_difference
from harness.core.verdict import ClaimBroken, DeadlineMissed, Inconclusive, Vacuous


class Fruit(str, Enum):
    PEAR = "pear"
    PLUM = "plum"


def found_by(kind, compare):
    """The text of the finding that `compare` raises, as (headline, got, expected, extent)."""
    with pytest.raises(kind) as caught:
        compare()
    finding = caught.value
    assert type(finding) is kind
    return finding.headline, finding.got, finding.expected, finding.extent


@pytest.fixture
def judge():
    return Judge()


def test_same_bits_accepts_equal_tensors_and_counts_values(judge):
    """Each value compared is counted, whatever the layout in memory."""
    judge.same_bits(torch.ones(2, 3), torch.ones(2, 3), "keys", source="the sender")
    judge.same_bits(torch.ones(2, 3).T, torch.ones(3, 2), "keys", source="the sender")

    assert judge.comparisons == 12
    judge.close()


def test_same_bits_text_of_a_flipped_bit(judge):
    """Where, what, where the expected value comes from, how much, how far."""
    got, expected = torch.ones(4, 2), torch.ones(4, 2)
    got[3, 1] += 2**-23

    assert found_by(ClaimBroken, lambda: judge.same_bits(got, expected, "keys", source="the sender", axes=["token", "dim"])) == (
        "BITS DIFFER",
        "keys[token 3, dim 1] = 0x3f800001 (1.0000001)",
        "0x3f800000 (1), from the sender",
        "1/8 values; the first by 1 ulp",
    )


@pytest.mark.parametrize(
    ("got", "said", "extent"),
    [
        (torch.zeros(3), "keys of float32[3]", "the whole tensor"),
        (torch.zeros(2, dtype=torch.float16), "keys of float16[2]", "the whole tensor"),
        (torch.tensor([0.0, -0.0]), "keys[axis 0 1] = 0x80000000 (-0)", "1/2 values"),
        (torch.tensor([0.0, math.nan]), "keys[axis 0 1] = 0x7fc00000 (nan)", "1/2 values"),
        (torch.tensor([5.0, 5.0]), "keys[axis 0 0] = 0x40a00000 (5)", "2/2 values"),
    ],
    ids=["shape", "dtype", "minus zero", "nan", "far"],
)
def test_same_bits_text_of_wrong_tensors(judge, got, said, extent):
    """What is wrong decides the words; the expected side stays what it is."""
    headline, shown, expected, how_much = found_by(ClaimBroken, lambda: judge.same_bits(got, torch.zeros(2), "keys", source="the sender"))

    assert (headline, shown, how_much) == ("BITS DIFFER", said, extent)
    assert expected in ("float32[2], from the sender", "0x00000000 (0), from the sender")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_same_bits_wants_finite_values(judge, value):
    """The same NaN on both sides is broken, not equal."""
    both = torch.tensor([value])

    assert found_by(ClaimBroken, lambda: judge.same_bits(both, both.clone(), "keys", source="the sender"))[0] == "BITS DIFFER"


@pytest.mark.parametrize(("got", "said"), [(None, "keys: nothing"), ([1.0], "keys: a list")], ids=["none", "list"])
def test_same_bits_of_no_tensor(judge, got, said):
    """An engine that hands over no tensor breaks the claim; the harness does not."""
    assert found_by(ClaimBroken, lambda: judge.same_bits(got, torch.ones(1), "keys", source="the sender")) == (
        "PAYLOAD BROKEN",
        said,
        "a tensor, from the sender",
        "",
    )


def test_same_bits_of_empty_tensors_compares_nothing(judge):
    """Two empty tensors are equal, and a test that compared only those is vacuous."""
    judge.same_bits(torch.empty(0), torch.empty(0), "keys", source="the sender")

    with pytest.raises(Vacuous):
        judge.close()


def test_a_failed_comparison_is_counted(judge):
    """A difference is a comparison too, so the test is broken and not vacuous."""
    with pytest.raises(ClaimBroken):
        judge.same_bits(torch.zeros(5), torch.ones(5), "keys", source="the sender")
    with pytest.raises(ClaimBroken):
        judge.equal(1, 2, "tokens")

    assert judge.comparisons == 6


@pytest.mark.parametrize("value", [3, "text", None, True, Fruit.PEAR, [1, (2, {"a": Fruit.PLUM})], {1, 2}, b"bytes", {}], ids=repr)
def test_equal_accepts_equal_values(judge, value):
    """Equal values of one type are one comparison."""
    judge.equal(value, value, "tokens")

    assert judge.comparisons == 1


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (1, 2),
        (1, True),
        (1, 1.0),
        (None, 0),
        ("pear", Fruit.PEAR),
        (Fruit.PEAR, Fruit.PLUM),
        ([1], (1,)),
        ([1, 2], [1]),
        ([1], [1, 2]),
        ((1, 2), (2, 1)),
        ([True], [1]),
        ([["pear"]], [[Fruit.PEAR]]),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({1}, {2}),
        (math.nan, math.nan),
    ],
    ids=repr,
)
def test_equal_finds_other_values_and_other_types(judge, got, expected):
    """Neither 1 for True nor a string for its enum passes, at any depth."""
    assert found_by(ClaimBroken, lambda: judge.equal(got, expected, "tokens"))[0] == "WRONG ANSWER"


def test_equal_text(judge):
    """What, both values, and the source where one is given."""
    assert found_by(ClaimBroken, lambda: judge.equal([1], [2], "tokens", source="the cold run")) == (
        "WRONG ANSWER",
        "tokens = [1]",
        "[2], from the cold run",
        "",
    )
    assert found_by(ClaimBroken, lambda: judge.equal(Fruit.PEAR, Fruit.PLUM, "fruit"))[1:3] == ("fruit = Fruit.PEAR", "Fruit.PLUM")


def test_long_values_are_cut(judge):
    """160 characters of a value are enough to know it by; that many are not cut."""
    assert found_by(ClaimBroken, lambda: judge.equal("x" * 500, "y" * 158, "text"))[1:3] == (f"text = '{'x' * 159}...", f"'{'y' * 158}'")


def test_demand(judge):
    """A condition that holds is a comparison; one that does not is told in the words given."""
    judge.demand(True, got="1 call", expected="at most 2")
    judge.close()

    assert found_by(ClaimBroken, lambda: judge.demand(False, got="3 calls", expected="at most 2")) == (
        "WRONG ANSWER",
        "3 calls",
        "at most 2",
        "",
    )
    assert judge.comparisons == 2


def raising(error):
    """An engine's call that raises, as the guard passes it on."""

    def answer():
        raise error

    return lambda: guard.call("get", answer)


@pytest.mark.parametrize("error", [ValueError("7 is not in 0..3"), ConnectionResetError(104, "reset by peer")], ids=repr)
def test_refused_accepts_an_error_that_says_why(judge, error):
    """Its text comes back, and the refusal is a comparison."""
    assert judge.refused(raising(error), "block 7") == str(error)
    assert judge.refused(raising(error), "block 7", (ValueError, OSError)) == str(error)
    assert judge.comparisons == 2


@pytest.mark.parametrize(
    ("call", "kinds", "got", "expected"),
    [
        (lambda: None, (Exception,), "block 7: None", "an error that says why"),
        (lambda: guard.call("get", int), (Exception,), "block 7: 0", "an error that says why"),
        (raising(ValueError()), (Exception,), "block 7: ValueError: ", "an error that says why"),
        (raising(ValueError("  ")), (Exception,), "block 7: ValueError: ", "an error that says why"),
        (raising(SystemExit("bye")), (Exception,), "block 7: SystemExit: bye", "an error that says why"),
        (raising(KeyError("k")), (TimeoutError, ValueError), "block 7: KeyError: 'k'", "TimeoutError or ValueError that says why"),
    ],
    ids=["returned", "returned an answer", "no text", "blank text", "left the process", "another kind"],
)
def test_refused_finds_what_is_no_refusal(judge, call, kinds, got, expected):
    """An answer, an error without a text or of another kind, and an engine that leaves the process."""
    headline, said, wanted, _ = found_by(ClaimBroken, lambda: judge.refused(call, "block 7", kinds))

    assert (headline, wanted) == ("NOT REFUSED", expected)
    assert said.startswith(got)
    assert judge.comparisons == 1


def test_refused_passes_on_what_is_no_answer(judge):
    """A call that does not return is a missed deadline; what the test itself raised is the test's mistake."""
    forever = threading.Event()
    with pytest.raises(DeadlineMissed):
        judge.refused(lambda: guard.call("get", forever.wait, deadline=0.05), "block 7")
    with pytest.raises(NameError):
        judge.refused(lambda: misspelt, "block 7")  # noqa: F821


@pytest.mark.parametrize(
    "other", [torch.tensor([1.0, -0.0]), torch.zeros(3), torch.zeros(2).half(), torch.tensor([0.0, math.nan])], ids=str
)
def test_differ_accepts_any_difference(judge, other):
    """One bit, a shape or a dtype shows that the stimulus is seen."""
    judge.differ(torch.zeros(2), other, "the payloads")

    assert judge.comparisons == other.numel()


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_differ_finds_equal_bits(judge, value):
    """The same bits on both sides are no difference, also where they are not finite."""
    both = torch.tensor([1.0, value])

    assert found_by(Vacuous, lambda: judge.differ(both, both.clone(), "the payloads")) == (
        "STIMULUS INVISIBLE",
        "the payloads are the same bits",
        "a difference, or the check sees nothing",
        "",
    )


def test_taken(judge):
    """A path taken once is enough; one never taken is vacuous. Neither is a comparison."""
    judge.taken(1, "the copy")

    assert found_by(Vacuous, lambda: judge.taken(0, "the copy")) == ("PATH NOT TAKEN", "the copy: 0 times", "at least once", "")
    assert judge.comparisons == 0


def test_close_wants_a_comparison(judge):
    """A test that compared nothing judged nothing."""
    assert found_by(Vacuous, judge.close) == ("NOTHING COMPARED", "0 values compared", "at least one", "")

    judge.equal(1, 1, "tokens")
    judge.close()


def test_of_figures_with_one_name_the_last_stands(judge):
    """A schedule is played over and over while it is shrunk."""
    for value in (3, 2):
        judge.figure("ticks", value, "ticks")

    assert judge.figures == [Figure("ticks", 2, "ticks")]


def test_a_series_is_in_the_record_where_there_is_one(judge):
    judge.figure("plain", 1, "s", bound=2)
    judge.figure("ticks", 1, "ticks", series=Series("tick", "log2", ((4.0, None),)))
    plain, series = (figure.record() for figure in judge.figures)

    assert plain == {"name": "plain", "value": 1, "unit": "s", "bound": 2}
    assert series["series"] == {"x": "tick", "y": "log2", "points": ((4.0, None),)}


def test_figures_are_kept(judge):
    """Numbers are recorded in order, with unit and bound, and judge nothing."""
    judge.figure("rate", 2.5, "GB/s")
    judge.figure("calls", 3, "", bound=4)

    assert judge.figures == [Figure("rate", 2.5, "GB/s", None), Figure("calls", 3, "", 4)]
    assert judge.comparisons == 0


def runs(*traces):
    """A function that leaves behind one trace after the other."""
    remaining = iter(traces)
    return lambda: next(remaining)


def test_controlled_runs_untouched_touched_untouched(judge):
    """A, B, A in this order; both results come back, and the control is told."""
    order = []
    a, b = judge.controlled("key", lambda: order.append("A") or {"t": 1, "u": 2}, lambda: order.append("B") or {"t": 9})

    assert order == ["A", "B", "A"]
    assert (a, b) == ({"t": 1, "u": 2}, {"t": 9})
    assert judge.control == "A, B, A: both A runs identical over 2 records"
    assert judge.comparisons == 0


def test_controlled_keeps_the_first_run_for_its_key(judge):
    """A second check on the same stimulus runs A once; another stimulus runs it twice."""
    judge.controlled("key", runs({"t": 1}, {"t": 1}), dict)
    first, _ = judge.controlled("key", runs({"t": 1}), dict)
    other, _ = judge.controlled("other", runs({"t": 2}, {"t": 2}), dict)

    assert (first, other) == ({"t": 1}, {"t": 2})
    assert set(judge.traces) == {"key", "other"}


def test_controlled_keeps_an_empty_run_too(judge):
    """A run that left nothing behind is a run."""
    judge.controlled("key", runs({}, {}), dict)
    judge.controlled("key", runs({}), dict)

    assert judge.control == "A, B, A: both A runs identical over 0 records"


def test_controlled_finds_an_engine_that_does_not_repeat_itself(judge):
    """The control differs, so nobody is guilty: inconclusive, and the first run is not used again."""
    a, again = {"audio": torch.zeros(2)}, {"audio": torch.tensor([0.0, 1.0])}

    assert found_by(Inconclusive, lambda: judge.controlled("key", runs(a, again), dict)) == (
        "CONTROL DIFFERS",
        "the second A run at audio[axis 0 1]: 0x3f800000 (1), not 0x00000000 (0)",
        "the first A run, bit for bit",
        "",
    )
    assert judge.control == "A, B, A: the two A runs differ"
    assert judge.traces == {}


def test_controlled_accepts_a_nan_that_repeats(judge):
    """The control asks whether the engine repeats itself; that its values are fit is the check's own business."""
    audio = torch.tensor([math.nan])

    first, _ = judge.controlled("key", lambda: {"audio": audio.clone()}, dict)
    assert found_by(ClaimBroken, lambda: judge.same_bits(audio, first["audio"], "audio", source="A"))[0] == "BITS DIFFER"


@pytest.mark.parametrize(
    ("got", "expected", "said"),
    [
        ({"t": 1}, {"t": 1}, None),
        ({"t": torch.ones(2), "u": [1]}, {"t": torch.ones(2), "u": [1]}, None),
        ({}, {}, None),
        ({"t": 1}, {"t": 2}, "t: 1, not 2"),
        ({"t": 1}, {"t": True}, "t: 1, not True"),
        ({"t": [1]}, {"t": [True]}, "t: [1], not [True]"),
        ({"t": "pear"}, {"t": Fruit.PEAR}, "t: 'pear', not Fruit.PEAR"),
        ({}, {"t": 1}, "t (only in one of them)"),
        ({"t": 1}, {}, "t (only in one of them)"),
        ({"t": None}, {"t": torch.ones(1)}, "t: None, not tensor([1.])"),
        ({"t": torch.ones(1)}, {"t": torch.ones(2)}, "t: float32[1], not float32[2]"),
        ({"t": torch.zeros(1)}, {"t": torch.tensor([-0.0])}, "t[axis 0 0]: 0x00000000 (0), not 0x80000000 (-0)"),
        ({"t": torch.tensor([math.nan])}, {"t": torch.tensor([math.nan])}, None),
        ({"b": 1, "a": 1}, {"b": 2, "a": 2}, "b: 1, not 2"),
        ({"new": 1, "t": 1}, {"t": 2}, "t: 1, not 2"),
    ],
    ids=str,
)
def test_first_difference(got, expected, said):
    """The first record in the expected run's order that differs or that one run lacks."""
    assert first_difference(got, expected) == said
