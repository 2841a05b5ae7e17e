"""`assay bench duplex`: its figures on a clock of the test's own, what it refuses to time, and what it leaves behind."""

import dataclasses
import gc
import json
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

from harness import __main__ as cli
from harness.core import plots
from harness.core.capabilities import Duplex
from harness.core.clock import SystemClock, VirtualClock
from harness.core.doctor import rates
from harness.core.registry import Registry, Selection, spec_of
from harness.core.spec import RegistryError
from harness.core.verdict import DeadlineMissed, EngineRaised, Unavailable
from harness.duplex import bench, bench_plot, bench_run
from harness.duplex.bench import NothingTimed, Pace
from harness.duplex.bench_run import Report
from harness.duplex.floor import weight_bytes
from harness.duplex.protocol import Frame, Phase

CPU = torch.device("cpu")
EVENTS = []
"""What happened to the engines, in order."""


class Engine:
    """A batch of leaky integrators: each slot says what it heard, filtered, one tick later. On a virtual clock a tick takes `ms`."""

    sample_rate, frame_size, delay = 24_000, 1920, 1
    weight_bytes = 4000

    def __init__(self, slots, clock, ms):
        self.slots, self.clock, self.ms, self.ticks = slots, clock, ms, None

    def open(self):
        EVENTS.append("open")
        self.ticks, self.state = 0, torch.zeros(self.slots, self.frame_size)

    def step(self, pcm):
        self.state = 0.5 * self.state + pcm
        if isinstance(self.clock, VirtualClock):
            self.clock.advance(self.ms(self.ticks) / 1e3)
        self.ticks += 1
        if self.ticks <= self.delay:
            return [Frame(Phase.WARMUP)] * self.slots
        return [Frame(Phase.LIVE, row) for row in self.state]

    def close(self):
        EVENTS.append("close")


class Toy:
    """Its adapter. A tick takes 4 ms and 0.5 ms a slot."""

    engine = Engine
    spec: ClassVar = {
        "name": "duplex/toy",
        "options": {"batch": {"default": "4"}, "mode": {"default": "plain"}},
        "profiles": {"cpu": {}},
        "capabilities": dict.fromkeys((member.value for member in Duplex), "full"),
    }

    @staticmethod
    def available():
        return None

    @classmethod
    def build(cls, config, clock):
        EVENTS.append(f"build {cls.spec['name']} {config.options['batch']}")
        slots = int(config.options["batch"])
        return cls.engine(slots, clock, lambda _: 4 + slots / 2)


def variant(name, **methods):
    """Another adapter, whose engine has other methods or attributes."""
    engine = type(name, (Engine,), methods)
    return type(name, (Toy,), {"engine": engine, "spec": {**Toy.spec, "name": f"duplex/{name}"}})


def step_with(change):
    """A step whose last slot gives another frame, from the warm-up on."""
    return lambda engine, pcm: [*Engine.step(engine, pcm)[:-1], change(engine)]


def raises(*_):
    raise RuntimeError("out of pages")


def measured(adapter=Toy, batch=4, clock=None, **options):
    return bench.measure(Selection(spec_of(adapter, "toy"), options), batch, CPU, clock or VirtualClock(), lambda _: None)


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """Between two engines the bench collects garbage, and need not go through all of torch for it."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch):
    monkeypatch.setattr(rates, "HOST_BYTES", 1 << 20)
    EVENTS.clear()


def test_figures():
    """Of a hundred ticks: the median, the ninety-ninth, the longest, the mean; and the mean over the 80 ms of audio in a tick."""
    found = bench.pace("duplex/toy", 2, [ms / 1e3 for ms in range(100, 0, -1)], 80.0, None, None)

    assert (found.ticks, found.budget) == (100, 80.0)
    times = (found.median, found.p99, found.maximum, found.mean, found.real_time)
    assert times == pytest.approx((50.5, 99, 100, 50.5, 50.5 / 80), rel=1e-12)
    assert not found.fits


@pytest.mark.parametrize(("slow", "fits"), [(1, True), (2, False)])
def test_fits(slow, fits):
    """One tick in a hundred may be late, two may not."""
    assert bench.pace("e", 2, [0.001] * (100 - slow) + [0.081] * slow, 80.0, None, None).fits is fits


def test_a_tick_of_exactly_the_budget_fits():
    assert bench.pace("e", 2, [0.08] * 100, 80.0, None, None).fits


def test_ticks_are_timed_one_by_one():
    """After the warm-up and the engine's delay, a hundred of them; the slow ticks of the warm-up do not count."""
    warmup = bench.WARMUP_TICKS + Engine.delay
    adapter = variant("waking", __init__=lambda e, slots, clock, _: Engine.__init__(e, slots, clock, lambda t: 500 if t < warmup else t))
    found = measured(adapter)

    assert found.ticks == 100
    assert found.maximum == pytest.approx(warmup + 99)
    assert found.median == pytest.approx(warmup + 49.5)


