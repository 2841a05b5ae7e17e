"""Capabilities: what an engine must declare, how a declaration reads, and when it refuses a claim."""

import pytest

from harness.core.capabilities import VOCABULARY, ConnectorCap, Declared, Requirement, Support, Transfer, parse_capabilities, requires

WHOLE = dict.fromkeys((member.value for member in Transfer), "full")
CONNECTOR = dict.fromkeys((member.value for member in ConnectorCap), "full")


def test_every_capability_declared():
    """Short and long form read alike; the order is the vocabulary's."""
    read = parse_capabilities("transfer/x", "transfer", {**dict(reversed(WHOLE.items())), "lab": {"support": "full"}})

    assert list(read) == [member.value for member in Transfer]
    assert set(read.values()) == {Declared(Support.FULL)}


@pytest.mark.parametrize("left_out", list(WHOLE))
def test_an_undeclared_capability(left_out):
    """Silence is an error that names the engine, what is missing and what to write."""
    table = {k: v for k, v in WHOLE.items() if k != left_out}
    with pytest.raises(ValueError, match="transfer/x: undeclared") as wrong:
        parse_capabilities("transfer/x", "transfer", table)

    assert str(wrong.value) == f"transfer/x: undeclared capabilities ['{left_out}']; declare each as full, since, not_yet or never"


def test_an_unknown_capability():
    """One of another kind, or of none, is told with those of the kind."""
    with pytest.raises(ValueError, match="connector/x: unknown") as wrong:
        parse_capabilities("connector/x", "connector", {"many_reads": "full", "abort": "full", "fly": "full"})

    assert str(wrong.value) == "connector/x: unknown capabilities ['abort', 'fly']; those of kind connector are " + str(list(CONNECTOR))


@pytest.mark.parametrize(
    ("raw", "declared"),
    [
        ("full", Declared(Support.FULL)),
        ({"support": "full", "value": 1}, Declared(Support.FULL, value=1)),
        ({"support": "never", "reason": "no"}, Declared(Support.NEVER, "no")),
        ({"support": "not_yet", "reason": "soon"}, Declared(Support.NOT_YET, "soon")),
        ({"support": "since", "since": "0.30"}, Declared(Support.SINCE, since="0.30")),
    ],
    ids=str,
)
def test_degrees_of_support(raw, declared):
    """Each degree with what it needs."""
    assert Declared.parse("here", raw) == declared


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (True, 'write "full" or a table with support = full | since | not_yet | never'),
        (None, 'write "full" or a table with support = full | since | not_yet | never'),
        ({}, 'write "full" or a table with support = full | since | not_yet | never'),
        ({"reason": "no"}, 'write "full" or a table with support = full | since | not_yet | never'),
        ("yes", "support = 'yes'; use full, since, not_yet or never"),
        ({"support": "FULL"}, "support = 'FULL'; use full, since, not_yet or never"),
        ({"support": ["full"]}, "support = ['full']; use full, since, not_yet or never"),
        ({"support": "full", "note": "x", "because": "y"}, "unknown keys ['because', 'note']"),
        ("never", "support = never needs a reason"),
        ({"support": "never", "reason": "  "}, "support = never needs a reason"),
        ("not_yet", "support = not_yet needs a reason"),
        ("since", "support = since needs since = a version, got ''"),
        ({"support": "since", "since": "soon"}, "support = since needs since = a version, got 'soon'"),
        ({"support": "since", "since": 0.30}, "reason and since are texts in quotes, value is an integer"),
        ({"support": "full", "value": "1"}, "reason and since are texts in quotes, value is an integer"),
        ({"support": "never", "reason": 3}, "reason and since are texts in quotes, value is an integer"),
    ],
    ids=str,
)
def test_malformed_declarations(raw, text):
    """The error begins with the entry and says what to write."""
    with pytest.raises(ValueError, match="connector/x") as wrong:
        parse_capabilities("connector/x", "connector", {**CONNECTOR, "many_reads": raw})

    assert str(wrong.value) == f"connector/x: capabilities.many_reads: {text}"


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("0.30.0", None),
        ("0.30", None),
        ("1.0", None),
        ("0.30.0+cu129", None),
        (None, None),
        ("0.28.0", "since 0.30; this is 0.28.0"),
        ("0.9", "since 0.30; this is 0.9"),
        ("0.30.0rc1", "since 0.30; this is 0.30.0rc1"),
    ],
)
def test_since_refuses_older_versions(version, why):
    """Versions compare as versions; one that nobody knows is not refused."""
    assert Declared(Support.SINCE, since="0.30").refusal(version) == why


def test_never_refuses_with_its_reason():
    """Whatever the version; FULL and NOT_YET are judged."""
    assert Declared(Support.NEVER, "no checksum").refusal("9.9") == "no checksum"
    assert Declared(Support.FULL).refusal("0.1") is None
    assert Declared(Support.NOT_YET, "soon").refusal("0.1") is None


def test_requires():
    """Marks a test with what it asks for, in the order written; a test without it asks for nothing."""

    @requires(Transfer.LAB)
    @requires(ConnectorCap.MANY_READS, value=2)
    def test():
        pass

    assert test.assay_requires == (Requirement("lab"), Requirement("many_reads", 2))
    assert not hasattr(test_requires, "assay_requires")


def test_every_capability_reads_back_from_its_member():
    """The reader of syntax trees takes a member's name, the decorator its value: they are one word."""
    members = [member for vocabulary in VOCABULARY.values() for member in vocabulary]

    assert members
    assert [m for m in members if m.value != m.name.lower()] == []
