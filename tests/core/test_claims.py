"""Claims: the decorator and the reader of syntax trees say the same, and both refuse the same mistakes."""

import importlib
from pathlib import Path

import pytest

from harness.core.capabilities import Transfer, requires
from harness.core.claims import ClaimError, Level, claim, first_line, read_claims

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "suites"

GOOD = '''
@claim("transfer.topic.name", source="a spec")
@requires(Transfer.LAB)
def test_good(judge):
    """A sentence.

    More of it.
    """
'''


def read(tmp_path, source):
    """The claims of a suite with this source."""
    file = tmp_path / "test_it.py"
    file.write_text(source, encoding="utf-8")
    return read_claims([file])


def imported(claims):
    """What the decorators of the same tests say, as (id, level, sentence, source, requires)."""
    for one in claims:
        file, _, line = one.where.rpartition(":")
        module = importlib.import_module(".".join(Path(file).relative_to(ROOT).with_suffix("").parts))
        tests = [f for f in vars(module).values() if hasattr(f, "assay_claim") and f.__module__ == module.__name__]
        (test,) = (t for t in tests if t.__code__.co_firstlineno <= int(line) and t.assay_claim.id == one.id)
        said = test.assay_claim
        yield said.id, said.level, said.sentence, said.source, tuple(r.capability for r in getattr(test, "assay_requires", ()))


def test_both_readers_agree_on_the_suites():
    """Every test of the suites reads the same from its syntax tree and from its function."""
    claims = read_claims([SUITES])

    assert len(claims) > 40
    assert list(imported(claims)) == [(c.id, c.level, c.sentence, c.source, c.requires) for c in claims]


def test_the_suites_claims_are_of_their_folder():
    """The kind in an id is that of the engines that the test runs on."""
    claims = read_claims([SUITES])

    assert [c.id for c in claims if c.id.partition(".")[0] not in (Path(c.where).parent.name, "connector")] == []


def test_a_claim_is_read(tmp_path):
    """Id, level, source, the docstring's first line, the place and what is asked for."""
    (one,) = read(tmp_path, GOOD)

    assert (one.id, one.level, one.source, one.sentence) == ("transfer.topic.name", Level.MUST, "a spec", "A sentence.")
    assert one.where == f"{tmp_path}/test_it.py:4"
    assert one.requires == ("lab",)


def test_the_decorator_says_the_same():
    """The first line of the docstring is the sentence; capabilities stand in the order written."""

    @claim("transfer.topic.name", level=Level.SHOULD, source="a spec")
    @requires(Transfer.LAB)
    @requires(Transfer.PREFETCH_DEPTH, value=1)
    def test():
        """A sentence.

        More of it.
        """

    said = test.assay_claim
    assert (said.id, said.level, said.source, said.sentence) == ("transfer.topic.name", Level.SHOULD, "a spec", "A sentence.")
    assert [(r.capability, r.value) for r in test.assay_requires] == [("lab", None), ("prefetch_depth", 1)]


@pytest.mark.parametrize(
    ("decorators", "level", "asked"),
    [
        ('@claim("a.b.c", source="s", level=Level.SHOULD)', "SHOULD", ()),
        ('@claim("a.b.c", source="s", level=claims.Level.MUST)', "MUST", ()),
        ('@claim(id="a.b.c", source="s")', "MUST", ()),
        ('@claims.claim("a.b.c", source="s")', "MUST", ()),
        ('@pytest.mark.slow\n@claim("a.b.c", source="s")\n@other', "MUST", ()),
        ('@claim("a.b.c", source="s")\n@requires(Transfer.LAB)\n@requires(Transfer.ABORT, value=1)', "MUST", ("lab", "abort")),
        ('@claim("a.b.c", source="s")\n@requires(capability=Transfer.LAB)', "MUST", ("lab",)),
    ],
)
def test_ways_to_write_a_claim(tmp_path, decorators, level, asked):
    """What the decorators accept, the reader accepts."""
    (one,) = read(tmp_path, f'{decorators}\ndef test_it():\n    """Sentence."""\n')

    assert (one.id, one.source, str(one.level), one.requires) == ("a.b.c", "s", level, asked)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ('@claim("transfer.topic.name", source="a spec")\n', "", "test_good carries 0 @claim; write exactly one"),
        ("@requires", '@claim("transfer.topic.other", source="x")\n@requires', "test_good carries 2 @claim; write exactly one"),
        ('"transfer.topic.name"', '"transfer." + NAME', "@claim takes literal strings for its id and source"),
        ('"transfer.topic.name"', "NAME", "@claim takes literal strings for its id and source"),
        ('"transfer.topic.name"', 'f"transfer.topic.{x}"', "@claim takes literal strings for its id and source"),
        ('"transfer.topic.name", ', "", "@claim takes literal strings for its id and source"),
        (', source="a spec"', "", "@claim takes literal strings for its id and source"),
        ('source="a spec"', "source=3", "@claim takes literal strings for its id and source"),
        ('source="a spec"', 'source="a spec", level="MUST"', "@claim takes level = Level.MUST or Level.SHOULD"),
        ('source="a spec"', 'source="a spec", level=Level.MAY', "@claim takes level = Level.MUST or Level.SHOULD"),
        (
            '    """A sentence.\n\n    More of it.\n    """',
            "    pass",
            "test_good has no docstring; its first line is the sentence of transfer.topic.name",
        ),
        ("A sentence.\n\n    More of it.", "  ", "test_good has no docstring; its first line is the sentence of transfer.topic.name"),
    ],
)
def test_malformed_claims(tmp_path, before, after, text):
    """The reader says where, which test, and what to write."""
    assert before in GOOD
    with pytest.raises(ClaimError) as wrong:
        read(tmp_path, GOOD.replace(before, after))

    assert text in str(wrong.value)
    assert str(wrong.value).startswith(f"{tmp_path}/test_it.py:")