def test_the_time_of_the_audio_is_the_engines():
    """Half the samples a tick, half the budget."""
    assert measured(variant("short", frame_size=960)).budget == 40.0


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({"step": step_with(lambda _: Frame(Phase.WARMUP))}, "slot 3 was in phase warmup on tick 11, not live"),
        ({"step": step_with(lambda _: Frame(Phase.LIVE))}, "slot 3 was in phase live on tick 11"),
        ({"step": step_with(lambda e: Frame(Phase.LIVE, torch.full((e.frame_size,), float("nan"))))}, "no 1920 finite samples"),
        ({"step": step_with(lambda _: Frame(Phase.LIVE, torch.zeros(960)))}, "no 1920 finite samples"),
        ({"step": lambda e, pcm: Engine.step(e, pcm)[:-1]}, "3 frames for 4 slots on tick 11"),
        ({"__init__": lambda e, *_: Engine.__init__(e, 8, None, None)}, "it has 8 slots, built with batch=4"),
        ({"delay": 0, "step": lambda *_: [Frame(Phase.PREFILL)] * 4}, "slot 0 was in phase prefill on tick 10"),
    ],
    ids=["warm-up", "no audio", "nan", "half a frame", "a frame too few", "other slots", "prefill"],
)
def test_what_gives_no_answer_is_not_timed(methods, told):
    """An engine that does nothing would be the quickest. It is closed all the same."""
    with pytest.raises(NothingTimed, match=told):
        measured(variant("idle", **methods))

    assert EVENTS[-1] == "close"


def test_what_raises_is_closed():
    with pytest.raises(EngineRaised, match=r"out of pages \(from step\(\)"):
        measured(variant("broken", step=raises))
    assert EVENTS[-1] == "close"


def test_what_hangs_misses_a_deadline(monkeypatch):
    """The bench goes on after it."""
    import threading

    monkeypatch.setattr(bench, "DEADLINE", 0.2)
    with pytest.raises(DeadlineMissed):
        measured(variant("stuck", step=lambda *_: threading.Event().wait()))
    assert EVENTS[-1] == "close"


def test_no_option_batch():
    adapter = type("Fixed", (Toy,), {"spec": {**Toy.spec, "name": "duplex/fixed", "options": {}}})
    with pytest.raises(Unavailable, match="no option batch"):
        measured(adapter)


def test_no_profile_for_the_device():
    with pytest.raises(Unavailable, match="no profile for cuda"):
        bench.measure(Selection(spec_of(Toy, "toy")), 2, torch.device("cuda"), SystemClock(), print)
    assert EVENTS == []


def test_options_are_kept():
    """Those of the selection reach the build, with the batch size beside them."""
    found = measured(batch=6, mode="loud")

    assert (found.engine, found.batch) == ("duplex/toy:mode=loud", 6)
    assert EVENTS[0] == "build duplex/toy 6"


def test_resident_memory():
    """What the engine takes from the system shows, and is at least that much."""
    taken = 64 << 20

    def open_(engine):
        Engine.open(engine)
        engine.kept = torch.ones(taken, dtype=torch.uint8)

    assert bench._resident_bytes() > 0
    assert measured(variant("large", open=open_)).peak_gib >= 0.9 * taken / bench.GIB


GATED = type("Gated", (Toy,), {"spec": {**Toy.spec, "name": "duplex/gated"}, "available": staticmethod(lambda: "weights are gated")})
TIGHT = type("Tight", (Toy,), {"spec": {**Toy.spec, "name": "duplex/tight"}})


def build_tight(config, clock):
    if int(config.options["batch"]) > 4:
        raise Unavailable("out of memory at 8")
    return Engine(int(config.options["batch"]), clock, lambda _: 1)


TIGHT.build = staticmethod(build_tight)


def run_of(*adapters, patterns=("duplex/*",), batches=(2, 4)):
    return bench_run.run(Registry([spec_of(a, "toy") for a in adapters]), list(patterns), list(batches), "cpu")


def test_one_after_the_other():
    """Each engine is closed before the next is built; batch sizes once each, from the smallest on."""
    report = run_of(Toy, variant("second"), batches=(4, 2, 4))
    builds = [f"build duplex/{name} {batch}" for name in ("toy", "second") for batch in (2, 4)]

    assert [event for build in builds for event in (build, "open", "close")] == EVENTS
    assert [(p.engine, p.batch) for p in report.paces] == [(f"duplex/{n}", b) for n in ("toy", "second") for b in (2, 4)]
    assert report.missing == {}


