"""Engines that others bring: an adapter class with a spec, by entry point of an installed distribution or by --adapter."""

import sys

import pytest

from harness.core.capabilities import ConnectorCap
from harness.core.registry import adapter_spec, entry_point_specs, spec_of
from harness.core.spec import RegistryError

MODULE = """
from harness.core.capabilities import ConnectorCap


class Adapter:
    spec = {
        "name": "connector/toy",
        "summary": "a toy",
        "profiles": {"cpu": {"marks": ["core_model"]}},
        "capabilities": dict.fromkeys((m.value for m in ConnectorCap), "full"),
    }

    @staticmethod
    def available():
        return None

    @staticmethod
    def build(config, clock):
        return (config, clock)


class Nest:
    Adapter = Adapter
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution: a module and its metadata, with the entry points given, as pip leaves them behind."""

    def install(*points, source=MODULE):
        (tmp_path / "toy_engines.py").write_text(source, encoding="utf-8")
        info = tmp_path / "toy_engines-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-engines\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[assay.engines]\n" + "\n".join(points) + "\n[console_scripts]\nother = toy_engines:gone\n")

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    sys.modules.pop("toy_engines", None)


def own(specs):
    """Without what is really installed beside."""
    return [s for s in specs if s.factory.startswith("toy_engines")]


def test_an_entry_point_brings_an_engine(installed):
    """The adapter's spec is read; loading gives the adapter itself."""
    installed("toy = toy_engines:Adapter")

    (spec,) = own(entry_point_specs())
    assert (spec.name, spec.summary, spec.factory, spec.reference) == ("connector/toy", "a toy", "toy_engines:Adapter", False)
    assert spec.load() is sys.modules["toy_engines"].Adapter
    assert spec.why_unavailable(spec.profiles["cpu"]) is None


def test_no_entry_point_brings_nothing(installed):
    """Other groups are not ours."""
    installed()

    assert own(entry_point_specs()) == []


@pytest.mark.parametrize(
    ("point", "source", "text"),
    [
        ("toy = toy_gone:Adapter", MODULE, "entry point toy = toy_gone:Adapter: No module named 'toy_gone'; repair or uninstall"),
        (
            "toy = toy_engines:Gone",
            MODULE,
            "entry point toy = toy_engines:Gone: module 'toy_engines' has no attribute 'Gone'; repair or uninstall",
        ),
        (
            "toy = toy_engines:Adapter",
            "import nothing_here",
            "entry point toy = toy_engines:Adapter: No module named 'nothing_here'; repair",
        ),
        (
            "toy = toy_engines:Adapter",
            MODULE.replace('"name"', '"nome"'),
            "entry point toy = toy_engines:Adapter: give the adapter a class",
        ),
        ("toy = toy_engines:Adapter", MODULE.replace('"full"', '"fool"'), "connector/toy: capabilities.many_reads: support = 'fool'"),
    ],
    ids=["module", "attribute", "import inside", "no name", "malformed"],
)
def test_a_broken_entry_point_is_named(installed, point, source, text):
    """So that one knows what to repair or uninstall."""
    installed(point, source=source)

    with pytest.raises(RegistryError) as wrong:
        entry_point_specs()
    assert str(wrong.value).startswith(text)


@pytest.mark.parametrize("path", ["toy_engines:Adapter", "toy_engines:Nest.Adapter"])
def test_an_adapter_by_its_path(installed, path):
    """`--adapter module:attr`."""
    installed()

    spec = adapter_spec(path)
    assert (spec.name, spec.factory) == ("connector/toy", "toy_engines:Adapter")
    assert spec.load().build(1, 2) == (1, 2)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("toy_engines", "--adapter 'toy_engines': write module:attr"),
        ("toy_engine:Adapter", "--adapter 'toy_engine:Adapter': cannot import toy_engine: No module named 'toy_engine'"),
        ("toy_engines:Adaptor", "--adapter 'toy_engines:Adaptor': unknown attribute 'Adaptor'; nearest: Adapter"),
        (
            "toy_engines:Nest",
            "--adapter toy_engines:Nest: give the adapter a class attribute spec = {'name': 'kind/name', 'summary': ..., ...}",
        ),
        ("toy_engines:Adapter.build", "--adapter toy_engines:Adapter.build: <function Adapter.build at "),
    ],
)
def test_a_path_that_is_no_adapter(installed, path, text):
    """The option, the path and what is wrong with it."""
    installed()

    with pytest.raises(RegistryError) as wrong:
        adapter_spec(path)
    assert str(wrong.value).startswith(text)


def adapter(**attributes):
    """A class with everything an adapter needs, save what is set to None here."""
    offered = dict.fromkeys((m.value for m in ConnectorCap), "full")
    spec = {"name": "connector/toy", "profiles": {"cpu": {}}, "capabilities": offered}
    whole = {"spec": spec, "available": staticmethod(lambda: None), "build": staticmethod(lambda _config, _clock: None), **attributes}
    return type("Adapter", (), {k: v for k, v in whole.items() if v is not None})


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"spec": None}, "here: give the adapter a class attribute spec"),
        ({"spec": "connector/toy"}, "here: give the adapter a class attribute spec"),
        ({"spec": {"summary": "a toy"}}, "here: give the adapter a class attribute spec"),
        ({"spec": {"name": 3}}, "here: give the adapter a class attribute spec"),
        ({"available": None}, "here: the adapter has no static method available()"),
        ({"build": None}, "here: the adapter has no static method build()"),
        ({"build": 3}, "here: the adapter has no static method build()"),
        ({"spec": {"name": "connector/toy"}}, "connector/toy: factory and at least one profile are needed"),
        ({"spec": {"name": "toy", "profiles": {"cpu": {}}}}, "engine 'toy': name it kind/name"),
    ],
    ids=str,
)
def test_an_adapter_with_a_missing_part(attributes, text):
    """Each part that is missing is asked for."""
    assert spec_of(adapter(), "here").name == "connector/toy"

    with pytest.raises(RegistryError) as wrong:
        spec_of(adapter(**attributes), "here")
    assert str(wrong.value).startswith(text)


def test_an_instance_is_no_adapter():
    """Build makes the engine; what is named is the class."""
    with pytest.raises(RegistryError, match="is no class; name the adapter class itself"):
        spec_of(adapter()(), "here")
