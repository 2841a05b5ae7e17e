"""The site in a real browser: it loads, its filters work by keyboard, everyone can read it, and a record's text stays text."""

import json
import re
from pathlib import Path

import pytest

from harness.core.verdict import Verdict
from harness.report import pages
from harness.report.runs import read_run, read_runs
from harness.report.site import write_site
from tests.report.browser import opened, started
from tests.report.recorded import report, write

ROOT = Path(__file__).parents[2]
ATTACK = """"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'{{ 7 * 7 }}</style></pre></td>"""
PAGES = ("index", "failures", "proof", "runs", "claim-", "engine-")


@pytest.fixture(scope="module")
def browser():
    with started() as browser:
        yield browser


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The site of the committed runs of one H200, and a run with each verdict and a proof."""
    folder = tmp_path_factory.mktemp("real")
    mixed = [
        report(
            claim=f"tier.toy.{v.value.lower()}",
            verdict=v.value,
            engine="tier/toy",
            reason="CUT: 3 of 4" if v.fails_the_run else "",
            longrepr="FAIL",
        )
        for v in Verdict
    ]
    planted = [report(claim="tier.toy.pass", engine="tier/toy", fault="tier/cut", verdict="FAIL", replay="")]
    fault = {"fate": "caught", "role": "fault", "sentence": "A page is cut.", "claims": ["tier.toy.pass"], "missed": []}
    capabilities = {"abort": {}, "lab": {"support": "never", "reason": "a released engine offers no lab"}}
    engines = {"tier/toy": {"version": "1.0", "kind": "tier", "capabilities": capabilities}}
    run = write(folder / "mixed.jsonl", mixed + planted, proof={"faults": {"tier/cut": fault}, "unproved": []}, engines=engines)
    return write_site([*read_runs([ROOT / "ci/results"]), read_run(run)], folder / "site").parent


@pytest.fixture(scope="module")
def forged(tmp_path_factory):
    """A run with the attack in every text that a record has."""
    return read_run(forge(tmp_path_factory.mktemp("forged") / "run.jsonl"))


def forge(path):
    names = (
        "test",
        "claim",
        "sentence",
        "level",
        "version",
        "profile",
        "options",
        "reason",
        "got",
        "expected",
        "control",
        "machine",
        "replay",
    )
    texts = {name: f"{name} {ATTACK}" for name in names}
    figures = json.dumps([{"name": ATTACK, "value": 1, "unit": ATTACK, "bound": None}])
    engine, label = f"duplex/{ATTACK}", f"duplex/{ATTACK}:{texts['options']}"
    results = [
        report(
            **{**texts, "engine": engine, "verdict": verdict, "figures": figures, "test": f"{verdict} {ATTACK}"}, longrepr=f"FAIL {ATTACK}"
        )
        for verdict in ("FAIL", "PASS", "KNOWN", "UNSUPPORTED")
    ]
    results.append(report(**{**texts, "engine": engine, "fault": ATTACK, "verdict": "FAIL"}))
    told = {"level": ATTACK, "source": ATTACK, "requires": [ATTACK], "where": ATTACK}
    return write(
        path,
        results,
        **dict.fromkeys(("started", "command", "commit", "environment"), ATTACK),
        machine={"cpu": ATTACK, ATTACK: ATTACK, "packages": {"torch": ATTACK, ATTACK: ATTACK}, "cards": [{"name": ATTACK}]},
        engines={label: {"version": ATTACK, "environment": ATTACK, "capabilities": {ATTACK: {"support": ATTACK, "reason": ATTACK}}}},
        claims={texts["claim"]: told},
        unavailable={ATTACK: ATTACK},
        proof={"faults": {ATTACK: {"fate": ATTACK, "role": ATTACK, "sentence": ATTACK, "missed": [texts["claim"]]}}, "unproved": [ATTACK]},
    )


def named(site, name):
    """The page of that name, or the first whose name begins so."""
    return site / f"{name}.html" if (site / f"{name}.html").exists() else min(site.glob(f"{name}*.html"))


def breached(held):
    """Elements that only the attack can have made."""
    return held.page.locator("img[src=x]").count() + held.page.locator("script:not(body > script:last-child)").count()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_pages_load_and_can_be_read(browser, real, name, scheme):
    """No complaint, no request but the file itself, no violation that axe-core knows: contrast, labels, structure."""
    with opened(browser, named(real, name), scheme=scheme) as held:
        violations = held.violations()

        assert violations == []
        assert held.complaints == []
        assert len(held.asked_for) == 1


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_phone(browser, real, name):
    """At 390 pixels a page scrolls down only."""
    with opened(browser, named(real, name), width=390) as held:
        width = held.page.evaluate("document.documentElement.scrollWidth")

        assert width == 390


def test_filters_work_by_keyboard(browser, real):
    """/ leads to the text; Tab to kind, engine and verdicts; the address keeps all of it."""
    with opened(browser, real / "index.html") as held:
        everything, keys = held.rows(), held.page.keyboard
        keys.press("/")
        keys.type("slot recycle")
        some = held.page.locator(".board tbody tr:not(.group) th:visible").all_inner_texts()
        keys.press("Tab")
        keys.type("duplex")
        keys.press("Tab")
        keys.press("Tab")
        keys.press("Space")
        failed = held.rows()
        address = held.page.url.partition("#")[2]

        assert 0 < len(some) < len(everything)
        assert all("recycle" in row.lower() and "slot" in row.lower() for row in some)
        assert len(failed) < len(some)
        assert "q=slot+recycle" in address
        assert "kind=duplex" in address
        assert "verdict=FAIL" in address


def test_the_address_keeps_the_filters(browser, real):
    """A link with filters shows what it showed; an engine leaves its own column alone; clearing shows all again."""
    engine = "tier/toy@cpu"
    with opened(browser, real / "index.html", fragment=f"#engine={engine}&verdict=KNOWN,VACUOUS") as held:
        heads = held.page.locator(".board .engine:visible").all_inner_texts()

        assert sorted(held.rows()) == ["toy.known", "toy.vacuous"]
        assert len(heads) == 1
        held.page.locator("[data-clear]").focus()
        held.page.keyboard.press("Enter")
        assert len(held.rows()) > 100


def test_no_claim_left_says_so(browser, real):
    with opened(browser, real / "index.html", fragment="#q=nothing+is+called+so") as held:
        shown = held.page.locator(".empty").is_visible()

        assert held.rows() == []
        assert shown


def test_a_replay_command_is_selected_or_copied(browser, real):
    with opened(browser, real / "failures.html") as held:
        held.page.locator("button[data-copy]").first.click()
        held.page.locator("button[data-copy]").first.get_by_text(re.compile("copied|selected")).wait_for()
        selected, command = held.page.evaluate("[getSelection().toString(), document.querySelector('.replay pre').textContent]")

        assert selected == command


def test_a_stored_attack_stays_text(browser, forged, tmp_path):
    """In every text field of a record, on every page."""
    site = write_site([forged], tmp_path / "site").parent

    for path in sorted(site.glob("*.html")):
        with opened(browser, path) as held:
            assert breached(held) == 0, path.name
            assert held.page.evaluate("window.hacked") is None
            assert held.complaints == []
    with opened(browser, named(site, "claim-")) as held:
        assert ATTACK in held.page.locator("main").inner_text().replace("\n", "")
    assert {path.parent for path in tmp_path.rglob("*.html")} == {site}


@pytest.fixture
def unescaped(monkeypatch):
    """Templates that let markup through."""
    broken = pages.environment.__wrapped__()
    broken.autoescape = False
    monkeypatch.setattr(pages, "environment", lambda: broken)


def test_an_unescaped_field_is_seen(browser, forged, tmp_path, unescaped):
    """The twin: elements of the attack are found, and the policy still keeps its script from running."""
    site = write_site([forged], tmp_path / "site").parent

    with opened(browser, named(site, "claim-")) as held:
        assert breached(held) > 0
        assert held.page.evaluate("window.hacked") is None
        assert any("Content Security Policy" in complaint for complaint in held.complaints)


def test_without_a_policy_the_attack_would_run(browser, forged, tmp_path, unescaped):
    """So the attack is one."""
    page = named(write_site([forged], tmp_path / "site").parent, "claim-")
    page.write_text(page.read_text().replace("Content-Security-Policy", "X-Nothing"))

    with opened(browser, page) as held:
        held.page.wait_for_function("window.hacked === 1")
        assert held.page.evaluate("window.hacked") == 1


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("--quiet: #565d66", "--quiet: #c4c8cc", "color-contrast"),
        ("<label>Kind <select", "<label></label><div><select", "select-name"),
        (' lang="en"', "", "html-has-lang"),
    ],
)
def test_axe_sees_a_broken_page(browser, real, tmp_path, old, new, rule):
    """The twins of the checks above: low contrast, a missing label, no language."""
    text = (real / "index.html").read_text()
    page = tmp_path / "index.html"
    page.write_text(text.replace("Content-Security-Policy", "X-Nothing").replace(old, new))

    with opened(browser, page) as held:
        violations = held.violations()

        assert old in text
        assert rule in [violation.partition(":")[0] for violation in violations]


def test_a_complaint_is_seen(browser, real, tmp_path):
    """The twin of `no complaint`: a script that the policy does not name, and one that fails."""
    page = tmp_path / "index.html"
    page.write_text((real / "index.html").read_text().replace('"use strict";', '"use strict"; missing();'))

    with opened(browser, page) as held:
        assert held.complaints