def test_the_least_batch():
    """One stream is measured as two, as in the seed; and two are not measured twice for it."""
    assert [p.batch for p in run_of(Toy, batches=(2, 1)).paces] == [2]


def test_the_rest_goes_on():
    """What cannot be had is told with its reason, by engine and batch size."""
    report = run_of(GATED, TIGHT, variant("broken", step=raises), variant("idle", step=lambda *_: []), Toy, batches=(2, 8))

    assert [(p.engine, p.batch) for p in report.paces] == [("duplex/tight", 2), ("duplex/toy", 2), ("duplex/toy", 8)]
    assert report.missing["duplex/gated"] == "weights are gated"
    assert report.missing["duplex/tight batch 8"] == "out of memory at 8"
    assert report.missing["duplex/broken batch 2"].startswith("ENGINE RAISED: RuntimeError: out of pages")
    assert report.missing["duplex/idle batch 8"] == "NOTHING TIMED: step gave 0 frames for 8 slots on tick 11"
    assert len(report.missing) == 6


@pytest.mark.parametrize(
    ("patterns", "batches", "told"),
    [
        (["duplex/nobody"], [2], "unknown engine"),
        (["duplex/toy:batch=4"], [2], "leave its option batch out, and give --batch 4"),
        (["duplex/toy"], [4, 0], "--batch 0: give 1 or more"),
        (["connector/memory"], [2], "it is of kind connector"),
    ],
)
def test_what_cannot_be_asked(patterns, batches, told):
    from harness.core.registry import builtin_specs

    registry = Registry([spec_of(Toy, "toy"), *(s for s in builtin_specs() if s.name == "connector/memory")])
    with pytest.raises(RegistryError, match=told):
        bench_run.run(registry, patterns, batches, "cpu")
    assert EVENTS == []


def made(engine="duplex/a", batch=2, median=10.0, p99=20.0, **fields):
    values = {"ticks": 100, "maximum": p99, "mean": median, "budget": 80.0, "real_time": median / 80} | fields
    return Pace(engine, batch, median=median, p99=p99, **values)


def report_of(*paces):
    return Report("cpu", 2e9, list(paces), machine={"cpu": "a"})


def test_the_floor():
    """Weight bytes over bandwidth, in milliseconds; none for an engine that does not tell."""
    assert bench_run.beside(made(weight_bytes=14_000_000_000), report_of()).floor == 7000.0
    assert bench_run.beside(made(weight_bytes=None), report_of()).floor is None


def test_weight_bytes():
    """Each parameter once, in its own width; of embeddings a tick reads a few rows, and buffers are no weights."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.first = nn.Embedding(50, 4), nn.Linear(4, 8, bias=False, dtype=torch.bfloat16)
            self.second, self.tied = self.first, nn.Linear(4, 2)
            self.embedding = nn.Parameter(torch.zeros(9))
            self.register_buffer("offsets", torch.zeros(5))

    network = Network()
    assert weight_bytes(network) == 4 * 8 * 2 + (4 * 2 + 2) * 4
    assert weight_bytes(network, network.tied, nn.Linear(1, 1)) == weight_bytes(network) + 8


def test_the_ratio():
    """To the first engine of the run, at the same batch size; none where it was not measured there."""
    first = report_of(made("duplex/a", 2, 10.0), made("duplex/a", 4, 30.0))

    assert bench_run.beside(made("duplex/b", 4, 45.0), first).of_first == 1.5
    assert bench_run.beside(made("duplex/b", 8, 45.0), first).of_first is None
    assert bench_run.beside(made("duplex/a", 8, 45.0), first).of_first == 1.0
    assert bench_run.beside(made("duplex/c", 2, 5.0), report_of()).of_first == 1.0


@pytest.mark.parametrize(
    ("p99s", "streams", "told"),
    [
        ({2: 10, 4: 79, 8: 90, 16: 200}, 4, "at least 4 streams fit in 80 ms (p99); 8 do not"),
        ({2: 10, 4: 20}, 4, "at least 4 streams fit in 80 ms (p99), the most that were measured"),
        ({2: 81, 4: 90}, 0, "no batch size measured keeps 80 ms (p99)"),
    ],
)
def test_streams_that_fit(p99s, streams, told, capsys):
    """The largest batch whose p99 keeps the budget."""
    report = report_of(*(made(batch=batch, p99=float(p99)) for batch, p99 in p99s.items()), made("duplex/b", 32, p99=1.0))
    bench_run.show(report)

    assert bench_run.fitting(report.paces, "duplex/a") == report.record()["streams"]["duplex/a"] == streams
    assert f"duplex/a: {told}" in capsys.readouterr().out


@pytest.fixture
def importable(monkeypatch):
    """This module by a name that the command can import."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return "test_bench:Toy"


