"""Known failures: entries that are due fail, and a new one is made from a failed run."""

import datetime
import shutil

import pytest

from ci import known
from ci.known import KNOWN_FAILURES_TOML
from harness.core.known_failures import PASSED, load
from tests.ci.logs import RESULTS, changed, where

ENGINE, CLAIM = "duplex/personaplex:sdpa=efficient", "duplex.input.slot"
FAILED = "duplex-h200-personaplex.jsonl"
"""A run in which two claims failed, known since for that engine with any options."""
DAY = "2027-02-28"
"""The last on which no entry is due."""
ENTRY = f"{CLAIM} on duplex/personaplex*"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A copy of ci/known_failures.toml in place of it."""
    path = tmp_path / "known_failures.toml"
    shutil.copy(KNOWN_FAILURES_TOML, path)
    monkeypatch.setattr(known, "KNOWN_FAILURES_TOML", path)
    return path


@pytest.fixture
def bare(file):
    """The same without the entries of PersonaPlex; its beginning, with the comments, stays."""
    head, *entries = file.read_text(encoding="utf-8").split("\n[[failure]]\n")
    file.write_text("\n[[failure]]\n".join([head, *(e for e in entries if "duplex/personaplex" not in e)]), encoding="utf-8")
    return file


def run(*arguments: object) -> int:
    return known.main([str(argument) for argument in arguments])


def add(*more: object, results: object = RESULTS / FAILED, **changes: object) -> int:
    """Add an entry of the failed run; `changes` to what is given otherwise."""
    given = {"engine": ENGINE, "claim": CLAIM, "evidence": "seen on an H200", "issue": "https://example.org/7", "owner": "duplex"} | changes
    return run("add", results, *(word for name, value in given.items() for word in (f"--{name}", value)), *more)


def test_nothing_is_due(file, capsys):
    assert run("check", "--today", DAY, RESULTS) == 0
    assert f"{len(load(file))} known failures, 0 to see to" in capsys.readouterr().out


def test_an_entry_is_due_on_its_day(file, capsys):
    assert run("check", "--today", "2027-03-01") == 1
    assert f"{ENTRY}: EXPIRED: duplex was to look again by 2027-03-01" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"verdict": "FAIL", "reason": f"{PASSED}: PASS"}, "PASSED: the claim holds; delete the entry"),
        ({"verdict": "UNSUPPORTED", "reason": "no slots"}, "UNMATCHED: it excuses a FAIL, and the run says UNSUPPORTED (no slots)"),
        ({"verdict": "VACUOUS", "reason": "nothing"}, "UNMATCHED: it excuses a FAIL, and the run says VACUOUS (nothing)"),
    ],
)
def test_an_entry_that_the_run_has_no_use_for(file, tmp_path, capsys, fields, says):
    log = changed(FAILED, tmp_path / "run.jsonl", where(CLAIM, **fields))

    assert run("check", "--today", DAY, log) == 1
    assert f"{ENTRY}: {says}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "fields",
    [
        {"verdict": "KNOWN"},
        {"verdict": "FAIL"},
        {"verdict": "UNAVAILABLE"},
        {"verdict": "UNSUPPORTED", "version": "0.1"},
        {"verdict": "UNSUPPORTED", "engine": "duplex/reference"},
        {"verdict": "VACUOUS", "fault": "duplex/x"},
    ],
    ids=str,
)
def test_an_entry_that_matches_or_is_out_of_reach(file, tmp_path, fields):
    assert run("check", "--today", DAY, changed(FAILED, tmp_path / "run.jsonl", where(CLAIM, **fields))) == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"verdict": "VACUOUS", "reason": "nothing"}, 0), ({"verdict": "FAIL", "reason": f"{PASSED}: PASS"}, 1)],
    ids=["one that it excuses is enough", "one that passed is too many"],
)
def test_an_entry_of_two_results(file, tmp_path, fields, code):
    assert run("check", "--today", DAY, RESULTS / FAILED, changed(FAILED, tmp_path / "run.jsonl", where(CLAIM, **fields))) == code


@pytest.mark.parametrize(("verdict", "code"), [("PASS", 0), ("VACUOUS", 1)])
def test_what_is_inconclusive_may_pass_by_luck(file, tmp_path, verdict, code):
    text = file.read_text(encoding="utf-8")
    place = text.index(f'claim = "{CLAIM}"')
    file.write_text(text[:place] + text[place:].replace('verdict = "FAIL"', 'verdict = "INCONCLUSIVE"', 1), encoding="utf-8")

    assert run("check", "--today", DAY, changed(FAILED, tmp_path / "run.jsonl", where(CLAIM, verdict=verdict))) == code


def test_a_version_that_is_tested_no_more(file, capsys):
    file.write_text(file.read_text(encoding="utf-8").replace('versions = ["0.2.13"]', 'versions = ["0.2.13", "0.2.1"]'), encoding="utf-8")

    assert run("check", "--today", DAY) == 1
    assert "duplex/moshi*: UNTESTED: version 0.2.1 is tested no more" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[[failure]]", "[[failure]", "known_failures.toml: "),
        ('"duplex/moshi*"', '"duplex/moshy*"', "unknown engine 'duplex/moshy*'"),
        ('"duplex.input.slot"', '"duplex.input.slots"', "unknown claim 'duplex.input.slots'; nearest: duplex.input.slot"),
    ],
)
def test_a_file_that_cannot_be_read(file, capsys, old, new, says):
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    assert run("check", "--today", DAY) == 2
    assert says in capsys.readouterr().err


def test_a_run_that_cannot_be_read(file, capsys):
    assert run("check", RESULTS / "none.jsonl") == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_an_entry_is_made_from_a_failed_run(bare):
    before, text = load(bare), bare.read_text(encoding="utf-8")

    assert add() == 0

    entry = load(bare)[-1]
    assert load(bare) == [*before, entry]
    assert (entry.engine, entry.versions, entry.claim, entry.verdict.value) == (ENGINE, ("0.28.0",), CLAIM, "FAIL")
    assert (entry.evidence, entry.issue, entry.owner) == ("seen on an H200", "https://example.org/7", "duplex")
    assert (entry.opened, entry.look_again - entry.opened) == (datetime.date(2026, 11, 30), datetime.timedelta(days=90))
    assert bare.read_text(encoding="utf-8").startswith(text.rstrip("\n"))


def test_an_entry_excuses_the_failure_that_it_was_made_from(bare, tmp_path):
    add("--look-again", DAY)
    excused = changed(FAILED, tmp_path / "run.jsonl", where(CLAIM, verdict="KNOWN"))

    assert load(bare)[-1].look_again.isoformat() == DAY
    assert run("check", "--today", "2027-02-27", excused) == 0


def test_what_is_evidence_stays_text(bare):
    evidence = 'a "quote", a \\ and\n[[failure]]\nengine = "x"'

    assert add(evidence=evidence) == 0
    assert load(bare)[-1].evidence == evidence


REFUSED = {
    "another engine": ({"engine": "duplex/personaplex"}, dict, "unknown engine of this run 'duplex/personaplex'; nearest: " + ENGINE),
    "another claim": ({"claim": "duplex.input.slots"}, dict, "unknown claim of this run 'duplex.input.slots'; nearest: " + CLAIM),
    "passed": ({}, where(CLAIM, verdict="PASS"), f"{CLAIM} on {ENGINE} did not fail in"),
    "skipped": ({}, where(CLAIM, verdict="UNSUPPORTED"), "UNSUPPORTED"),
    "the harness broke": ({}, where(CLAIM, verdict="ERROR"), "did not fail in"),
    "known already": ({}, where(CLAIM, verdict="KNOWN"), "did not fail in"),
    "its entry passed": ({}, where(CLAIM, reason=f"{PASSED}: PASS"), f"{CLAIM} on {ENGINE} passed: delete its entry"),
    "a fault": ({}, where(CLAIM, fault="duplex/x"), "a fault was planted (duplex/x)"),
    "no version": ({}, where(CLAIM, version=""), f"does not say which version of {ENGINE} ran"),
    "no link": ({"issue": "soon"}, dict, "--issue 'soon': give a link, or 'not filed'"),
    "a day before": ({"look-again": "2026-11-30"}, dict, "--look-again 2026-11-30: the run is of 2026-11-30; give a later day"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_entries_that_are_refused(bare, tmp_path, capsys, why):
    given, change, says = REFUSED[why]
    before = bare.read_bytes()

    assert add(results=changed(FAILED, tmp_path / "run.jsonl", change), **given) == 1
    assert says in capsys.readouterr().err
    assert bare.read_bytes() == before


def test_a_run_that_does_not_say_when(bare, tmp_path, capsys):
    assert add(results=changed(FAILED, tmp_path / "run.jsonl", session=lambda _: None)) == 1
    assert "it was ended early; run it again, to its end" in capsys.readouterr().err


def test_an_entry_that_there_is_already(file, capsys):
    before = file.read_bytes()

    assert add() == 1
    assert f"excuses {CLAIM} on {ENGINE} 0.28.0 already" in capsys.readouterr().err
    assert file.read_bytes() == before


@pytest.mark.parametrize("given", [{"evidence": " "}, {"owner": ""}])
def test_an_entry_without_a_text(bare, capsys, given):
    assert add(**given) == 2
    assert "write a text that is not empty" in capsys.readouterr().err


def test_an_unknown_engine(bare, tmp_path, capsys):
    other = changed(FAILED, tmp_path / "run.jsonl", lambda p: p | {"engine": "duplex/mine"})

    assert add(results=other, engine="duplex/mine:sdpa=efficient") == 2
    assert "unknown engine 'duplex/mine'" in capsys.readouterr().err
