"""The registry: what engines.toml may say, and how engines are picked by name and options."""

import copy
import importlib
from dataclasses import replace

import pytest

from harness.core.capabilities import VOCABULARY, Declared, Support
from harness.core.registry import ENGINES_TOML, Registry, Selection, builtin_specs
from harness.core.spec import EngineConfig, EngineSpec, Option, Profile, RegistryError, load_object, parse_spec

ENTRY = {
    "factory": "harness.transfer.engines.memory:MemoryConnectorEngine",
    "summary": "a dictionary",
    "options": {"size": {"default": "small", "choices": ["small", "large"], "help": "how big"}, "note": {}},
    "profiles": {
        "cpu": {"marks": ["core_model"]},
        "gpu": {"device": "cuda", "platform": "cuda", "card_class": "H100", "num_cards": 2, "gpu_gib": 1.5},
    },
    "capabilities": dict.fromkeys((m.value for m in VOCABULARY["connector"]), "full"),
}


def changed(*path, value):
    """The entry with the value at `path` replaced."""
    entry = copy.deepcopy(ENTRY)
    *parents, last = path
    table = entry
    for key in parents:
        table = table[key]
    table[last] = value
    return entry


@pytest.fixture
def registry():
    names = ("connector/memory", "connector/shm", "transfer/reference")
    specs = [parse_spec(n, ENTRY if n.startswith("connector") else REFERENCE) for n in names]
    return Registry(specs)


REFERENCE = {**ENTRY, "options": {}, "capabilities": dict.fromkeys((m.value for m in VOCABULARY["transfer"]), "full")}


def test_a_whole_entry():
    """Every key arrives, with defaults for what is left out."""
    assert parse_spec("connector/memory", ENTRY) == EngineSpec(
        name="connector/memory",
        summary="a dictionary",
        factory="harness.transfer.engines.memory:MemoryConnectorEngine",
        profiles={"cpu": Profile("cpu", marks=("core_model",)), "gpu": Profile("gpu", "cuda", "cuda", "H100", 2, 1.5)},
        capabilities={member.value: Declared(Support.FULL) for member in VOCABULARY["connector"]},
        options={"size": Option("small", ("small", "large"), "how big"), "note": Option()},
    )


def test_the_optional_keys():
    """Package, versions, environment, reference."""
    spec = parse_spec("connector/x", {**ENTRY, "reference": True, "package": "torch", "tested": ["1", "2"], "environment": "env"})

    assert (spec.reference, spec.package, spec.tested, spec.environment) == (True, "torch", ("1", "2"), "env")
    assert spec.kind == "connector"


@pytest.mark.parametrize(("package", "version"), [("no-such-package or pytest", pytest.__version__), ("no-such-package or nor-this", None)])
def test_a_package_may_have_another_name(package, version):
    """The first that is installed counts."""
    assert parse_spec("connector/x", {**ENTRY, "package": package}).version == version


TYPES = [
    (("factory",), 3, "x/y: factory = 3; write a text"),
    (("summary",), ["a"], "x/y: summary = ['a']; write a text"),
    (("reference",), "yes", "x/y: reference = 'yes'; write true or false"),
    (("package",), None, "x/y: package = None; write a text"),
    (("tested",), "0.28.0", "x/y: tested = '0.28.0'; write a list of texts"),
    (("tested",), [0.28], "x/y: tested = [0.28]; write a list of texts"),
    (("profiles",), ["cpu"], "x/y: profiles = ['cpu']; write a table"),
    (("options",), "size", "x/y: options = 'size'; write a table"),
    (("capabilities",), "full", "x/y: capabilities = 'full'; write a table"),
    (("profiles", "cpu"), "cpu", "x/y: profiles.cpu: write a table, not 'cpu'"),
    (("profiles", "cpu", "num_cards"), "1", "x/y: profiles.cpu: num_cards = '1'; write an integer"),
    (("profiles", "cpu", "gpu_gib"), "1", "x/y: profiles.cpu: gpu_gib = '1'; write a number"),
    (("profiles", "cpu", "marks"), "omni", "x/y: profiles.cpu: marks = 'omni'; write a list of texts"),
    (("profiles", "cpu", "platform"), 3, "x/y: profiles.cpu: platform = 3; write a text"),
    (("options", "size"), "small", "x/y: options.size: write a table, not 'small'"),
    (("options", "size", "default"), 1, "x/y: options.size: default = 1; write a text"),
    (("options", "size", "choices"), "small", "x/y: options.size: choices = 'small'; write a list of texts"),
]