@pytest.mark.parametrize(
    "id",
    [
        "transfer",
        "transfer.topic",
        "Transfer.topic.name",
        "transfer.Topic.name",
        "transfer.topic.",
        "a..b.c",
        "a.b-c.d",
        "a.b.c.",
        "a.b.c-d",
        "1a.b.c",
        " a.b.c",
        "",
    ],
)
def test_both_readers_refuse_an_id(tmp_path, id):
    """Kind, topic, name in lower case."""
    with pytest.raises(ClaimError, match=r"write kind\.topic\.name in lower case"):
        claim(id, source="s")
    with pytest.raises(ClaimError, match=r"write kind\.topic\.name in lower case"):
        read(tmp_path, GOOD.replace("transfer.topic.name", id))


@pytest.mark.parametrize("id", ["a.b.c", "transfer.topic.name_2", "a.b.c.d"])
def test_both_readers_accept_an_id(tmp_path, id):
    """Three parts or more."""
    claim(id, source="s")

    assert [c.id for c in read(tmp_path, GOOD.replace("transfer.topic.name", id))] == [id]


def test_a_claim_made_twice(tmp_path):
    """Both places are named; two claims are fine."""
    for name, id in (("one", "a.b.c"), ("two", "a.b.c"), ("three", "a.b.d")):
        (tmp_path / f"test_{name}.py").write_text(GOOD.replace("transfer.topic.name", id))
    with pytest.raises(ClaimError, match=r"claim a\.b\.c is made at \S+test_one\.py:4 and again at \S+test_two\.py:4"):
        read_claims([tmp_path])

    assert [c.id for c in read_claims([tmp_path / "test_one.py", tmp_path / "test_three.py"])] == ["a.b.c", "a.b.d"]


def test_a_decorator_twice():
    """A test makes one claim."""

    def test():
        """Sentence."""

    claim("a.b.c", source="s")(test)
    with pytest.raises(ClaimError, match=r"test: @claim stands twice \(a\.b\.c and a\.b\.d\); keep one"):
        claim("a.b.d", source="s")(test)


def test_only_tests_are_read(tmp_path):
    """Helpers, other files and other folders' names carry no claims; files come in the order of their paths."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "test_b.py").write_text(GOOD.replace("topic", "second"))
    (tmp_path / "helper.py").write_text("def test_without_claim(): pass")
    (tmp_path / "sub" / "test_a.py").write_text(GOOD + "\ndef helper(): pass\n")

    assert [c.id for c in read_claims([tmp_path])] == ["transfer.topic.name", "transfer.second.name"]


def test_the_order_is_that_of_the_file(tmp_path):
    """Also where a class holds some of the tests."""
    inner = "class TestGroup:\n" + GOOD.replace("topic", "inner").replace("\n", "\n    ") + "\n"
    claims = read(tmp_path, inner + GOOD)

    assert [c.id for c in claims] == ["transfer.inner.name", "transfer.topic.name"]


def test_a_coroutine_is_a_test_too(tmp_path):
    """One without a claim is not overlooked."""
    with pytest.raises(ClaimError, match="test_good carries 0 @claim"):
        read(tmp_path, 'async def test_good():\n    """Sentence."""\n')


@pytest.mark.parametrize(("docstring", "line"), [(None, ""), ("", ""), (" \n ", ""), ("One.", "One."), ("\n  One. \n  Two.", "One.")])
def test_first_line(docstring, line):
    """The first line that says something."""
    assert first_line(docstring) == line


def test_a_level_reads_as_its_word():
    """In messages and in tables."""
    assert [str(level) for level in Level] == ["MUST", "SHOULD"]
