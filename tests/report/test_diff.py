"""What a comparison of recorded runs calls a regression, and what it only tells; each beside its twin that is none."""

import json
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.core.verdict import Verdict
from harness.report import diff_pages, diff_sections
from harness.report.diff import Change, change_of, compare
from harness.report.diff_figures import Movement, crosses
from harness.report.runs import Figure, RecordedRun, Result, UnreadableRun, read_runs

RECORDED = Path(__file__).parents[2] / "ci/results"
PASS, KNOWN, FAIL, UNSUPPORTED, UNAVAILABLE = (
    Verdict.PASS, Verdict.KNOWN, Verdict.FAIL, Verdict.UNSUPPORTED, Verdict.UNAVAILABLE,
)  # fmt: skip
TEXTS = ("sentence", "version", "options", "fault", "reason", "got", "expected", "control", "machine", "replay", "text")


def result(verdict=PASS, claim="duplex.toy.it", engine="duplex/toy", **fields):
    texts = dict.fromkeys(TEXTS, "") | {"test": f"test_{claim}", "level": "MUST", "profile": "cpu", "version": "1"}
    return Result(**{**texts, "claim": claim, "engine": engine, "verdict": verdict, "seed": 1, **fields})


def run(*results, session=None):
    return RecordedRun(Path("run.jsonl"), {"seed": 1} if session is None else session, results)


def measured(*values, bound=None, verdict=PASS):
    """A run a value."""
    return [run(result(verdict, figures=(Figure("p99", value, "ms", bound),))) for value in values]


def changes(old, new, **options):
    return [row.change for row in compare([run(*old)], [run(*new)], **options).rows]


BROKEN = [verdict for verdict in Verdict if verdict.fails_the_run]
TABLE = {
    (PASS, KNOWN): Change.LOST,
    (PASS, UNSUPPORTED): Change.LOST,
    (PASS, UNAVAILABLE): Change.LOST,
    (PASS, None): Change.LOST,
    (KNOWN, PASS): Change.FIXED,
    (KNOWN, UNSUPPORTED): Change.LOST,
    (KNOWN, UNAVAILABLE): Change.LOST,
    (KNOWN, None): Change.LOST,
    (UNSUPPORTED, PASS): Change.GAINED,
    (UNSUPPORTED, KNOWN): Change.GAINED,
    (UNSUPPORTED, UNAVAILABLE): Change.CHANGED,
    (UNAVAILABLE, PASS): Change.GAINED,
    (UNAVAILABLE, KNOWN): Change.GAINED,
    (UNAVAILABLE, UNSUPPORTED): Change.CHANGED,
    (None, PASS): Change.GAINED,
    (None, KNOWN): Change.GAINED,
}
TABLE |= {(old, new): Change.NEW_FAILURE for old in (PASS, KNOWN, UNSUPPORTED, UNAVAILABLE, None) for new in BROKEN}
TABLE |= {(old, new): Change.CHANGED for old in BROKEN for new in (KNOWN, UNSUPPORTED, UNAVAILABLE, None)}
TABLE |= {(old, PASS): Change.FIXED for old in BROKEN}
TABLE |= {(old, new): Change.CHANGED for old in BROKEN for new in BROKEN if old is not new}


@pytest.mark.parametrize("new", [*Verdict, None])
@pytest.mark.parametrize("old", [*Verdict, None])
def test_every_change_of_verdict(old, new):
    """The whole table; what is not in it is no change."""
    sides = [verdict and result(verdict, reason="the window is too large") for verdict in (old, new)]

    assert change_of(*sides) == TABLE.get((old, new))


def test_regressions_are_new_failures_and_losses():
    assert {change for change in Change if change.is_regression} == {Change.NEW_FAILURE, Change.LOST}


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("pause: step_batch advances every slot", Change.WITHDRAWN),
        ("its window of 2999 ticks is wrapped by no check", Change.LOST),
        ("paused: no such capability", Change.LOST),
        ("host_tier: a capability of another kind", Change.LOST),
    ],
)
def test_only_a_declaration_explains_a_loss(reason, change):
    assert changes([result()], [result(UNSUPPORTED, reason=reason)]) == [change]


def test_a_capability_does_not_explain_that_an_engine_is_unavailable():
    assert changes([result()], [result(UNAVAILABLE, reason="pause: whatever")]) == [Change.LOST]


def test_a_claim_that_the_suites_no_longer_make_is_gone():
    other = result(claim="duplex.toy.other")
    found = compare([run(result(), other)], [run(other)])

    assert (found.claims_gone, found.rows, found.regressions) == (("duplex.toy.it",), (), 0)


