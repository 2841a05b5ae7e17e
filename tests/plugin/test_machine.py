"""What an INCONCLUSIVE verdict says of the machine: asked only then, once, and of the machine as it is."""

import itertools

import pytest
import torch

from harness.core.doctor import repeat

DIFFERS = "run = lambda: {'count': engine.count()}\njudge.controlled('key', run, run)"


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """On a busy machine, threads wait for each other at every step. And each test asks anew."""
    threads = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    repeat.quick.cache_clear()
    yield
    torch.set_num_threads(threads)
    repeat.quick.cache_clear()


@pytest.fixture
def drifting(monkeypatch):
    """An attention that does not repeat itself where torch may choose the kernel, once more than 64 keys are visible."""
    attention, noise = torch.nn.functional.scaled_dot_product_attention, torch.Generator().manual_seed(1)

    def drifting(query, keys, values, attn_mask):
        given = attention(query, keys, values, attn_mask=attn_mask)
        chosen = torch.backends.cuda.math_sdp_enabled() and torch.backends.cuda.flash_sdp_enabled()
        return given + 1e-6 * torch.randn(given.shape, generator=noise) if chosen and int(attn_mask[0].sum()) > 64 else given

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", drifting)


def test_golden(suite, drifting):
    """The line stands between the control and the replay; the whole has ten lines or fewer."""
    suite.check(DIFFERS)
    ran = suite.run()

    assert ran.shown() == [
        "CONTROL DIFFERS  connector/toy@cpu  connector.toy.it",
        "claim     The toy does it.",
        "got       the second A run at count: 3, not 1",
        "expected  the first A run, bit for bit",
        "stimulus  seed 1234",
        "control   A, B, A: the two A runs differ",
        "machine   attention=default does not repeat itself bit for bit in a ring-KV loop on cpu (step 64); math and flash do",
        'replay    pytest "suites/connector/test_toy.py::test_it[connector/toy@cpu]" --seed 1234 --adapter toy:Toy',
    ]


def test_an_engine_of_its_own_fault(suite):
    """On a machine that repeats itself, the difference is the engine's own."""
    suite.check(DIFFERS)
    ran = suite.run()

    assert "machine   attention=default, matrix products and convolutions repeat themselves bit for bit on cpu" in ran.stdout
    assert ran.only()["machine"] in ran.stdout


@pytest.mark.parametrize("body", ["judge.equal(engine.echo(1), 1, 'echo')", "judge.equal(engine.echo(1), 2, 'echo')", "engine.echo(1)"])
def test_no_other_verdict_asks(suite, drifting, body):
    """PASS, FAIL and VACUOUS say nothing of the machine, and nobody has asked it."""
    suite.check(body)
    ran = suite.run()

    assert ran.verdict != "INCONCLUSIVE"
    assert ran.only()["machine"] == ""
    assert "machine  " not in ran.stdout
    assert ran.session()["doctor"] == {}


def test_asked_once(suite, monkeypatch):
    """However many verdicts quote it."""
    asked = itertools.count()
    examine = repeat.examine
    monkeypatch.setattr(repeat, "examine", lambda *args: (next(asked), examine(*args))[1])
    suite.check(DIFFERS, "first")
    suite.check(DIFFERS, "second")
    ran = suite.run()

    assert ran.counts() == {"INCONCLUSIVE": 2}
    assert ran.stdout.count("\nmachine   ") == 2
    assert next(asked) == 1


@pytest.mark.parametrize("args", [[], ["-n", "1"]], ids=["alone", "a worker"])
def test_recorded(suite, args):
    """In the session's record, way by way, also where a worker asked."""
    suite.check(DIFFERS)
    ran = suite.run(*args)
    record = ran.session()["doctor"]

    assert list(record) == ["cpu"]
    assert {(r["operation"], r["way"]): r["differs"] for r in record["cpu"] if not r["missing"]} == {
        ("attention", "default"): {}, ("attention", "math"): {}, ("attention", "flash"): {},
        ("matrix product", "float32"): {}, ("matrix product", "bfloat16"): {}, ("convolution", "float32"): {},
    }  # fmt: skip
    assert ran.junit_session()["doctor"] == record


def test_a_known_failure_quotes_it_in_its_record(suite):
    """The record of an INCONCLUSIVE that was expected holds the line too."""
    suite.check(DIFFERS)
    suite.known(verdict="INCONCLUSIVE")
    ran = suite.run()

    assert ran.verdict == "KNOWN"
    assert "the difference is the engine's own" in ran.only()["machine"]
