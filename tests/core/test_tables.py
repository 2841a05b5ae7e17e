"""Tables for people, and the same as JSON."""

import json
from collections import Counter

import pytest

from harness import tables
from harness.core.capabilities import ConnectorCap
from harness.core.claims import Claim, Level
from harness.core.faults import Fault, Role
from harness.core.registry import Registry
from harness.core.spec import parse_spec

OFFERED = dict.fromkeys((member.value for member in ConnectorCap), "full")


class Adapter:
    """An adapter whose word on being available each test chooses."""

    @staticmethod
    def available():
        return None


def spec(name="connector/toy", **changes):
    entry = {
        "factory": f"{__name__}:Adapter",
        "summary": "a toy",
        "package": "pytest",
        "tested": ["8", "9"],
        "options": {"size": {"default": "s", "choices": ["s", "l"]}, "note": {"default": "[auto]"}},
        "profiles": {"cpu": {}},
        "capabilities": OFFERED | {"many_reads": {"support": "never", "reason": "it [forgets]"}},
    }
    made = parse_spec(name, {**entry, **changes})
    object.__setattr__(made, "adapter", Adapter)
    return made


def wrong(original):
    """Something is [wrong]."""


CLAIM = Claim("a.b.c", Level.SHOULD, "a [spec]", "It [holds].", "test_it.py:3", ("lab", "abort"))
FAULT = Fault("transfer/x", "m:f", ("a.b.c", "a.b.d"), wrong, Role.CANARY, "bug [1]")


def words(text):
    return " ".join(text.split())


def test_engines_as_json(capsys):
    """One object an engine, with everything its description says and whether it can run here."""
    tables.show_engines(Registry([spec()]), as_json=True)

    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "connector/toy",
            "kind": "connector",
            "summary": "a toy",
            "version": pytest.__version__,
            "tested": ["8", "9"],
            "reference": False,
            "environment": "",
            "options": {
                "size": {"default": "s", "choices": ["s", "l"], "help": ""},
                "note": {"default": "[auto]", "choices": [], "help": ""},
            },
            "profiles": {"cpu": "available"},
            "capabilities": {name: {"support": "full", "reason": "", "since": "", "value": None} for name in OFFERED}
            | {"many_reads": {"support": "never", "reason": "it [forgets]", "since": "", "value": None}},
        }
    ]


def test_engines_as_a_table(capsys):
    """Options with their choices or default, and what is not offered with the reason; brackets are text."""
    tables.show_engines(Registry([spec()]))

    shown = words(capsys.readouterr().out)
    assert f"connector/toy {pytest.__version__} cpu available size=s|l, note=[auto]" in shown
    assert "What they do not offer engine capability support reason connector/toy many_reads never it [forgets]" in shown


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("full", None),
        ({"support": "since", "since": "2.0"}, "many_reads since since 2.0"),
        ({"support": "not_yet", "reason": "soon"}, "many_reads not_yet soon"),
    ],
)
def test_what_an_engine_does_not_offer(capsys, declared, said):
    """The second table is there only if it has rows."""
    tables.show_engines(Registry([spec(capabilities=OFFERED | {"many_reads": declared})]))

    shown = words(capsys.readouterr().out)
    assert ("What they do not offer" in shown) == (said is not None)
    assert said is None or f"connector/toy {said}" in shown


def test_an_engine_that_is_not_available(monkeypatch):
    """Its reason stands in the row; an adapter that raises spoils its own row only."""
    assert tables.engines(Registry([spec()]))[0]["profiles"] == {"cpu": "available"}

    monkeypatch.setattr(Adapter, "available", lambda: "no weights")
    assert tables.engines(Registry([spec()]))[0]["profiles"] == {"cpu": "no weights"}
    monkeypatch.setattr(Adapter, "available", lambda: 1 / 0)
    assert tables.engines(Registry([spec()]))[0]["profiles"] == {"cpu": "available() raised ZeroDivisionError: division by zero"}


def test_claims(capsys):
    """A row a claim."""
    tables.show_claims([CLAIM])
    assert "a.b.c SHOULD It [holds]. lab, abort a [spec]" in words(capsys.readouterr().out)

    tables.show_claims([CLAIM], as_json=True)
    assert json.loads(capsys.readouterr().out) == [
        {
            "id": "a.b.c",
            "level": "SHOULD",
            "source": "a [spec]",
            "sentence": "It [holds].",
            "where": "test_it.py:3",
            "requires": ["lab", "abort"],
        }
    ]


