"""What cannot be collected: an error with file, line and what to write; all of them at once."""

import pytest

from ci.collect import CollectError, collect
from tests.ci.small_trees import SUITE, TEST, Tree, small_tree


@pytest.fixture
def tree(tmp_path) -> Tree:
    return small_tree(tmp_path)


def errors(tree: Tree) -> list[str]:
    with pytest.raises(CollectError) as wrong:
        collect(tree.root)
    return list(wrong.value.errors)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("est_time=4", "est_time=2*2", ":6: est_time = 2 * 2: it is read without being run; write the value itself"),
        ("est_time=4", "est_time=-4", ":6: est_time = -4: write the seconds that the file takes an engine, a number above 0"),
        ("est_time=4", "est_time=1e999", ":6: est_time = inf: write the seconds"),
        ("est_time=4", "est_time=float('nan')", ":6: est_time = float('nan'): it is read without being run"),
        ("est_time=4", "est_time=True", ":6: est_time = True: write the seconds"),
        ("est_time=4", "est_time='4'", ":6: est_time = '4': write the seconds"),
        ("est_time=4, ", "", ":6: register_ci(suite='small'): est_time is missing; write register_ci(est_time=, suite=, profile=)"),
        ("est_time=4, suite", "suites", ":6: register_ci(suites='small'): write register_ci(est_time=, suite=, profile=), each by"),
        ("(est_time=4", "(*[4]", ":6: register_ci(*[4], suite='small'): write register_ci("),
        ("(est_time=4", "(**{'est_time': 4}", ":6: register_ci(**{'est_time': 4}, suite='small'): write register_ci("),
        ('suite="small")', "suite=4)", ":6: suite = 4: write a name"),
        ('suite="small")', 'suite="smal")', ":6: unknown suite 'smal'; nearest: small"),
        ('suite="small")', 'suite="small", profile="tpu")', ":6: no test of the file runs in profile tpu; take the call out"),
        ("register_ci(est", "if True: register_ci(est", ":6: register_ci(est_time=4, suite='small'): write it at module level"),
        ("register_cuda_ci(est_time=10", "register_ci(profile='cpu', est_time=4", f":7: profile cpu is registered at {TEST}:6"),
        ("register_ci(est_time=4, s", "str(s", ":11: test_first runs in profile cpu, of which the file says no time"),
        ("register_cuda_ci(est_time=10, s", "str(s", ":11: test_first runs in profile gpu, of which the file says no time"),
    ],
)  # fmt: skip
def test_a_time_that_is_none(tree, old, new, text):
    """A register that is missing, doubled, computed, in the wrong place or of no use."""
    tree.edit(TEST, old, new)

    assert [error for error in errors(tree) if error.startswith(TEST + text)]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("pytestmark = pytest.mark.sok", ":12: test_first: unknown mark 'sok'; nearest: soak"),
        ("pytestmark = getattr(pytest.mark, 'soak')", ":1: getattr(pytest.mark, 'soak'): it is read without being run; write pytest.mark"),
        ("pytestmark = [pytest.mark.soak] + [f()]", ":1: [pytest.mark.soak] + [f()]: it is read without being run"),
        ("pytestmark = [*both]", ":1: *both: it is read without being run; write pytest.mark.NAME or *hardware_marks("),
        ("pytestmark = hardware_marks(res=CARD)", ":1: res = CARD: it is read without being run; write the value itself"),
        ("pytestmark = hardware_marks({'cuda': 'H100'})", ":1: hardware_marks({'cuda': 'H100'}): write hardware_marks(res="),
        ("pytestmark = hardware_marks(num_cards=1)", ":1: hardware_marks(num_cards=1): write hardware_marks(res="),
        ("pytestmark = hardware_marks(res={'cuda': 'A100'})", ":1: hardware_marks: unknown card class 'A100'"),
        ("pytestmark = hardware_marks(res={}, num_cards=1.0)", ":1: hardware_marks(res={}, num_cards=1.0): write"),
        ("pytestmark = pytest.mark.cuda", ":12: marks cuda: a test that needs hardware takes hardware_marks(...), once"),
        ("pytestmark = pytest.mark.usefixtures(NAME)", ":1: usefixtures = NAME: it is read without being run"),
        ("pytestmark = pytest.mark.skipif(True, reason='')", ":12: test_first: no skipif here: ask for a capability with @requires"),
        ("pytestmark = pytest.mark.tier\npytestmark = pytest.mark.soak", ":2: pytestmark: write it once"),
        ("pytestmark = pytest.mark.tier", ":12: test_first runs nowhere: harness/engines.toml has no tier engine"),
        ("for i in range(2):\n    def test_more(engine): ...", ":1: test_more: pytest would see it, and a syntax tree does not say"),
        ("from elsewhere import *", ":1: *: pytest would see it"),
        ("from elsewhere import test_more", ":1: test_more: pytest would see it"),
        ("test_more = print", ":1: test_more: pytest would see it"),
        ("def test_first(engine): ...", ":12: test_first is defined at " + TEST + ":1 already; give one another name"),
        ("class TestMore(Base): ...", ":1: class TestMore: write test classes without bases and without __init__"),
        ("class TestMore:\n    class TestInside: ...", ":2: class TestInside: write no test class inside another"),
        ("@pytest.fixture(params=[1])\ndef some(): ...", ":1: pytest.fixture(params=[1]): write pytest.fixture(name=, autouse=, scope=)"),
        ("def test_more(engine): ...", ":1: test_more carries 0 @claim; write exactly one"),
        ("def broken(", ":1: no Python file: "),
    ],
)  # fmt: skip
def test_a_file_that_says_what_no_tree_can(tree, line, text):
    """Marks, names and fixtures that are computed, unknown, or not where pytest or a reader looks for them."""
    tree.write(TEST, f"{line}\n{SUITE}")

    assert [error for error in errors(tree) if error.startswith(TEST + text)]