def test_a_claim_that_the_suites_still_make_is_lost():
    other = result(claim="duplex.toy.other")

    assert changes([result(), other], [other], made={"duplex.toy.it"}) == [Change.LOST]


def test_in_a_run_that_was_cut_short_a_claim_is_lost():
    other = result(claim="duplex.toy.other")
    found = compare([run(result(), other)], [run(other, session={})])

    assert ([row.change for row in found.rows], found.cut_short) == ([Change.LOST], ("run.jsonl",))


def test_a_claim_that_another_engine_still_has_is_lost():
    second = [result(claim=claim, engine="duplex/second") for claim in ("duplex.toy.it", "duplex.toy.other")]
    first = [result(claim=claim) for claim in ("duplex.toy.it", "duplex.toy.other")]

    assert changes([*first, *second], [*first, second[0]]) == [Change.LOST]


def test_an_engine_that_is_gone_is_one_regression_with_its_reason():
    gone = [result(claim=f"duplex.toy.c{n}", engine="duplex/second") for n in range(5)]
    found = compare([run(result(), *gone)], [run(result(), session={"unavailable": {"duplex/second@cpu": "no [card]"}})])

    (engine,) = found.engines_gone
    assert (engine.label, engine.kept, engine.reason, found.regressions) == ("duplex/second@cpu", 5, "no [card]", 1)


def test_an_engine_of_which_nothing_was_kept_may_go():
    found = compare([run(result(), result(UNAVAILABLE, engine="duplex/second"))], [run(result())])

    assert [engine.kept for engine in found.engines_gone] == [0]
    assert found.regressions == 0


def test_of_a_new_engine_only_failures_are_told():
    new = [result(engine="duplex/new"), result(FAIL, claim="duplex.toy.other", engine="duplex/new")]
    found = compare([run(result())], [run(result(), *new)])

    assert [(row.claim, row.change) for row in found.rows] == [("duplex.toy.other", Change.NEW_FAILURE)]
    assert found.engines_added == (("duplex/new@cpu", 1),)


def test_of_repeats_the_worst_counts():
    found = compare([run(result()), run(result())], [run(result()), run(result(FAIL))])

    assert [row.change for row in found.rows] == [Change.NEW_FAILURE]


def test_one_machine_that_judged_speaks_for_one_that_could_not():
    found = compare([run(result())], [run(result(UNAVAILABLE)), run(result())])

    assert found.rows == ()


def test_what_was_planted_says_nothing_of_the_engine():
    assert changes([result()], [result(), result(FAIL, fault="duplex/loud")]) == []
    assert changes([result()], [result(), result(FAIL)]) == [Change.NEW_FAILURE]


def test_a_side_without_results_is_an_error():
    with pytest.raises(UnreadableRun, match=r"NEW: no result of an engine in run\.jsonl"):
        compare([run(result())], [run(result(fault="duplex/loud"))])


@pytest.mark.parametrize(
    ("old", "new", "movement", "chance"),
    [
        ((10, 11), (12,), Movement.MOVED, 2 / 3),
        ((10, 11, 12, 13, 14), (15, 16, 17, 18, 19), Movement.MOVED, 2 / 252),
        ((15, 16), (14, 13), Movement.MOVED, 2 / 6),
        ((10,), (12,), Movement.SHOWN, None),
        ((10, 12), (12,), None, None),
        ((10, 12), (11, 20), None, None),
        ((10,), (10,), None, None),
    ],
)
def test_a_figure_moves_when_the_ranges_do_not_meet(old, new, movement, chance):
    figures = compare(measured(*old), measured(*new)).figures

    assert [(move.movement, move.chance) for move in figures] == ([(movement, chance)] if movement else [])


def test_a_move_is_no_regression():
    assert compare(measured(10, 11), measured(99)).regressions == 0


@pytest.mark.parametrize(
    ("old", "new", "bound", "expected"),
    [
        ((70, 79), (81,), 80, True),
        ((70, 79), (70, 81), 80, True),
        ((90, 81), (79,), 80, True),
        ((70, 80), (81,), 80, True),
        ((70, 79), (80,), 80, False),
        ((70, 90), (99,), 80, False),
        ((80,), (99,), 80, False),
    ],
)
def test_a_bound_is_crossed_from_the_side_on_which_old_passed(old, new, bound, expected):
    assert crosses(old, new, bound) == expected


def test_one_run_beyond_its_bound_is_a_regression():
    found = compare(measured(70, bound=80), measured(81, bound=80))

    assert ([move.movement for move in found.figures], found.regressions) == ([Movement.CROSSED], 1)


