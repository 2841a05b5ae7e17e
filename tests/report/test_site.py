"""The site's pages as files: what stands on them, how large they are, and what is refused. test_browser.py looks at them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import __main__ as assay
from harness.report.board import lay_out
from harness.report.matrix import pages as matrix_pages
from harness.report.proof import gather
from harness.report.runs import read_run
from harness.report.site import PAGE_LIMIT, write_site
from harness.report.slugs import page_name
from tests.report.recorded import report, write

ROOT = Path(__file__).parents[2]
WORDS = "A slot that is recycled while its neighbours go on is not heard by them, and does not hear them, whatever they say."


def site_of(tmp_path, *runs):
    return write_site([read_run(run) for run in runs], tmp_path / "site").parent


def text(site, what, name):
    return (site / page_name(what, name)).read_text()


@pytest.mark.parametrize(("engines", "verdict"), [(25, "PASS"), (25, "FAIL"), (250, "UNSUPPORTED")])
def test_no_page_of_ten_thousand_results_is_large(tmp_path, engines, verdict):
    """Many claims on some engines, or few on many; all well, all broken with a long text each, or all unsupported for a reason."""
    reason = "" if verdict == "PASS" else "BITS DIFFER: request: layer 2 keys[token 0, head 0, dim 0] = 0xbecf1524 (-0.40445817)"
    failed = "\n".join([reason] * 10) if verdict == "FAIL" else None
    results = [
        report(
            claim=f"duplex.topic_{n % 50}.name_{n}", engine=f"duplex/e{e}", sentence=WORDS, verdict=verdict, reason=reason, longrepr=failed
        )
        for n in range(10_000 // engines)
        for e in range(engines)
    ]
    site = site_of(tmp_path, write(tmp_path / "run.jsonl", results))
    largest = max(site.glob("*.html"), key=lambda path: path.stat().st_size)
    claims = {path.name for path in site.glob("claim-*.html")}
    matrix = "".join(path.read_text() for path in [site / "index.html", *site.glob("matrix-*.html")])

    assert len(results) == 10_000
    assert largest.stat().st_size < PAGE_LIMIT, largest.name
    assert len(claims) == 10_000 // engines
    assert all(f'href="{name}"' in matrix for name in claims)


def test_another_release_in_an_environment_of_its_own_stands_beside_the_usual_one(tmp_path):
    """And a later version in the same environment takes the place of the earlier one."""
    made = [("vllm-omni", "0.28.0"), ("vllm-omni-0.30", "0.30.0"), ("vllm-omni", "0.29.0")]
    runs = [
        read_run(write(tmp_path / f"{n}.jsonl", [report(start=float(n), engine="transfer/vllm-omni", version=v)], environment=environment))
        for n, (environment, v) in enumerate(made)
    ]
    cells = {label: cell for (_, label), cell in lay_out(runs).cells.items()}

    assert {label: cell.shown.result.version for label, cell in cells.items()} == {
        "transfer/vllm-omni@cpu": "0.29.0",
        "transfer/vllm-omni@cpu in vllm-omni-0.30": "0.30.0",
    }
    assert len(cells["transfer/vllm-omni@cpu"].before) == 1


def test_the_newest_result_stands_and_older_ones_are_history(tmp_path):
    """Of two weeks, in whichever order the files are given."""
    old = write(tmp_path / "old.jsonl", [report(start=1.0, verdict="PASS")])
    new = write(tmp_path / "new.jsonl", [report(start=2.0, verdict="FAIL", longrepr="BITS DIFFER")])
    (cell,) = lay_out([read_run(new), read_run(old)]).cells.values()
    (again,) = lay_out([read_run(old), read_run(new)]).cells.values()
    index = (site_of(tmp_path, old, new) / "index.html").read_text()

    assert (cell.verdict.value, cell.before[0].result.verdict.value, cell.change.value) == ("FAIL", "PASS", "new failure")
    assert (again.verdict, again.change) == (cell.verdict, cell.change)
    assert "new failure" in index


def test_every_test_of_a_claim_that_fails_is_listed(tmp_path):
    tests = [f"suites/test_it.py::{name}[duplex/toy@cpu]" for name in ("one", "two")]
    run = write(tmp_path / "run.jsonl", [report(test=test, verdict="FAIL") for test in tests])

    assert sorted(seen.result.test for seen in lay_out([read_run(run)]).failures) == tests


def test_no_failure_is_lost_between_two_pages(tmp_path):
    failed = [report(claim=f"duplex.a.n{n}", verdict="FAIL", longrepr="x" * 16_000) for n in range(130)]
    pages = list(site_of(tmp_path, write(tmp_path / "run.jsonl", failed)).glob("failures*.html"))

    assert len(pages) > 1
    assert sum(page.read_text().count('<article class="failure') for page in pages) == len(failed)


def test_shards_are_one_board(tmp_path):
    """Results of other tests on the same engine stand beside each other; planted faults say nothing of an engine."""
    first = write(tmp_path / "1.jsonl", [report(claim="duplex.a.one"), report(claim="duplex.a.one", fault="duplex/cut", verdict="FAIL")])
    second = write(tmp_path / "2.jsonl", [report(claim="duplex.a.two", profile="gpu")])
    board = lay_out([read_run(first), read_run(second)])

    assert list(board.cells) == [("duplex.a.one", "duplex/toy@cpu"), ("duplex.a.two", "duplex/toy@gpu")]
    assert board.failures == []


def test_a_claim_says_where_it_comes_from_and_what_proves_it(tmp_path):
    claim = "duplex.isolation.recycle"
    told = {claim: {"level": "MUST", "source": "spec 1.1", "requires": ["seed"], "where": "suites/duplex/test_isolation.py:19"}}
    fault = {"fate": "caught", "role": "fault", "sentence": "The ring is kept.", "claims": [claim], "missed": []}
    planted = report(fault="duplex/ring", verdict="FAIL")
    run = write(tmp_path / "run.jsonl", [report(), planted], claims=told, proof={"faults": {"duplex/ring": fault}, "unproved": None})
    page = text(site_of(tmp_path, run), "claim", claim)

    for said in ("spec 1.1", "suites/duplex/test_isolation.py:19", "seed", "duplex/ring", "The ring is kept.", "caught it"):
        assert said in page


def test_a_fault_that_survives_is_missed_by_its_claim(tmp_path):
    """Also in a record of schema 1, which says the fate alone."""
    planted = [report(schema=1, fault="duplex/ring", verdict=verdict, claim=f"duplex.a.{verdict.lower()}") for verdict in ("FAIL", "PASS")]
    run = write(tmp_path / "run.jsonl", planted, schema=1, proof={"faults": {"duplex/ring": "survived"}, "unproved": None})
    proof = gather(lay_out([read_run(run)]))

    assert [(f.caught, f.missed) for f in proof.faults] == [(("duplex.a.fail",), ("duplex.a.pass",))]
    assert proof.tally("fault") == (0, 1)


def test_an_engine_says_what_it_offers_and_why_not(tmp_path):
    capabilities = {
        "seed": {},
        "lab": {"support": "never", "reason": "a released engine offers no lab"},
        "pause": {"support": "since", "since": "2.0"},
    }
    run = write(
        tmp_path / "run.jsonl", [report()], engines={"duplex/toy": {"version": "1.0", "kind": "duplex", "capabilities": capabilities}}
    )
    page = text(site_of(tmp_path, run), "engine", "duplex/toy@cpu")

    for said in ("Offered in full:</span> seed.", "a released engine offers no lab", "since 2.0"):
        assert said in page


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "..", "", "a/../../b", "C:\\x", "x\0y", "\ud800", "é" * 300, "X", "x" * 300])
def test_names_of_pages_stay_in_the_folder(tmp_path, name):
    page = page_name("engine", name)

    assert (tmp_path / page).resolve().parent == tmp_path.resolve()
    assert page.startswith("engine-")
    assert len(page.encode()) < 120
    assert page.isascii()


def test_no_two_names_share_a_page():
    names = ["a.b", "a/b", "a-b", "A.b", "a..b", "a b", "x" * 70, "x" * 71, ".a.b", "a.b-"]

    assert len({page_name("claim", name) for name in names}) == len(names)


def test_a_group_that_is_larger_than_a_page_is_cut(tmp_path):
    """Nothing of it is lost."""
    run = write(tmp_path / "run.jsonl", [report(claim=f"duplex.topic.name_{n}") for n in range(100)])
    cut = matrix_pages(lay_out([read_run(run)]), limit=5_000)
    rows = [row.claim.id for page in cut for table in page for group in table.groups for row in group.rows]

    assert len(cut) > 5
    assert rows == sorted(f"duplex.topic.name_{n}" for n in range(100))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[: len(text) // 2], "cut off"),
        (lambda text: text.replace('"schema": 2', '"schema": 99'), "a later Assay wrote it"),
        (lambda text: text.replace('"engines": {}', '"engines": ["<script>"]'), "engines is list, not an object"),
        (lambda text: text.replace('["seed", 1234]', '["seed", "<script>"]'), "invalid literal"),
        (lambda text: text.replace('"duration": 0.25', '"duration": "<script>"'), "no number of seconds"),
        (lambda _: '{"$report_type": "SessionStart"}\n', "no result"),
        (lambda _: "[1]\n", "not an object"),
    ],
    ids=["truncated", "later", "engines", "seed", "duration", "empty", "list"],
)
def test_a_spoiled_record_is_refused(tmp_path, capsys, spoil, said):
    """The file is named, nothing is written."""
    run = write(tmp_path / "run.jsonl", [report()])
    run.write_text(spoil(run.read_text()))
    status = assay.main(["report", str(run), "-o", str(tmp_path / "site")])
    told = capsys.readouterr().err

    assert status == 2
    assert said in told
    assert str(run) in told
    assert not (tmp_path / "site").exists()


def test_a_run_that_was_ended_by_force_is_shown(tmp_path):
    """It has results and no session line."""
    run = tmp_path / "run.jsonl"
    run.write_text(json.dumps(report()) + "\n")
    site = site_of(tmp_path, run)

    assert "Ended before it could write" in (site / "runs.html").read_text()
    assert "duplex.isolation.recycle" in (site / "index.html").read_text()


def test_the_command_prints_the_first_page(tmp_path, capsys):
    status = assay.main(["report", str(ROOT / "ci/results"), "-o", str(tmp_path / "site")])

    assert status == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "site/index.html")


@pytest.mark.parametrize("where", ["missing.jsonl", "site"])
def test_what_cannot_be_read_or_written_is_told(tmp_path, capsys, where):
    """A file that is not there; a folder that is a file."""
    run = write(tmp_path / "run.jsonl", [report()])
    (tmp_path / "site").write_text("mine")
    given = tmp_path / where if where != "site" else run
    status = assay.main(["report", str(given), "-o", str(tmp_path / "site")])

    assert status == 2
    assert where in capsys.readouterr().err
    assert (tmp_path / "site").read_text() == "mine"


def test_the_report_imports_neither_pytest_nor_torch(tmp_path):
    run = write(tmp_path / "run.jsonl", [report()])
    code = f"import sys; from harness.report import command; command.main([{str(run)!r}, '-o', {str(tmp_path / 'site')!r}]); "
    code += "print(sorted({'pytest', 'torch', 'suites'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert done.stdout.splitlines()[-1] == "[]"