def test_faults(capsys):
    """A row a fault, with its claims below each other."""
    tables.show_faults([FAULT])
    assert "transfer/x canary Something is [wrong]. a.b.c bug [1] a.b.d" in words(capsys.readouterr().out)

    tables.show_faults([FAULT], as_json=True)
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "transfer/x",
            "role": "canary",
            "sentence": "Something is [wrong].",
            "claims": ["a.b.c", "a.b.d"],
            "seam": "m:f",
            "source": "bug [1]",
        }
    ]


def test_a_long_row_is_not_cut(capsys):
    """A claim's id is folded rather than shortened, so that it can be copied."""
    long = Claim("a.b." + "x" * 300, Level.MUST, "s", "t")
    tables.show_claims([long])

    out = capsys.readouterr().out
    assert out.count("x") == 300
    assert "…" not in out


class Terminal:
    hasmarkup = False

    def __init__(self):
        self.lines = []

    def write_line(self, line, **markup):
        self.lines.append(line)


def test_verdicts():
    """By kind and engine, in their order; only the verdicts that somebody reached, a dash for none."""
    counts = {("transfer", "transfer/x@cpu"): Counter(PASS=3), ("connector", "connector/y@cpu"): Counter(FAIL=1, KNOWN=2)}
    terminal = Terminal()
    tables.show_verdicts(counts, terminal)

    title, head, *rows = [words(line) for line in terminal.lines]
    assert (title, head) == ("Verdicts", "kind engine PASS FAIL KNOWN")
    assert rows == ["connector connector/y@cpu - 1 2", "transfer transfer/x@cpu 3 - -"]


def test_verdicts_have_colour_only_on_a_terminal():
    """Escapes in a file help nobody."""
    plain, coloured = Terminal(), Terminal()
    coloured.hasmarkup = True
    for terminal in (plain, coloured):
        tables.show_verdicts({("transfer", "x"): Counter(FAIL=1)}, terminal)

    assert "\x1b[" not in "".join(plain.lines)
    assert "\x1b[" in "".join(coloured.lines)


class Narrow(Terminal):
    """A terminal of 40 columns, as pytest's is asked for them."""

    isatty = True

    class _tw:
        fullwidth = 40


MANY = {("duplex", "duplex/reference:graphs=on@gpu"): Counter(PASS=84, UNSUPPORTED=11, INCONCLUSIVE=1)}


def test_verdicts_that_have_no_room_for_a_table_have_a_line_each():
    """Nothing is broken in the middle; where there is room it is a table."""
    narrow, wide = Narrow(), Terminal()
    for terminal in (narrow, wide):
        tables.show_verdicts(MANY, terminal)

    assert [line.rstrip() for line in narrow.lines] == [
        "Verdicts", "duplex/reference:graphs=on@gpu", "    84 PASS, 1 INCONCLUSIVE, 11", "    UNSUPPORTED",
    ]  # fmt: skip
    assert words(wide.lines[1]) == "kind engine PASS INCONCLUSIVE UNSUPPORTED"


FAILED = [
    tables.Failed("b/x@cpu", "FAIL", "b.b.second", "pytest b2"),
    tables.Failed("a/x@cpu", "ERROR", "a.a.a", "pytest " + "x" * 40),
    tables.Failed("b/x@cpu", "VACUOUS", "b.b.first", "pytest b1"),
]


def test_failures_by_engine_and_claim():
    """A command that does not fit stands whole on the next line."""
    terminal = Narrow()
    tables.show_failed(FAILED, terminal)

    assert terminal.lines == [
        "a/x@cpu: 1 failed", "  ERROR a.a.a", "    pytest " + "x" * 40,
        "b/x@cpu: 2 failed", "  VACUOUS b.b.first  pytest b1", "  FAIL b.b.second  pytest b2",
    ]  # fmt: skip


def test_failures_in_a_file_have_one_line_each():
    terminal = Terminal()
    tables.show_failed(FAILED, terminal)

    assert len(terminal.lines) == 5
    assert terminal.lines[1] == "  ERROR a.a.a  pytest " + "x" * 40


def test_long_lines_go_on_set_in_on_a_terminal_alone():
    line = "UNSUPPORTED  a/x@cpu: " + "word " * 10 + "end"
    narrow, file = Narrow(), Terminal()
    for terminal in (narrow, file):
        tables.show_lines([line], terminal)

    assert file.lines == [line]
    assert max(map(len, narrow.lines)) <= 40
    assert words(" ".join(narrow.lines)) == words(line)
