"""The doctor: which operation does not repeat itself, from which step on, and what an INCONCLUSIVE verdict quotes of it."""

import itertools
import json
from functools import partial

import pytest
import torch

from harness import __main__ as cli
from harness import doctor
from harness.core.doctor import advice, checkup, probes, rates, repeat
from harness.core.doctor.probes import BACKENDS, Probe
from harness.core.doctor.repeat import Repeat
from harness.core.registry import Selection
from harness.core.spec import Option
from tests.core.test_tables import spec

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread():
    """On a busy machine, threads wait for each other at every step."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def steady(batch):
    return [torch.full((batch, 3), float(step)) for step in range(5)]


def noisy_from(step, batches=range(100)):
    """A loop that adds other noise in each run, from one step on: the wrong input."""
    runs = itertools.count(1)

    def run(batch):
        outputs = steady(batch)
        noise = next(runs) * 2.0**-20 if batch in batches else 0.0
        return outputs[:step] + [output + noise for output in outputs[step:]]

    return run


def ask(run, batches=(1, 4)):
    return repeat.repeats(Probe("attention", "default", run), CPU, batches)


def test_an_operation_that_repeats_itself():
    found = ask(steady)

    assert (found.holds, found.differs, found.steps, found.missing) == (True, {}, 5, "")


@pytest.mark.parametrize("step", [0, 3, 4])
def test_an_operation_that_adds_noise(step):
    """The first step that differs is told."""
    found = ask(noisy_from(step))

    assert not found.holds
    assert found.differs == {1: step, 4: step}


def test_noise_at_one_batch_size():
    assert ask(noisy_from(2, batches=(4,))).differs == {4: 2}


def test_a_difference_of_one_bit_of_one_value():
    """Also the sign of a zero, which compares equal."""
    signs = itertools.cycle([0.0, -0.0])

    def run(batch):
        output = torch.zeros(batch, 3)
        output[-1, -1] = next(signs)
        return [torch.zeros(batch, 3), output]

    assert ask(run, (2,)).differs == {2: 1}


def test_rows_by_batch_size():
    """Batch sizes that give row 0 the same bits stand together; a row that depends on them is no failure."""
    found = ask(lambda batch: [torch.full((batch, 2), 1.0 if batch < 4 else 1.5)], (1, 2, 4, 8))

    assert found.rows == ((1, 2), (4, 8))
    assert found.holds


def test_rows_other_than_the_first_may_differ():
    """They hold other inputs."""
    assert ask(lambda batch: [torch.arange(batch)[:, None]], (1, 2, 4)).rows == ((1, 2, 4),)


def test_what_does_not_run_here():
    """The reason is told, without its second sentence; it neither repeats itself nor differs."""

    def run(_):
        raise RuntimeError("No available kernel. Aborting execution.\nand more")

    found = ask(run)
    assert (found.holds, found.differs, found.missing) == (False, {}, "No available kernel")


def test_a_mistake_of_the_probe_is_no_finding():
    with pytest.raises(ZeroDivisionError):
        ask(lambda _: 1 / 0)


def test_noise_inside_torch_is_found(monkeypatch):
    """The real loop, over an attention that does not repeat itself once more than 64 keys are visible, as cuDNN's."""
    attention, noise = torch.nn.functional.scaled_dot_product_attention, torch.Generator().manual_seed(1)

    def drifting(query, keys, values, attn_mask):
        given = attention(query, keys, values, attn_mask=attn_mask)
        return given + 1e-6 * torch.randn(given.shape, generator=noise) if int(attn_mask[0].sum()) > 64 else given

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", drifting)
    (default,) = [p for p in probes.probes(CPU) if (p.operation, p.way) == ("attention", "default")]

    assert repeat.repeats(default, CPU, (2,)).differs == {2: 64}


def test_no_step_of_a_probe_is_like_another():
    """Each gives finite numbers of its own: kernels are not asked the same thing twice."""
    for probe in probes.probes(CPU):
        if repeat.repeats(probe, CPU, (1,)).missing:
            continue
        first = probe.run(1)
        assert len({tuple(output.flatten().tolist()) for output in first}) == len(first)
        assert all(bool(torch.isfinite(output).all()) for output in first)


