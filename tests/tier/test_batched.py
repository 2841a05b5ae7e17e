"""`tier/sglang` and `tier/tokenspeed` without their packages: arguments, and the surface of their `Engine` stood in for."""

import pytest

from harness.tier.driver import generate
from harness.tier.engines import sglang, tokenspeed
from harness.tier.engines.batched import BatchedServer
from harness.tier.protocol import Outcome, Request

GIB = 1 << 30


class Native:
    """`Engine.generate` as both packages have it, over prompts that it remembers whole."""

    def __init__(self):
        self.calls, self.kept, self.running = [], set(), True

    def generate(self, input_ids, sampling_params):
        self.calls.append(len(input_ids))
        told = []
        for tokens, sampling in zip(input_ids, sampling_params, strict=True):
            assert sampling["temperature"] == 0.0
            assert sampling["ignore_eos"]
            cached = len(tokens) - 1 if tuple(tokens) in self.kept else 0
            self.kept.add(tuple(tokens))
            meta = {"prompt_tokens": len(tokens), "cached_tokens": cached, "finish_reason": {"type": "length"}}
            if len(tokens) > 50:
                meta = {"prompt_tokens": len(tokens), "cached_tokens": 0, "finish_reason": {"type": "abort", "message": "out of pages"}}
            told.append({"text": "", "output_ids": [7] * sampling["max_new_tokens"], "meta_info": meta})
        return told

    def flush_cache(self):
        self.kept.clear()

    def shutdown(self):
        self.running = False


def server(native):
    return BatchedServer("tier/x", native, page=16, capacity=1000, host=0, footprint=1, longest=100)


def test_what_was_submitted_is_asked_for_at_once():
    native = Native()
    first, second = generate(server(native), [Request((1, 2, 3), 2), Request((1, 2, 4), 5)], together=True, stepped=False)

    assert native.calls == [2]
    assert (first.outcome, first.token_ids, first.prompt_tokens, first.cached_tokens) == (Outcome.FINISHED, (7, 7), 3, 0)
    assert second.token_ids == (7,) * 5


def test_cached_tokens_are_the_engine_s_until_it_forgets():
    engine = server(Native())
    asked = Request((1, 2, 3), 1)
    counts = [each.cached_tokens for each in generate(engine, [asked, asked], stepped=False)]
    engine.flush()
    counts += [each.cached_tokens for each in generate(engine, [asked], stepped=False)]

    assert counts == [0, 2, 0]


def test_what_the_engine_gives_up_is_a_failure():
    (told,) = generate(server(Native()), [Request((1,) * 60, 1)], stepped=False)

    assert (told.outcome, told.error) == (Outcome.FAILED, "out of pages")


@pytest.mark.parametrize(
    "request_", [Request(()), Request((1,), 0), Request((1,) * 98, 4), Request((1,), salt="a"), Request((1,), media=b"a")]
)
def test_what_can_never_be_served_is_refused(request_):
    engine = server(Native())
    with pytest.raises(ValueError, match="tier/x"):
        engine.submit(request_)

    assert engine.usage() == {"requests": 0}


def test_a_closed_one_shuts_its_engine_down_once():
    native = Native()
    engine = server(native)
    engine.close()
    engine.close()

    assert not native.running
    with pytest.raises(RuntimeError, match="is closed"):
        engine.submit(Request((1,)))


def test_the_pools_of_sglang():
    given = sglang.arguments({"device_pages": "100", "host_pages": "400"})

    assert (given["max_total_tokens"], given["hicache_ratio"], given["enable_hierarchical_cache"]) == (1600, 4.0, True)
    assert "hicache_ratio" not in sglang.arguments({"host": "off"})


def test_the_seeds_arguments_of_tokenspeed():
    """0.165 of a card of 80 GB, and as many bytes of one that is larger."""
    given = tokenspeed.arguments({}, 80 * 10**9)

    assert (given["gpu_memory_utilization"], given["kvstore_size"], given["enable_kvstore"]) == (0.165, 8, True)
    assert (given["max_model_len"], given["max_num_seqs"], given["moe_backend"], given["seed"]) == (8192, 2, "flashinfer_mxfp4", 42)
    assert tokenspeed.arguments({}, 160 * 10**9)["gpu_memory_utilization"] == 0.0825
    off = tokenspeed.arguments({"host": "off"}, 80 * GIB)
    assert off["disable_kvstore"]
    assert "enable_kvstore" not in off


@pytest.mark.parametrize(
    ("adapter", "given", "says"),
    [
        (sglang, {"hots": "on"}, "nearest: host"),
        (sglang, {"host": "yes"}, "option host"),
        (sglang, {"page": "-1"}, "option page = '-1'"),
        (tokenspeed, {"hots": "on"}, "nearest: host"),
        (tokenspeed, {"host": "yes"}, "option host"),
        (tokenspeed, {"host_gb": "0"}, "option host_gb = '0'"),
    ],
)
def test_a_wrong_option_is_named(adapter, given, says):
    with pytest.raises(ValueError, match=says):
        adapter.arguments(given) if adapter is sglang else adapter.arguments(given, 80 * GIB)


def test_a_small_pool_skips_tokenspeed(monkeypatch):
    monkeypatch.setenv(tokenspeed.SMALL, "1")

    assert tokenspeed.TokenSpeed.available().startswith("TOKENSPEED_CI_SMALL_KV_SIZE is set")


@pytest.mark.parametrize(
    ("attributes", "says"), [("FLAT_KVCACHE = False", "without the flat KV cache"), ("FLAT_KVCACHE = True", None), ("", None)]
)
def test_a_build_without_the_flat_cache_skips_tokenspeed(monkeypatch, tmp_path, attributes, says):
    """An attribute that is absent says nothing: from 0.1.42 on flat is the only build."""
    import sys

    (tmp_path / "tokenspeed").mkdir()
    (tmp_path / "tokenspeed" / "__init__.py").touch()
    (tmp_path / "tokenspeed_scheduler.py").write_text(attributes)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tokenspeed_scheduler", raising=False)
    told = tokenspeed.TokenSpeed.available()
    monkeypatch.delitem(sys.modules, "tokenspeed_scheduler", raising=False)

    assert (told is None) if says is None else says in told