def test_a_bound_is_judged_only_where_all_of_old_passed():
    old = [*measured(70, bound=80), *measured(75, bound=80, verdict=Verdict.FAIL)]
    found = compare(old, measured(81, bound=80))

    assert ([move.movement for move in found.figures], found.regressions) == ([Movement.MOVED], 0)


def test_a_figure_that_comes_back_within_its_bound_is_none():
    found = compare(measured(81, bound=80, verdict=FAIL), measured(70, bound=80))

    assert ([move.movement for move in found.figures], found.regressions) == ([Movement.SHOWN], 0)


def test_figures_that_are_no_numbers_are_left_out():
    assert compare(measured(float("nan"), 1), measured(float("inf"), 1)).figures == ()


def test_versions_that_differ():
    machines = [{"machine": {"packages": {"torch": version}, "cards": [{"name": "H200"}]}, "seed": 1} for version in ("2.11", "2.13")]
    found = compare([run(result(version="1"), session=machines[0])], [run(result(version="2"), session=machines[1])])

    assert found.versions == (("duplex/toy", "1", "2"), ("package torch", "2.11", "2.13"))


def test_a_forged_session_line_is_no_crash():
    forged = {"machine": [], "unavailable": "x", "seed": {}}
    found = compare([run(result(), session=forged)], [run(result(), session={"machine": {"packages": 3, "cards": [1, "a"]}})])

    assert found.regressions == 0


def test_the_first_five_lines_are_the_answer():
    found = compare([run(result(), result(claim="duplex.toy.other"))], [run(result(FAIL), result(UNAVAILABLE, claim="duplex.toy.other"))])

    assert diff_pages.to_markdown(found).splitlines()[:5] == [
        "# 2 regressions",
        "",
        "1 new failure; 1 lost.",
        "",
        "OLD: 2 results in 1 run. NEW: 2 results in 1 run.",
    ]


def test_nothing_changed():
    found = compare([run(result())], [run(result())])

    assert diff_pages.to_markdown(found).startswith("# No regression\n\nnothing changed.\n")
    assert diff_sections.sections(found) == []


def logged(path, *results):
    """A report log with these results, as the recorder writes them."""
    properties = [
        {"schema": 1, **{k: getattr(r, k) for k in ("claim", "engine", "profile", "options", "fault", "reason", "seed")}} for r in results
    ]
    entries = [
        {"$report_type": "TestReport", "nodeid": str(n), "user_properties": [*map(list, {**p, "verdict": r.verdict.value}.items())]}
        for n, (p, r) in enumerate(zip(properties, results, strict=True))
    ]
    path.write_text("\n".join(map(json.dumps, [*entries, {"$report_type": "AssaySession", "schema": 1}])))
    return str(path)


@pytest.mark.parametrize(("verdict", "status"), [(PASS, 0), (FAIL, 1)])
def test_the_exit_status_says_whether_something_got_worse(tmp_path, capsys, verdict, status):
    old, new = logged(tmp_path / "old.jsonl", result()), logged(tmp_path / "new.jsonl", result(verdict))

    assert main(["report", "diff", old, new]) == status
    assert capsys.readouterr().out.startswith("# 1 regression\n" if status else "# No regression\n")


def test_files_are_written_whole(tmp_path, capsys):
    old = logged(tmp_path / "old.jsonl", result())
    written = [tmp_path / "out/diff.md", tmp_path / "out/diff.html"]
    status = main(["report", "diff", old, old, "-o", str(written[0]), "--html", str(written[1])])

    assert (status, capsys.readouterr().out) == (0, "")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["diff.html", "diff.md"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "NEW: {} does not exist"),
        ("{", "{}:1: no JSON"),
        ("", "NEW: no result of an engine in {}"),
        ('{"$report_type": "AssaySession", "schema": 99}', "schema 99; a later Assay"),
    ],
)
def test_wrong_input_is_told_and_is_status_2(tmp_path, capsys, content, said):
    old, new = logged(tmp_path / "old.jsonl", result()), tmp_path / "new.jsonl"
    if content is not None:
        new.write_text(content)

    assert main(["report", "diff", old, str(new)]) == 2
    assert said.format(new) in capsys.readouterr().err


def test_recorded_runs_compare():
    """Real ones: the same file changes nothing, and PersonaPlex' second part lacks what the first judged."""
    runs = {name: read_runs([RECORDED / f"duplex-h200-{name}.jsonl"]) for name in ("personaplex", "personaplex-2")}

    assert compare(runs["personaplex"], runs["personaplex"]).regressions == 0
    assert len(compare(runs["personaplex"], runs["personaplex-2"], made={"duplex.isolation.recycle"}).of(Change.LOST)) == 1
