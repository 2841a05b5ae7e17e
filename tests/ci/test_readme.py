"""ci/README.md against the commands: what it gives them, they take."""

import importlib
import re

import pytest

from ci.lanes import ROOT, read_lanes

TEXT = (ROOT / "ci" / "README.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"(?:python3?(?:\.11)? (?:-m (ci\.\w+)|ci/(\w+)\.py))((?: [^`\n|#>)]*)?)")
SUBCOMMANDS = ("check", "update", "add")


def commands(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every command of ci in a text, as module and arguments; each once."""
    found = [(module or f"ci.{file}", tuple(rest.split())) for module, file, rest in COMMAND.findall(text)]
    return sorted(set(found))


def unknown_options(module: str, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The options among the arguments that the command's help does not name."""
    asked = [argument for argument in arguments[:1] if argument in SUBCOMMANDS]
    with pytest.raises(SystemExit):
        importlib.import_module(module).main([*asked, "--help"])
    told = set(re.findall(r"(?<![\w-])--?\w[\w-]*", capsys.readouterr().out))
    return [argument for argument in arguments if re.match("--?[a-z]", argument) and argument not in told]


@pytest.mark.parametrize(("module", "arguments"), commands(TEXT), ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_a_command_takes_the_options_that_the_page_gives_it(module, arguments, capsys):
    assert unknown_options(module, arguments, capsys) == []


def test_an_option_that_there_is_not_is_seen(capsys):
    assert commands("run `python -m ci.matrix --chekc` now") == [("ci.matrix", ("--chekc",))]
    assert unknown_options("ci.matrix", ("--chekc",), capsys) == ["--chekc"]


def test_the_lanes_that_the_page_names_there_are():
    named = set(re.findall(r"(?:--lane |lane=|NAME=|ASSAY_LANE=)([a-z][\w-]*)", TEXT))

    assert named
    assert named <= {lane.name for lane in read_lanes()}