def test_a_step_depends_on_the_one_before(monkeypatch):
    """Noise in one call alone shows in every later step."""
    attention, calls = torch.nn.functional.scaled_dot_product_attention, itertools.count()

    def once(query, keys, values, attn_mask):
        given = attention(query, keys, values, attn_mask=attn_mask)
        return given + 1.0 if next(calls) == 10 else given

    (default,) = [p for p in probes.probes(CPU) if (p.operation, p.way) == ("attention", "math")]
    clean = torch.stack(default.run(1))
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", once)
    touched = torch.stack(default.run(1))

    assert (clean != touched).flatten(1).any(1).tolist() == [step >= 10 for step in range(probes.RING_STEPS)]


def test_a_cpu_is_asked_every_way():
    """Attention by each backend, products of float32 and bfloat16, convolutions of float32; math runs everywhere."""
    found = {(r.operation, r.way): r for r in repeat.examine(CPU, (1, 2))}

    assert [way for operation, way in found if operation == "attention"] == list(BACKENDS)
    assert found["attention", "math"].steps == probes.RING_STEPS
    assert {way for (_, way), r in found.items() if r.missing} == {"efficient", "cudnn"}
    assert {key for key in found if key[0] != "attention"} == {
        ("matrix product", "float32"), ("matrix product", "bfloat16"), ("convolution", "float32"),
    }  # fmt: skip
    assert "backend" in found["attention", "cudnn"].missing


@pytest.mark.parametrize("before", [True, False])
def test_switches_are_put_back(before):
    """Those of tf32, as they were before; and the process's generator is left alone."""
    matmul, state = torch.backends.cuda.matmul, torch.get_rng_state()
    was, matmul.allow_tf32 = matmul.allow_tf32, before
    try:
        with probes._precision(not before):
            assert matmul.allow_tf32 is not before
        next(p for p in probes.probes(CPU) if p.operation == "matrix product").run(1)

        assert matmul.allow_tf32 is before
    finally:
        matmul.allow_tf32 = was
    assert torch.equal(torch.get_rng_state(), state)


def test_rates(monkeypatch):
    """Bytes copied over seconds taken, by the clock; a bandwidth counts what is read and what is written."""
    seconds = itertools.count(0, 2)
    monkeypatch.setattr(rates.time, "perf_counter", lambda: float(next(seconds)))
    monkeypatch.setattr(rates, "HOST_BYTES", 1000)

    assert [(r.copy, r.size, r.rate) for r in rates.copies(CPU)] == [("within memory", 1000, 500.0)]
    assert rates.bandwidth(CPU) == 1000.0


def toy(*ways, default="default"):
    """An engine with an option for its attention backend, if `ways` are given."""
    options = {"sdpa": {"default": default, "choices": list(ways)}} if ways else {}
    return Selection(spec("connector/toy", options={"size": {"default": "s"}, **options}), {"size": "l"})


def made(**ways):
    """What the probes came to on a card: way to the first step that differs, None for none, or why it does not run."""
    attention = [
        Repeat("cuda", "attention", way, missing=came) if isinstance(came, str)
        else Repeat("cuda", "attention", way, 140, {} if came is None else {4: came})
        for way, came in ways.items()
    ]  # fmt: skip
    return [*attention, Repeat("cuda", "matrix product", "float32", 24), Repeat("cuda", "convolution", "float32", 24)]


HOPPER = made(default=70, math=None, efficient=None, flash="No available kernel", cudnn=66)


def test_advice():
    """The backend in use, the step, those that repeat themselves, and the option that takes the quicker of them; other options stay."""
    assert advice.advice(HOPPER, toy("default", "math", "efficient")) == (
        "attention=default does not repeat itself bit for bit in a ring-KV loop on cuda (step 70); math and efficient do: "
        "--engine connector/toy:sdpa=efficient,size=l"
    )


