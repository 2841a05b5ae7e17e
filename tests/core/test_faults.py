"""Planted faults: every kind of seam is broken inside the block and whole after it; the catalogue names what exists."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.core import faults
from harness.core.claims import read_claims
from harness.core.faults import Fault, Role, all_faults, fault, find_fault, find_faults

SUITES = Path(__file__).parents[2] / "suites"


class Engine:
    """What the faults of these tests are planted in."""

    def __init__(self):
        self._size = 3

    def method(self, x):
        return x

    @staticmethod
    def static(x):
        return x

    @classmethod
    def factory(cls, x):
        return (cls, x)

    @property
    def size(self):
        """How big."""
        return self._size

    @size.setter
    def size(self, value):
        self._size = value

    @size.deleter
    def size(self):
        self._size = 0

    class Inner:
        def method(self):
            return "inner"


class Child(Engine):
    pass


def function(x):
    return x


@pytest.fixture(autouse=True)
def seams(monkeypatch):
    """The seams of this file under a name that can be imported."""
    module = SimpleNamespace(Engine=Engine, Child=Child, function=function, faults=faults)
    monkeypatch.setitem(sys.modules, "seams", module)
    return module


def plant(path, replacement):
    return Fault("transfer/x", f"seams:{path}", ("a.b.c",), replacement).planted()


def test_a_function(seams):
    """The replacement is given the original first."""
    with plant("function", lambda original, x: original(x) + 1):
        assert seams.function(1) == 2
    assert seams.function is function


def test_a_method():
    """Instances made before and after see it; so do subclasses."""
    before, raw = Engine(), vars(Engine)["method"]
    with plant("Engine.method", lambda original, self, x: (original(self, x), self)):
        assert before.method(1) == (1, before)
        assert Child().method(2)[0] == 2
    assert vars(Engine)["method"] is raw
    assert before.method(1) == 1


def test_a_static_method():
    """It stays static."""
    raw = vars(Engine)["static"]
    with plant("Engine.static", lambda original, x: original(x) + 1):
        assert Engine.static(1) == Engine().static(1) == 2
    assert vars(Engine)["static"] is raw
    assert Engine().static(1) == 1


def test_a_class_method():
    """The replacement is given the class that was asked."""
    raw = vars(Engine)["factory"]
    with plant("Engine.factory", lambda original, cls, x: ("broken", *original(cls, x))):
        assert Engine.factory(1) == ("broken", Engine, 1)
        assert Child().factory(1) == ("broken", Child, 1)
    assert vars(Engine)["factory"] is raw


def test_a_property():
    """Reading is broken; setting and deleting still work."""
    engine, raw = Engine(), vars(Engine)["size"]
    with plant("Engine.size", lambda original, self: original(self) * 10):
        assert engine.size == 30
        engine.size = 5
        assert engine.size == 50
        del engine.size
        assert engine.size == 0
    assert vars(Engine)["size"] is raw
    assert engine.size == 0


def test_a_nested_class():
    """The path goes as deep as it must."""
    with plant("Engine.Inner.method", lambda _original, _self: "broken"):
        assert Engine.Inner().method() == "broken"
    assert Engine.Inner().method() == "inner"


def test_the_name_stays():
    """What is planted looks like what it replaces."""
    with plant("Engine.method", lambda _original, _self, x: x):
        assert Engine.method.__qualname__ == "Engine.method"


def test_an_exception_takes_the_fault_out_too():
    """Nothing is left behind, whatever ends the block."""

    class Stop(BaseException):
        pass

    def stop(original, self, x):
        raise Stop

    with pytest.raises(Stop), plant("Engine.method", stop):
        Engine().method(1)
    assert Engine().method(1) == 1


def test_two_faults_in_one_seam():
    """The inner one wraps the outer one, and each takes out its own."""
    with plant("function", lambda original, x: original(x) + 1):
        with plant("function", lambda original, x: original(x) * 10):
            assert sys.modules["seams"].function(1) == 20
        assert sys.modules["seams"].function(1) == 2
    assert sys.modules["seams"].function(1) == 1


@pytest.mark.parametrize(
    ("seam", "text"),
    [
        ("seams:Engine.gone", "seam seams:Engine.gone: gone is not defined there"),
        ("seams:Child.method", "seam seams:Child.method: method is not defined there; a fault patches the place of definition"),
        ("seams:Gone.method", "seam seams:Gone.method: "),
        ("seams", "seam seams:  is not defined there"),
        ("no.such:thing", "seam no.such:thing: No module named 'no'"),
    ],
)
def test_a_seam_that_does_not_exist(seam, text):
    """The error names the seam, and nothing is patched; an inherited method is patched where it is defined."""
    broken = Fault("transfer/x", seam, ("a.b.c",), lambda _original: None)
    with pytest.raises(AttributeError) as wrong, broken.planted():
        pass

    assert str(wrong.value).startswith(text)
    assert "method" not in vars(Child)


@pytest.fixture
def register(monkeypatch):
    """`fault` with a registry of its own."""
    registered = {}
    monkeypatch.setattr(faults, "_REGISTERED", registered)

    def register(name, role=Role.FAULT, claims=("a.b.c",), docstring="It is wrong.\n\nMore."):
        def replacement(original):
            return original()

        replacement.__doc__ = docstring
        assert fault(name, seam="seams:function", claims=claims, role=role, source="a bug")(replacement) is replacement
        return registered[name]

    return register


def test_a_registered_fault(register):
    """Holds what it was given; its sentence is the docstring's first line, its kind the name's first part."""
    one = register("transfer/x")

    assert (one.name, one.seam, one.claims, one.role, one.source) == ("transfer/x", "seams:function", ("a.b.c",), Role.FAULT, "a bug")
    assert (one.kind, one.sentence) == ("transfer", "It is wrong.")


@pytest.mark.parametrize("docstring", [None, "", "  \n"])
def test_a_fault_says_what_is_wrong(register, docstring):
    """Without a docstring it is refused."""
    with pytest.raises(ValueError, match="fault transfer/x needs a docstring that says what is wrong"):
        register("transfer/x", docstring=docstring)


@pytest.mark.parametrize(
    ("role", "claims", "fits"),
    [(Role.NULL, (), True), (Role.NULL, ("a.b.c",), False)]
    + [(role, claims, bool(claims)) for role in (Role.FAULT, Role.WRONG_INPUT, Role.CANARY) for claims in ((), ("a.b.c",))],
)
def test_claims_fit_the_role(register, role, claims, fits):
    """A null fault names none, every other at least one."""
    if fits:
        assert register("transfer/x", role=role, claims=claims).role is role
    else:
        with pytest.raises(ValueError, match="fault transfer/x: a null fault names no claim, every other names at least one"):
            register("transfer/x", role=role, claims=claims)


def test_a_name_is_planted_once(register):
    """The same function again is a module that was imported again; another one is a mistake."""
    register("transfer/x")
    register("transfer/x")

    def other(original):
        """Something else."""

    with pytest.raises(ValueError, match="fault transfer/x is planted twice; give one another name"):
        fault("transfer/x", seam="seams:function", claims=["a.b.c"])(other)


def test_faults_come_in_the_order_of_their_roles(register):
    """Catalogued faults first; within a role as written."""
    for name, role in (("t/n", Role.NULL), ("t/c", Role.CANARY), ("t/b", Role.FAULT), ("t/w", Role.WRONG_INPUT), ("t/a", Role.FAULT)):
        register(name, role, claims=() if role is Role.NULL else ("a.b.c",))

    assert [f.name for f in all_faults()] == ["t/b", "t/a", "t/w", "t/n", "t/c"]


@pytest.mark.parametrize(
    ("glob", "names"),
    [("t/a*", "ab apple null canary"), ("t/ab", "ab null canary"), ("*", "ab apple b null canary"), ("t/null", "null canary")],
)
def test_find_faults(register, glob, names):
    """What matches, with the null faults and canaries always among them."""
    for name in ("t/ab", "t/apple", "t/b"):
        register(name)
    register("t/null", Role.NULL, claims=())
    register("t/canary", Role.CANARY)

    assert [f.name for f in find_faults(glob)] == [f"t/{n}" for n in names.split()]


def test_a_fault_that_does_not_exist(register):
    """The nearest is named; the null fault does not stand in."""
    register("t/apple")
    register("t/null", Role.NULL, claims=())

    assert find_fault("t/apple").name == "t/apple"
    for find in (find_fault, find_faults):
        with pytest.raises(ValueError, match="unknown fault 't/aple'; nearest: t/apple"):
            find("t/aple")


@pytest.mark.parametrize("one", all_faults(), ids=lambda f: f.name)
def test_the_catalogue_can_be_planted(one):
    """Every registered fault's seam resolves, is broken inside the block and whole after it."""
    owner, attribute = faults._resolve(one.seam)
    raw = vars(owner)[attribute]
    with one.planted():
        assert vars(owner)[attribute] is not raw
    assert vars(owner)[attribute] is raw


def test_the_catalogue_names_claims_that_exist():
    """Of its own kind, or of the connectors under it; and every kind has a null fault and a canary."""
    claims = {c.id for c in read_claims([SUITES])}
    named = {(f.kind, c) for f in all_faults() for c in f.claims}

    assert [c for _, c in named if c not in claims] == []
    assert [c for kind, c in named if c.partition(".")[0] not in (kind, "connector")] == []
    for role in (Role.NULL, Role.CANARY):
        assert {f.kind for f in all_faults() if f.role is role} == {c.partition(".")[0] for c in claims}


def test_catalogued_faults_have_a_source():
    """They were seen in the wild; a wrong input was not."""
    assert [f.name for f in all_faults() if bool(f.source) != (f.role is Role.FAULT)] == []
