"""`assay bench tier`: its figures on a clock of the test's own, what it refuses to time, and what it leaves behind."""

import gc
import json
from collections import OrderedDict
from typing import ClassVar

import pytest
import torch

from harness import __main__ as cli
from harness.core.capabilities import Support, TierCap
from harness.core.clock import VirtualClock
from harness.core.doctor import rates
from harness.core.registry import Registry, Selection, spec_of
from harness.core.spec import RegistryError
from harness.core.verdict import EngineRaised, Unavailable
from harness.tier import bench, bench_copies, bench_plot, bench_run
from harness.tier.bench import Hits, NothingTimed, Speed
from harness.tier.bench_copies import Copies
from harness.tier.bench_run import Report
from harness.tier.protocol import Completion, Outcome, Request
from harness.tier.workload import Workload

CPU = torch.device("cpu")
COLD, HOST, DEVICE, TOKEN = 1.0, 0.4, 0.1, 0.01
"""Seconds of a first token by where its prompt was, and of each further one."""
WORKLOAD = Workload(entries=3)


class Server:
    """Keeps whole prompts, the one used last the longest: so many tokens on the device, and any number on the host, if there is one."""

    lab, policy, adapters, versions, vocabulary, page_size = None, None, (), (), 500, 1
    footprint, token_bytes, max_prompt_tokens = 1, 1000, None

    def __init__(self, clock, tokens, host):
        self.clock, self.device_capacity, self.host_capacity = clock, tokens, 1 << 20 if host else 0
        self.device, self.host, self.queued, self.handles, self.open = OrderedDict(), set(), {}, 0, True

    def submit(self, request):
        self.handles += 1
        self.queued[self.handles] = request
        return self.handles

    def pump(self):
        pass

    def result(self, handle):
        request = self.queued.pop(handle)
        prompt = request.prompt
        where = DEVICE if prompt in self.device else HOST if prompt in self.host else COLD
        if isinstance(self.clock, VirtualClock):
            self.clock.advance(where + TOKEN * (request.max_new_tokens - 1))
        self.device[prompt] = len(prompt)
        self.device.move_to_end(prompt)
        while sum(self.device.values()) > self.device_capacity:
            self.device.popitem(last=False)
        if self.host_capacity:
            self.host.add(prompt)
        cached = len(prompt) - 1 if where < COLD else 0
        return Completion(Outcome.FINISHED, token_ids=(1,), prompt_tokens=len(prompt), cached_tokens=cached)

    def quiesce(self, timeout):
        pass

    def drop_device(self):
        self.device.clear()

    def flush(self):
        self.device.clear()
        self.host.clear()

    def usage(self):
        return {}

    def close(self):
        self.open = False


class Toy:
    """Its adapter."""

    engine = Server
    spec: ClassVar = {
        "name": "tier/toy",
        "options": {"host": {"default": "on"}, "tokens": {"default": "1600"}},
        "profiles": {"cpu": {}},
        "capabilities": dict.fromkeys((member.value for member in TierCap), "full"),
    }

    @staticmethod
    def available():
        return None

    @classmethod
    def build(cls, config, clock):
        return cls.engine(clock, int(config.options["tokens"]), config.options["host"] == "on")


def variant(name, **methods):
    """Another adapter, whose engine has other methods or attributes."""
    return type(name, (Toy,), {"engine": type(name, (Server,), methods), "spec": {**Toy.spec, "name": f"tier/{name}"}})


def without(name, *capabilities):
    lacking = {each.value: {"support": Support.NEVER.value, "reason": "a toy"} for each in capabilities}
    return type(name, (Toy,), {"spec": {**Toy.spec, "name": f"tier/{name}", "capabilities": {**Toy.spec["capabilities"], **lacking}}})


def timed(adapter=Toy, **options):
    clock, selection = VirtualClock(), Selection(spec_of(adapter, "toy"), options)
    with bench.built(selection, CPU, clock) as engine:
        return bench.speed(selection, engine, WORKLOAD, CPU, clock)