NAMES = [
    (("factori",), "m:C", "x/y: unknown key 'factori'; nearest: factory"),
    (("factory",), "", "x/y: factory and at least one profile are needed"),
    (("profiles",), {}, "x/y: factory and at least one profile are needed"),
    (("profiles", "cpu", "card"), "H100", "x/y: profiles.cpu: unknown key 'card'; nearest: num_cards"),
    (("profiles", "cpu", "name"), "gpu", "x/y: profiles.cpu: unknown key 'name'; there are"),
    (("options", "size", "defualt"), "small", "x/y: options.size: unknown key 'defualt'; nearest: default"),
    (("options", "size", "default"), "smal", "x/y: options.size: unknown default 'smal'; nearest: small"),
    (("options", "note", "choices"), ["a"], "x/y: options.note: unknown default ''; there are: a"),
    (("capabilities",), {}, "x/y: undeclared capabilities ['many_reads', "),
    (("capabilities", "fly"), "full", "x/y: unknown capabilities ['fly']"),
    (("capabilities", "many_reads"), "never", "x/y: capabilities.many_reads: support = never needs a reason"),
]


@pytest.mark.parametrize(("path", "value", "text"), TYPES + NAMES, ids=lambda p: str(p)[:40])
def test_a_malformed_entry_is_named(path, value, text):
    """The error begins with the engine and the key, and says what to write."""
    with pytest.raises(RegistryError) as wrong:
        parse_spec("connector/x", changed(*path, value=value))

    assert str(wrong.value).startswith(text.replace("x/y", "connector/x"))


def test_an_entry_that_is_no_table():
    """As a stray key at the top of the file makes it."""
    with pytest.raises(RegistryError, match="engine 'connector/x': write a table of "):
        parse_spec("connector/x", "1.0")


@pytest.mark.parametrize("name", ["x", "connector", "connector/", "/x", "engine/x", "Connector/x"])
def test_a_name_has_a_kind(name):
    """kind/name, with a kind that has a vocabulary."""
    with pytest.raises(RegistryError, match=f"engine '{name}': name it kind/name, with a kind of duplex, transfer, connector, tier"):
        parse_spec(name, ENTRY)


def test_an_engine_described_twice(registry):
    """The second needs another name."""
    with pytest.raises(RegistryError, match="engine connector/shm is described twice"):
        Registry([*registry.specs.values(), registry.specs["connector/shm"]])


def test_engines_toml_parses():
    """Every built-in engine: its adapter is where the factory says, its marks and hardware are known."""
    import markers

    specs = builtin_specs()
    assert {"transfer/reference", "transfer/vllm-omni", "connector/memory"} <= {s.name for s in specs}
    for spec in specs:
        adapter = spec.load()
        assert callable(adapter.available)
        assert callable(adapter.build)
        assert spec.summary
        for p in spec.profiles.values():
            names = markers.profile_mark_names(p.name, platform=p.platform, card_class=p.card_class, num_cards=p.num_cards)
            assert {*names, *p.marks, spec.kind} <= set(markers.MARKS)


