"""The model of a stage boundary: what it allows, and that it allows nothing else."""

import pytest

from harness.core.capabilities import Transfer
from harness.transfer.model import Model
from harness.transfer.protocol import Completion, CompletionOutcome, Outcome
from harness.transfer.schedule import Consume, Receive, Schedule

HIT, MISS, FAILED = Outcome.HIT, Outcome.MISS, Outcome.FAILED
DONE, MISSED, ABORTED = CompletionOutcome.DONE, CompletionOutcome.MISSED, CompletionOutcome.ABORTED
EVERYTHING = frozenset(Transfer)
TIMEOUT = 1.0


def allowed(text, *answers, depth=1, offered=EVERYTHING, pace=0.0):
    """What the last step may be answered, the waiting steps before it having been answered so. A step takes `pace` seconds."""
    return played(text, *answers, depth=depth, offered=offered, pace=pace)[1]


def played(text, *answers, depth=1, offered=EVERYTHING, pace=0.0):
    model, heard, may, now = Model(depth=depth, timeout=TIMEOUT, offered=offered), iter(answers), frozenset(), 0.0
    for step in Schedule.parse(text).steps:
        if model.passes_over(step):
            continue
        may, now = model.take(step, now, now + pace), now + pace
        answer = next(heard, None) if isinstance(step, (Consume, Receive)) else None
        if answer is not None:
            assert answer in may, f"{step}: {answer} is not among {may}"
            model.heard(answer)
    return model, may


@pytest.mark.parametrize(
    ("text", "answers", "may"),
    [
        ("consume a", [], {MISS}),
        ("send a 1; consume a", [], {MISS}),
        ("start a; consume a", [], {MISS}),
        ("send a 1; start a; consume a", [], {HIT}),
        ("start a; send a 1; consume a", [], {HIT}),
        ("receive a", [], {MISS}),
        ("send a 1; receive a", [], {HIT}),
        ("send a 1; start a; consume a; consume a", [HIT], {MISS}),
        ("send a 1; receive a; start a; consume a", [HIT], {MISS}),
        ("send a 1; receive a; send a 1; receive a", [HIT, HIT], {HIT}),
        ("send a 1; restart sender; receive a", [], {HIT}),
        ("send a 1; abort a; start a; consume a", [], {MISS}),
        ("send a 1; start a; abort a; consume a", [], {MISS}),
        ("hold; start a; abort a; send a 1; start a; consume a", [], {HIT}),
        ("send a 1; stop; start a; consume a", [], {MISS}),
        ("send a 1; stop; start a; restart receiver; start a; consume a", [], {HIT}),
        ("send a 1; stop; receive a", [], {HIT}),
    ],
)
def test_answers(text, answers, may):
    """Where the protocol leaves nothing free there is one answer."""
    assert allowed(text, *answers) == may


@pytest.mark.parametrize(
    ("text", "answers", "may"),
    [
        ("fail copy; send a 1; start a; consume a", [], {FAILED}),
        ("fail copy; send a 1; start a; consume a; start a; consume a", [FAILED], {HIT}),
        ("fail copy; fail copy; send a 1; receive a; receive a", [FAILED], {FAILED}),
        ("fail get; send a 1; receive a", [], {FAILED}),
        ("fail get; send a 1; receive a; receive a", [FAILED], {HIT}),
        ("fail get; start a; consume a", [], {FAILED, MISS}),
        ("send a 1; start a; fail get; consume a", [], {HIT, FAILED}),
        ("send a 1; hold; start a; fail get; consume a", [], {FAILED}),
        ("send a 1; start a; fail copy; consume a", [], {HIT, FAILED}),
        ("send a 1; start a; fail copy; consume a; send b 1; receive b", [HIT], {FAILED}),
        ("send a 1; start a; fail copy; consume a; send b 1; receive b", [FAILED], {HIT}),
    ],
)
def test_failures(text, answers, may):
    """A failure is told once, costs no payload, and meets another transfer where it did not meet this one."""
    assert allowed(text, *answers) == may


def test_failures_without_reasons():
    """An engine that tells no reasons may call a failure a miss, and never a hit."""
    offered = EVERYTHING - {Transfer.FAILURE_REASONS}

    assert allowed("fail get; send a 1; receive a", offered=offered) == {FAILED, MISS}
    assert allowed("fail get; send a 1; receive a; receive a", MISS, offered=offered) == {HIT}


def test_dropped():
    """A dropped prefetch may take its payload with it, or leave it; what came is known from then on."""
    text = "send a 1; start a; start b; receive a"
    assert allowed(text) == {HIT, MISS}
    assert allowed(f"{text}; receive a", HIT) == {MISS}
    assert allowed(f"{text}; receive a", MISS) == {MISS}

    text = "send a 1; start a; restart receiver; start a; consume a"
    assert allowed(text) == {HIT, MISS}