def swept(*loads, adapter=Toy, host="on"):
    selection = Selection(spec_of(adapter, "toy"))
    with bench.built(selection, CPU, VirtualClock(), host=host) as engine:
        return bench.hits(selection, engine, host == "on", loads, lambda: None)


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """Between two engines the bench collects garbage, and need not go through all of torch for it."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch):
    monkeypatch.setattr(rates, "HOST_BYTES", 1 << 20)


def test_first_tokens():
    """Cold, from the device, and from the host once the device let go."""
    found = timed()

    assert (found.cold, found.device_warm, found.host_warm) == pytest.approx((1000, 100, 400))
    assert found.decode_rate == pytest.approx(1 / TOKEN)
    assert found.prefill_rate == pytest.approx(found.prompt_tokens / COLD)


def test_bytes_seen_are_those_from_the_host_over_the_time_that_they_took():
    found = timed()

    assert found.seen == pytest.approx(1000 * (found.prompt_tokens - 1) / (HOST - DEVICE))


@pytest.mark.parametrize(("adapter", "options"), [(Toy, {"host": "off"}), (without("kept", TierCap.DROP_DEVICE), {})])
def test_without_a_host_tier_or_a_way_to_it_nothing_is_host_warm(adapter, options):
    found = timed(adapter, **options)

    assert (found.host_warm, found.seen, found.copies) == (None, None, None)
    assert found.device_warm == pytest.approx(100)


def forgets(engine):
    engine.device.clear()
    engine.host.clear()


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({"quiesce": lambda engine, _: forgets(engine)}, "a device-warm request reused none"),
        ({"drop_device": forgets}, "a host-warm request reused none"),
        ({"result": lambda *_: Completion(Outcome.FAILED, error="out of pages")}, "a request was failed: out of pages"),
    ],
    ids=["never warm", "no host", "failed"],
)
def test_what_is_not_warm_is_not_timed(methods, told):
    """An engine that computes all anew would be told as one whose cache gains nothing."""
    with pytest.raises(NothingTimed, match=told):
        timed(variant("cold", **methods))


def test_what_raises_is_closed():
    engines = []

    def submit(engine, _):
        engines.append(engine)
        raise RuntimeError("out of pages")

    with pytest.raises(EngineRaised, match="out of pages"):
        timed(variant("broken", submit=submit))
    assert not engines[0].open


def test_the_sweep_finds_the_edge_of_the_device_pool():
    """Of an LRU pool that prompts go round in, all is reused up to its size, and nothing beyond; with a host tier, all."""
    assert [each.ratio > 0.9 for each in swept(0.5, 1.0, 1.25, 3.0, host="off")] == [True, True, False, False]
    assert [each.ratio for each in swept(1.25, 3.0, host="off")] == [0, 0]
    assert all(each.ratio > 0.9 for each in swept(0.5, 1.0, 1.25, 3.0))


def test_a_load_is_what_the_prompts_take():
    assert [(each.load, each.prompts) for each in swept(0.5, 1.0, 3.0)] == [(0.5, 8), (1.0, 16), (3.0, 48)]


@pytest.mark.parametrize("adapter", [without("mute", TierCap.CACHED_TOKENS)])
def test_what_does_not_count_is_not_swept(adapter):
    with pytest.raises(Unavailable, match="does not say"):
        swept(1.0, adapter=adapter)


def test_prompts_of_two_names_differ_and_of_one_do_not():
    assert bench.prompt("a", 20, 500) == bench.prompt("a", 20, 500) != bench.prompt("b", 20, 500)
    assert bench.prompt("a", 20, None) == bench.prompt("a", 20, None) != bench.prompt("b", 20, None)


def run_of(*adapters, patterns=("tier/*",)):
    return bench_run.run(Registry([spec_of(a, "toy") for a in adapters]), list(patterns), "cpu", WORKLOAD, (0.5, 2.0))


def test_the_rest_goes_on():
    """What cannot be had is told with its reason."""
    gated = type("Gated", (Toy,), {"spec": {**Toy.spec, "name": "tier/gated"}, "available": staticmethod(lambda: "weights are gated")})
    broken = variant("broken", submit=lambda *_: 1 / 0)
    report = run_of(gated, broken, Toy)

    assert report.missing["tier/gated"] == "weights are gated"
    assert report.missing["tier/broken with the host tier"].startswith("ENGINE RAISED: ZeroDivisionError")
    assert {each.engine for each in report.hits} == {"tier/toy"}
    assert [(each.host, round(each.load, 2)) for each in report.hits] == [(True, 0.5), (True, 2.0), (False, 0.5), (False, 2.0)]


@pytest.mark.parametrize(
    ("patterns", "told"),
    [
        (["tier/nobody"], "unknown engine"),
        (["tier/toy:host=off"], "leave its option host out"),
        (["connector/memory"], "it is of kind connector"),
    ],
)
def test_what_cannot_be_asked(patterns, told):
    from harness.core.registry import builtin_specs

    registry = Registry([spec_of(Toy, "toy"), *(s for s in builtin_specs() if s.name == "connector/memory")])
    with pytest.raises(RegistryError, match=told):
        bench_run.run(registry, patterns, "cpu")


REPORT = Report(
    "cuda",
    {"load_back": 55e9, "write_back": 50e9},
    [Speed("tier/a", 2074, 300.0, 50.0, 60.0, 7000.0, 90.0, 2048, 3e10, Copies(512, 1 << 30, 45e9, 49.5e9))],
    [Hits("tier/a", True, 1.0, 16, 0.9), Hits("tier/a", True, 2.0, 32, 0.8), Hits("tier/a", False, 2.0, 32, 0.0)],
    {"tier/a": "1.0"},
    {"tier/b": "not here"},
    {"cpu": "a"},
)


def test_the_tables(capsys):
    bench_run.show(REPORT)
    told = capsys.readouterr().out

    for figure in ("5.0", "45.0", "90%", "49.5", "30.0", "0.900", "0.000", "55.0 GB/s", "UNAVAILABLE  tier/b: not here"):
        assert figure in told


def test_a_record_is_read_again(tmp_path, capsys):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(REPORT.record()))

    assert bench_run.read(path) == REPORT
    assert cli.main(["bench", "tier", "--read", str(path)]) == 0
    assert "49.5" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{}", '{"bench": "duplex"}', '{"bench": "tier", "speeds": [{}]}'])
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "bench.json"
    path.write_text(text)
    with pytest.raises(RegistryError, match="no record of assay bench tier"):
        bench_run.read(path)


def test_the_plot_has_a_line_for_each_arm(tmp_path):
    pytest.importorskip("matplotlib")
    axes = bench_plot.figure(REPORT.record()).axes[0]
    bench_plot.draw(REPORT, tmp_path / "plot.svg")

    assert [list(line.get_xdata()) for line in axes.lines[:2]] == [[1.0, 2.0], [2.0]]
    assert (tmp_path / "plot.svg").stat().st_size > 1000
    with pytest.raises(RegistryError, match="nothing was measured"):
        bench_plot.draw(Report("cpu", {}), tmp_path / "none.svg")


def test_copies_of_an_engine_that_shows_no_executor_are_not_timed():
    assert bench_copies.measured(Server(VirtualClock(), 10, host=True), CPU, VirtualClock()) is None


def test_copies_of_the_embedded_server_move_every_page():
    """So many bytes both ways; and the pages on the host are then those of the device."""
    from harness.core.registry import builtin_specs

    selection = Selection(next(spec for spec in builtin_specs() if spec.name == "tier/reference"), {"device_pages": "8", "host_pages": "8"})
    from harness.core.clock import SystemClock

    with bench.built(selection, CPU, SystemClock()) as engine:
        found = bench_copies.measured(engine, CPU, SystemClock())
        assert engine.usage()["device_pages"] == 0
        assert bench_copies.token_bytes(engine) * engine.page_size * 8 == 2 * found.size

    assert found.pages == 8
    assert min(found.write_back, found.load_back) > 0


def test_requests_of_the_toy_are_counted_as_the_bench_counts_them():
    server = Server(VirtualClock(), 10, host=False)
    told = [server.result(server.submit(Request((1, 2, 3)))).cached_tokens for _ in range(2)]

    assert told == [0, 2]