def test_engines_toml_environments_exist():
    """An engine with an environment has the file that builds it; one with a package says what was tested, or that it was never run."""
    root = ENGINES_TOML.parents[1]
    for spec in builtin_specs():
        assert not spec.environment or (root / "ci" / "engines" / f"{spec.environment}.txt").exists()
        assert bool(spec.package) == (bool(spec.tested) or "never run" in spec.summary)


def test_every_kind_has_a_reference():
    """Faults are planted somewhere."""
    assert {s.kind for s in builtin_specs() if s.reference} == set(VOCABULARY)


def test_a_file_is_read(tmp_path):
    """Tables of TOML, in order; the error of one of them is the registry's."""
    file = tmp_path / "engines.toml"
    one = '["connector/{}"]\nfactory = "m:C"\n["connector/{}".profiles.cpu]\n["connector/{}".capabilities]\n'
    one += "".join(f'{member.value} = "full"\n' for member in VOCABULARY["connector"])
    file.write_text(one.replace("{}", "b") + one.replace("{}", "a"))
    assert [s.name for s in builtin_specs(file)] == ["connector/b", "connector/a"]

    file.write_text(one.replace("{}", "b").replace("full", "fool"))
    with pytest.raises(RegistryError, match=r"connector/b: capabilities\.many_reads: support = 'fool'"):
        builtin_specs(file)


@pytest.mark.parametrize(
    ("patterns", "labels"),
    [
        ([], ["connector/memory", "connector/shm", "transfer/reference"]),
        (["transfer/reference"], ["transfer/reference"]),
        (["connector/*"], ["connector/memory", "connector/shm"]),
        (["transfer/*", "connector/m*"], ["transfer/reference", "connector/memory"]),
        (["*", "connector/shm"], ["connector/memory", "connector/shm", "transfer/reference"]),
        (["connector/shm:size=large"], ["connector/shm:size=large"]),
        (["connector/shm:size=large", "connector/shm"], ["connector/shm:size=large", "connector/shm"]),
        (["connector/shm:size=large,note=a=b"], ["connector/shm:note=a=b,size=large"]),
        (["connector/shm:note=x,size=small", "connector/shm:size=small,note=x"], ["connector/shm:note=x,size=small"]),
        (["connector/[ms]*:size=large"], ["connector/memory:size=large", "connector/shm:size=large"]),
        (["connector/shm:note="], ["connector/shm:note="]),
        (["connector/shm:"], ["connector/shm"]),
    ],
    ids=str,
)
def test_select(registry, patterns, labels):
    """Names, globs and options, in the order asked for, each once; the label is what --engine takes."""
    assert [s.label for s in registry.select(patterns)] == labels
    assert [s.label for s in registry.select(labels)] == labels


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("transfer/referense", "unknown engine 'transfer/referense'; nearest: transfer/reference"),
        ("duplex/*", "unknown engine 'duplex/*'; there are: connector/memory, connector/shm, transfer/reference"),
        ("connector/shm:sise=large", "engine connector/shm: unknown option 'sise'; nearest: size"),
        ("connector/shm:size=lrge", "engine connector/shm, option size: unknown value 'lrge'; nearest: large"),
        ("connector/shm:size=", "engine connector/shm, option size: unknown value ''; there are: large, small"),
        ("connector/shm:size", "engine connector/shm: option 'size': write option=value"),
        ("transfer/reference:size=large", "engine transfer/reference: unknown option 'size'; there are: none"),
        ("*:size=large", "engine transfer/reference: unknown option 'size'; there are: none"),
    ],
)
def test_select_names_the_nearest(registry, pattern, text):
    """An unknown engine, option or value is an error with what there is."""
    with pytest.raises(RegistryError) as wrong:
        registry.select([pattern])

    assert str(wrong.value) == text