def bench_duplex(importable, *more):
    return cli.main(["bench", "duplex", "--adapter", importable, "--engine", "duplex/toy", "--batch", "2", "4", *more])


def test_the_command(importable, capsys, tmp_path):
    """A table, and a record with the machine's fingerprint, versions and the command's figures; read back, the table is the same."""
    record = tmp_path / "new/bench.json"
    assert bench_duplex(importable, "--json", str(record)) == 0

    out, kept = capsys.readouterr().out, json.loads(record.read_text())
    assert out.startswith("A tick on cpu, 100 timed")
    assert "duplex/toy: at least 4 streams fit in 80 ms (p99), the most that were measured" in out
    assert [(p["engine"], p["batch"], p["ticks"]) for p in kept["paces"]] == [("duplex/toy", 2, 100), ("duplex/toy", 4, 100)]
    assert kept["machine"]["packages"]["torch"] == torch.__version__
    assert kept["versions"] == {"duplex/toy": ""}
    assert kept["streams"] == {"duplex/toy": 4}
    assert kept["paces"][0]["floor"] == 1e3 * 4000 / kept["bandwidth"]

    assert cli.main(["bench", "duplex", "--read", str(record)]) == 0
    assert capsys.readouterr().out == out


@pytest.mark.parametrize("text", ["", "{}", '{"bench": "transfer"}', '{"bench": "duplex", "paces": [{"engine": "x"}]}'])
def test_a_record_that_is_none(text, capsys, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)

    assert cli.main(["bench", "duplex", "--read", str(path)]) == 2
    assert f"--read {path}: no record" in capsys.readouterr().err


def test_a_plot_without_matplotlib(importable, capsys, monkeypatch, tmp_path):
    """Said before anything is measured."""
    monkeypatch.setattr(plots, "find_spec", lambda _: None)

    assert bench_duplex(importable, "--plot", str(tmp_path / "bench.png")) == 2
    assert capsys.readouterr().err == "assay: --plot needs matplotlib, which is not installed: pip install -e '.[plot]'\n"
    assert EVENTS == []


def test_the_plot(tmp_path):
    """A line and a band an engine, a floor where it is known, the budget; batch sizes are the ticks of the axis."""
    matplotlib = pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    assert matplotlib
    paces = [made("duplex/a", b, 5.0 * b, 6.0 * b, floor=3.0) for b in (2, 4, 8)] + [made("duplex/b", 2)]
    figure = bench_plot.figure(report_of(*paces).record())
    (axes,) = figure.axes

    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["duplex/a", "duplex/a: floor", "duplex/b", "budget 80 ms"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "4", "8"]
    assert list(axes.lines[0].get_ydata()) == [10.0, 20.0, 40.0]
    assert len(axes.collections) == 2

    bench_plot.draw(report_of(*paces), tmp_path / "new/bench.png")
    assert (tmp_path / "new/bench.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_plot(tmp_path):
    with pytest.raises(RegistryError, match="nothing was measured"):
        bench_plot.draw(report_of(), tmp_path / "bench.png")
    assert not (tmp_path / "bench.png").exists()


def test_a_plot_of_no_known_kind(capsys, monkeypatch):
    monkeypatch.setattr(plots, "find_spec", lambda _: object())

    assert cli.main(["bench", "duplex", "--plot", "bench.txt"]) == 2
    assert "ends in .png, .svg, .pdf" in capsys.readouterr().err


def test_figures_are_all_in_the_record():
    """A field that is added is recorded and read back."""
    report = report_of(made(weight_bytes=5, floor=1.0, of_first=1.0, peak_gib=2.0))

    assert report.record()["paces"] == [dataclasses.asdict(report.paces[0])]


def test_the_embedded_engine(capsys):
    """It is measured as any other, and tells its weights, so that it has a floor; what it lacks on a CPU is told."""
    assert cli.main(["bench", "duplex", "--engine", "duplex/reference", "--engine", "duplex/reference:graphs=on", "--batch", "2"]) == 0

    out = capsys.readouterr().out
    row = next(line.split() for line in out.splitlines() if line.startswith("duplex/reference "))
    assert (row[1], row[6]) == ("2", "1.00")
    assert float(row[7]) > 0
    assert "UNAVAILABLE  duplex/reference:graphs=on batch 2: graphs = on: CUDA graphs need a card" in out