@pytest.mark.parametrize(
    ("found", "chosen", "told"),
    [
        (HOPPER, toy(), "(step 70); math and efficient do"),
        (HOPPER, toy("default", "math"), "math and efficient do: --engine connector/toy:sdpa=math,size=l"),
        (HOPPER, toy("default", "flash"), "math and efficient do"),
        (HOPPER, toy("efficient", default="efficient"), "attention=efficient, matrix products and convolutions repeat themselves"),
        (HOPPER, toy("flash", default="flash"), "matrix products and convolutions repeat themselves"),
        (
            made(default=None, efficient=None),
            toy("default", "efficient"),
            "too rare to be seen here: --engine connector/toy:sdpa=efficient",
        ),
        (made(default=3, math=5), toy(), "(step 3); nor does any other"),
        (made(default=3, math=None), toy(), "(step 3); math does"),
        ([*made(default=None), Repeat("cuda", "matrix product", "tf32", 24, {4: 9, 8: 2})], toy(), "matrix product tf32 (step 2)"),
        ([Repeat("cuda", "attention", "default", missing="device lost")], toy(), "cuda could not be asked: device lost"),
    ],
    ids=[
        "no option",
        "math only",
        "no good choice",
        "a good one",
        "none of its own",
        "seen by none",
        "none good",
        "one good",
        "product",
        "device lost",
    ],
)
def test_advice_of(found, chosen, told):
    line = advice.advice(found, chosen)

    assert told in line
    assert ("sdpa=" in line) == ("--engine" in told)
    assert len(line) <= 240


def test_the_real_option():
    """The embedded duplex engine has the option by this name, with choices that the probes know."""
    from harness.core.registry import builtin_specs

    option = next(s for s in builtin_specs() if s.name == "duplex/reference").options[advice.OPTION]
    assert isinstance(option, Option)
    assert set(option.choices) <= set(BACKENDS)


@pytest.fixture
def small(monkeypatch):
    """A quick doctor: one batch size, and few bytes. What the policy sets is put back."""
    monkeypatch.setattr(repeat, "examine", partial(repeat.examine, batches=(1,)))
    monkeypatch.setattr(rates, "HOST_BYTES", 1 << 20)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    mode, state = torch.get_deterministic_debug_mode(), torch.get_rng_state()
    yield
    torch.set_deterministic_debug_mode(mode)
    torch.set_rng_state(state)


def test_the_command(small, capsys, tmp_path):
    """A table of the machine, of what repeats itself, and of rates; the same in the record, with versions. Status 0."""
    assert cli.main(["doctor", "--device", "cpu", "--json", str(tmp_path / "new/doctor.json")]) == 0

    out = capsys.readouterr().out
    record = json.loads((tmp_path / "new/doctor.json").read_text())
    assert all(title in out for title in ("Machine", "What repeats itself bit for bit", "Copies", "GiB/s", torch.__version__))
    assert {r["way"] for r in record["repeats"] if r["operation"] == "attention"} == set(BACKENDS)
    assert record["machine"]["threads"] == 1
    assert record["machine"]["isa"]
    assert record["bandwidth"]["cpu"] == 2 * record["copies"][-1]["rate"] > 0
    assert record["determinism"]["deterministic_algorithms"] is True


def test_a_machine_that_does_not_repeat_itself_is_told(small, capsys, monkeypatch):
    """In the table, with status 0: it is no error."""
    attention, noise = torch.nn.functional.scaled_dot_product_attention, torch.Generator().manual_seed(1)
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda q, k, v, attn_mask: attention(q, k, v, attn_mask=attn_mask) + torch.randn(q.shape, generator=noise),
    )

    assert cli.main(["doctor", "--device", "cpu"]) == 0
    assert "no: batch 1 from step 0" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_a_device_that_is_not_here(capsys):
    assert cli.main(["doctor", "--device", "cuda"]) == 2
    assert capsys.readouterr().err == "assay: --device cuda: there is cpu here\n"


def test_a_device_that_breaks(monkeypatch, capsys):
    """It is told, and the others are examined."""
    monkeypatch.setattr(repeat, "examine", lambda device: [Repeat(str(device), "attention", "math", 140)])

    def copies(device):
        raise RuntimeError("CUDA error: device lost\nand more")

    monkeypatch.setattr(rates, "copies", copies)
    found = checkup.examine([CPU])
    doctor.show(found)

    assert found.failed == {"cpu": "CUDA error: device lost"}
    assert "could not ask cpu: CUDA error: device lost" in capsys.readouterr().out
