"""Fixtures of all kinds live in one name space: of two with one name, pytest takes the last."""

import ast
from collections import Counter
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures"


def names(source):
    """The fixtures that a module defines."""
    return [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def test_no_two_fixtures_share_a_name():
    found = Counter(name for path in FIXTURES.glob("*.py") for name in names(path.read_text()))

    assert [name for name, times in found.items() if times > 1] == []
    assert "stage" in found


def test_a_second_of_a_name_is_seen():
    assert names("@pytest.fixture\ndef stage(): ...\n@pytest.fixture(scope='module')\ndef stage(): ...\ndef stage(): ...") == ["stage"] * 2