def test_astray():
    """One that was dropped under way may take what is sent later, until the next one has ended: a serial engine ends it before."""
    assert allowed("start a; send b 1; start b; send a 1; receive a") == {HIT, MISS}
    assert allowed("start a; send b 1; start b; consume b; send a 1; receive a", HIT) == {HIT}
    assert allowed("start a; start c; send b 1; start b; consume b; send a 1; receive a", HIT, depth=2) == {HIT, MISS}


def test_time():
    """What is sent within the timeout arrives; what is sent after it may be too late."""
    assert allowed("start a; send a 1; consume a", pace=TIMEOUT / 3) == {HIT}
    assert allowed("start a; send a 1; consume a", pace=TIMEOUT) == {HIT, MISS}


@pytest.mark.parametrize(
    ("depth", "text", "may"),
    [
        (1, "send a 1; start a; start b; consume a", {MISS}),
        (2, "send a 1; start a; start b; consume a", {HIT}),
        (2, "send a 1; start a; start b; start c; consume a", {MISS}),
        (3, "send a 1; start a; start b; start c; consume a", {HIT}),
        (1, "send a 1; start a; consume b; consume a", {MISS}),
        (2, "send a 1; start a; consume b; consume a", {HIT}),
        (2, "send a 1; start a; start b; consume c; consume a", {MISS}),
        (2, "send b 1; start a; start b; consume c; consume b", {HIT}),
        (2, "send b 1; start a; start b; start a; start c; consume b", {HIT}),
    ],
)
def test_depth(depth, text, may):
    """The request at hand counts among the prefetches that are kept; of the others those that started last are."""
    assert allowed(text, *[MISS] * (text.count("consume") - 1), depth=depth) == may


def test_passes_over():
    """What the engine does not offer, and what the protocol says nothing of, is left out."""
    assert allowed("send a 1; abort a; receive a", offered=EVERYTHING - {Transfer.ABORT}) == {HIT}
    assert allowed("send a 1; fail copy; receive a", offered=EVERYTHING - {Transfer.LAB}) == {HIT}
    assert allowed("send a 1; start a; receive a; consume a") == {HIT}
    assert played("send a 1; send a 2; receive a", HIT)[0].gone() == ["a"]


def told(*ends):
    return [Completion(request, generation, outcome) for request, generation, outcome in ends]


@pytest.mark.parametrize(
    ("ends", "wrong"),
    [
        ([("a", 0, DONE), ("a", 1, MISSED), ("b", 0, ABORTED)], None),
        ([("a", 1, MISSED), ("b", 0, ABORTED), ("a", 0, DONE)], None),
        ([("a", 0, DONE), ("a", 1, MISSED)], "b, use 0: nothing told"),
        ([("a", 0, DONE), ("a", 0, DONE), ("a", 1, MISSED), ("b", 0, ABORTED)], "told 2 times"),
        ([("a", 0, MISSED), ("a", 1, MISSED), ("b", 0, ABORTED)], "a, use 0: missed"),
        ([("a", 0, DONE), ("a", 1, MISSED), ("b", 0, DONE)], "b, use 0: done"),
        ([("a", 0, DONE), ("a", 1, MISSED), ("b", 0, ABORTED), ("b", 1, ABORTED)], "never began"),
        ([("a", 0, DONE), ("a", 1, MISSED), ("b", 0, ABORTED), ("c", 0, DONE)], "never began"),
    ],
)
def test_completions(ends, wrong):
    """One for each transfer, in any order, as what it came to."""
    model, _ = played("send a 1; receive a; receive a; hold; start b; abort b; stop", HIT, MISS)
    objection = model.objection(told(*ends), 0.0, all_over=True)

    assert objection is None if wrong is None else wrong in objection


def test_completions_under_way():
    """Those that were answered are owed at once, those that were dropped once all is over."""
    model, _ = played("send a 1; receive a; hold; start b; abort b", HIT)

    assert model.objection(told(("a", 0, DONE)), 0.0) is None
    assert "a, use 0" in model.objection(told(), 0.0)
    assert "b, use 0" in model.objection(told(("a", 0, DONE)), 0.0, all_over=True)


def test_completion_of_a_tracked_prefetch():
    """It may be told before it is consumed, and only as what it can have come to."""
    model, _ = played("send a 1; start a")

    assert model.objection(told(("a", 0, DONE)), 0.0) is None
    assert model.objection(told(), 0.0) is None
    assert model.objection(told(("a", 0, MISSED)), 0.0) == "a, use 0: missed"


def test_gone():
    """A payload is gone once it was delivered or aborted, and not after a failure."""
    assert played("send a 1; receive a", HIT)[0].gone() == ["a"]
    assert played("send a 1; abort a")[0].gone() == ["a"]
    assert played("send a 1; fail get; receive a", FAILED)[0].gone() == []
    assert played("send a 1; start a; stop")[0].gone() == []