def test_the_build_configuration(registry):
    """Defaults filled in, given options on top, with the profile and the seed."""
    (selection,) = registry.select(["connector/shm:note=x"])

    config = selection.config(selection.spec.profiles["gpu"], seed=7)
    assert config == EngineConfig("gpu", "cuda", {"size": "small", "note": "x"}, 7)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("", "what '': write module:attr"),
        ("harness", "what 'harness': write module:attr"),
        ("harness:", "what 'harness:': write module:attr"),
        (":attr", "what ':attr': write module:attr"),
        (".harness:attr", "what '.harness:attr': write module:attr"),
        ("harness.nothing:attr", "what 'harness.nothing:attr': cannot import harness.nothing: No module named 'harness.nothing'"),
        ("harness.core.registry:Registri", "what 'harness.core.registry:Registri': unknown attribute 'Registri'; nearest: Registry, "),
        ("harness.core.registry:Registry.selct", "what 'harness.core.registry:Registry.selct': unknown attribute 'selct'; nearest: select"),
    ],
)
def test_load_object_says_which_half_is_wrong(path, text):
    """Module or attribute, with the nearest attribute."""
    with pytest.raises(RegistryError) as wrong:
        load_object(path, "what")

    assert str(wrong.value).startswith(text)


def test_load_object():
    """Attributes of attributes too."""
    assert load_object("harness.core.registry:Registry.select", "what") is Registry.select


def test_loading_a_factory_that_is_gone():
    """The error names the engine."""
    with pytest.raises(RegistryError, match=r"connector/x: factory 'harness\.gone:C': cannot import harness\.gone"):
        parse_spec("connector/x", {**ENTRY, "factory": "harness.gone:C"}).load()


def test_versions():
    """An engine's package has the installed version; one that ships with Assay has Assay's, and a third party's without one has none."""
    spec = parse_spec("connector/x", ENTRY)

    assert spec.version == importlib.import_module("harness").__version__
    assert replace(spec, package="packaging").version == importlib.metadata.version("packaging")
    assert replace(spec, package="no-such-package").version is None
    assert replace(spec, adapter=Registry).version is None


def test_why_unavailable(monkeypatch):
    """Hardware first, then the package, then the adapter's own word."""
    monkeypatch.setattr(
        "harness.core.spec.shortage",
        lambda platform, card_class, num_cards: f"{platform} {card_class} {num_cards}" if platform else None,
    )

    class Adapter:
        available = staticmethod(lambda: "no weights")

    spec = replace(parse_spec("connector/x", ENTRY), adapter=Adapter)
    cpu, gpu = spec.profiles.values()
    assert spec.why_unavailable(gpu) == "cuda H100 2"
    assert replace(spec, package="no-such-package").why_unavailable(cpu) == "no-such-package is not installed"
    assert (
        replace(spec, package="no-such-package", environment="e").why_unavailable(cpu)
        == "no-such-package is not installed (make engine NAME=e)"
    )
    assert spec.why_unavailable(cpu) == "no weights"
    assert replace(spec, adapter=None).why_unavailable(cpu) is None


def test_labels_without_options():
    """A selection of its own."""
    spec = parse_spec("connector/x", ENTRY)

    assert Selection(spec).label == "connector/x"
    assert Selection(spec).config(spec.profiles["cpu"], 1).options == {"size": "small", "note": ""}


def test_where_two_processes_meet():
    """The values of options with which two processes can meet, in the order in which they are preferred."""
    assert parse_spec("connector/memory", ENTRY).processes == {}
    assert parse_spec("connector/memory", changed("processes", value={"size": ["large"], "note": ["a", "b"]})).processes == {
        "size": ("large",),
        "note": ("a", "b"),
    }


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        ({"weight": ["large"]}, "unknown option 'weight'"),
        ({"size": ["huge"]}, "a list of values"),
        ({"size": "large"}, "a list of values"),
        ({"size": []}, "a list of values"),
        (["size"], "write a table"),
    ],
)
def test_where_no_two_processes_meet(processes, said):
    """Options and values that the engine does not have."""
    with pytest.raises(RegistryError, match=said):
        parse_spec("connector/memory", changed("processes", value=processes))
