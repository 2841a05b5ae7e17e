"""What servers tell beyond OpenAI's API: the one table of their metrics, fields and paths.

Names are those that each project documents: vLLM, docs.vllm.ai, "Production metrics", and vllm/v1/metrics/loggers.py (0.28.0); SGLang,
docs.sglang.ai, "Production metrics"; TokenSpeed, its EngineMetrics and RequestMetrics (tokenspeed:prefix_cache_hits names no tier); ours,
harness/tier/server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Metric:
    """A sample by name, and by labels where it has some."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KnownServer:
    """One kind of server.

    `owner`: what its models list says in `owned_by`. `fields` go with every request. `salt`: whether it takes `cache_salt`. `hits`: tier
    to counters of the prompt tokens that came from there. `held`: what is held for requests now; `held_share`: the same as a share of the
    pool. `info`: a metric whose labels say the page size and how many pages the device has, `spare_pages` of which hold nobody's tokens;
    `tokens` and `page`: gauges of the same. `flush`: the path whose POST empties the cache.
    """

    name: str
    owner: str
    fields: Mapping[str, object] = field(default_factory=dict)
    salt: bool = False
    hits: Mapping[str, Metric] = field(default_factory=dict)
    held: Mapping[str, Metric] = field(default_factory=dict)
    held_share: Metric | None = None
    info: str | None = None
    tokens: Metric | None = None
    page: Metric | None = None
    spare_pages: int = 0
    flush: str | None = None


OURS = KnownServer(
    name="assay",
    owner="assay",
    fields={"return_token_ids": True},
    salt=True,
    hits={tier: Metric("assay_cached_tokens_total", {"tier": tier}) for tier in ("device", "host", "storage")},
    flush="/flush_cache",
)
VLLM = KnownServer(
    name="vllm",
    owner="vllm",
    fields={"ignore_eos": True, "return_token_ids": True},
    salt=True,
    hits={"device": Metric("vllm:prefix_cache_hits_total"), "host": Metric("vllm:external_prefix_cache_hits_total")},
    held={"running": Metric("vllm:num_requests_running"), "waiting": Metric("vllm:num_requests_waiting")},
    held_share=Metric("vllm:kv_cache_usage_perc"),
    info="vllm:cache_config_info",
    spare_pages=1,  # block 0 stands for "none"
    flush="/reset_prefix_cache?reset_external=true",  # served with VLLM_SERVER_DEV_MODE=1 alone
)
SGLANG = KnownServer(
    name="sglang",
    owner="sglang",
    fields={"ignore_eos": True},
    hits={
        "device": Metric("sglang:cached_tokens_total", {"cache_source": "device"}),
        "host": Metric("sglang:cached_tokens_total", {"cache_source": "host"}),
        "storage": Metric("sglang:cached_tokens_total", {"cache_source": "storage"}),
    },
    held={"running": Metric("sglang:num_running_reqs"), "waiting": Metric("sglang:num_queue_reqs")},
    tokens=Metric("sglang:max_total_num_tokens"),
    page=Metric("sglang:page_size"),
    flush="/flush_cache",
)
TOKENSPEED = KnownServer(
    name="tokenspeed",
    owner="tokenspeed",
    fields={"ignore_eos": True},
    held={"running": Metric("tokenspeed:num_requests_running"), "waiting": Metric("tokenspeed:num_requests_waiting")},
    flush="/flush_cache",
)
UNKNOWN = KnownServer(name="unknown", owner="")
KNOWN = (OURS, VLLM, SGLANG, TOKENSPEED)

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Samples:
    """One reading of /metrics, in Prometheus' text format."""

    lines: tuple[tuple[str, Mapping[str, str], float], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Samples:
        return cls(tuple(_parsed(text.splitlines())))

    def total(self, metric: Metric) -> float | None:
        """The sum over all samples of that name with those labels; None where there are none."""
        found = [v for name, labels, v in self.lines if name == metric.name and metric.labels.items() <= labels.items()]
        return sum(found) if found else None

    def labels(self, name: str) -> Mapping[str, str]:
        """Those of the first sample of that name; none where there is none."""
        return next((labels for found, labels, _ in self.lines if found == name), {})

    def each(self, name: str, label: str) -> dict[str, float]:
        """A label's values to the sample's."""
        return {labels[label]: value for found, labels, value in self.lines if found == name and label in labels}


def known_server(owners: Iterable[str]) -> KnownServer:
    """The entry of the server whose models are said to be owned so."""
    owned = set(owners)
    return next((server for server in KNOWN if server.owner in owned), UNKNOWN)


def _parsed(lines: Iterable[str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for line in lines:
        found = _SAMPLE.match(line)
        if found:
            yield found[1], dict(_LABEL.findall(found[2] or "")), float(found[3])