@pytest.mark.parametrize(
    ("decorator", "arguments", "text"),
    [
        ("", "judge", ":23: test_third is judged on no engine: ask for engine, fresh_engine, build_engine, blueprint, itself or through"),
        ("@given(3)", "engine", ":21: given(3): it is read without being run; write pytest.mark.NAME"),
        (
            "@pytest.mark.parametrize('n', [1, 2])",
            "engine, n",
            ":23: test_third: no parametrize here: a claim is no parametrization of another",
        ),
        ("@requires(ConnectorCap.READER)", "engine", ":23: test_third: unknown connector capability 'reader'; nearest: readers"),
        ("@getattr(pytest.mark, f'so{AK}')", "engine", ":21: getattr(pytest.mark, f'so{AK}'): it is read without being run"),
        ("@claim('connector.small.fourth', source='a test')", "engine", ":23: test_third carries 2 @claim; write exactly one"),
    ],
)
def test_a_test_that_cannot_be_judged(tree, decorator, arguments, text):
    """No engine, a decorator that may do anything, several tests in one, a capability that there is not, two claims."""
    claim = '@claim("connector.small.third", source="a test")'
    tree.write(TEST, f'{SUITE}\n\n{decorator}\n{claim}\ndef test_third({arguments}):\n    """It is not."""\n')
    (error,) = errors(tree)

    assert error.startswith(TEST + text)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("suites/connector/conftest.py", "", "suites/connector/conftest.py:1: fixtures belong in fixtures/"),
        ("suites/connector/more_test.py", "", "suites/connector/more_test.py:1: call it test_more.py"),
        (
            "suites/other/test_more.py",
            SUITE,
            "suites/other/test_more.py:11: put the file under suites/<kind>/ or mark it: unknown kind 'other'",
        ),
        (
            "suites/connector/test_two.py",
            SUITE,
            f"suites/connector/test_two.py:11: claim connector.small.first is made at {TEST}:11 already",
        ),
        (
            "fixtures/own.py",
            "import pytest\n@pytest.fixture\ndef engine(): ...\n",
            "/pytest_plugin/engines.py:197: fixture engine is defined at fixtures/own.py:3 too",
        ),
        ("fixtures/own.py", "def f(:\n", "fixtures/own.py:1: no Python file"),
        ("conftest.py", "pytest_plugins = list('ab')\n", "conftest.py:1: pytest_plugins = list('ab'): it is read without being run"),
        ("harness/engines.toml", "", f"{TEST}:11: test_first runs nowhere: harness/engines.toml has no connector engine"),
    ],
)
def test_a_tree_that_cannot_be_read(tree, name, text, error):
    """Files where pytest would look and a reader would not, fixtures of one name, and what is no Python."""
    tree.write(name, text)

    assert [found for found in errors(tree) if error in found]


def test_an_engine_with_a_mark_that_there_is_not(tree):
    """The error names the entry of engines.toml."""
    tree.edit("harness/engines.toml", "core_model", "core_modl")

    assert "harness/engines.toml: connector/a: profiles.cpu: unknown mark 'core_modl'; nearest: core_model" in errors(tree)[0]


def test_all_errors_are_told_at_once(tree):
    """Not only the first; and each once."""
    tree.edit(TEST, "est_time=4", "est_time=-4")
    tree.edit(TEST, 'suite="small-h100"', 'suite="larg"')
    tree.write("suites/connector/test_two.py", "def broken(\n")
    found = errors(tree)

    assert [error.partition(": ")[0] for error in found] == [f"{TEST}:6", "suites/connector/test_two.py:1", f"{TEST}:7", f"{TEST}:11"]


def test_an_empty_tree(tmp_path):
    """Has nothing to collect, which is an error."""
    found = errors(Tree(tmp_path))

    assert any("no test files; give the root of a checkout" in error for error in found)
