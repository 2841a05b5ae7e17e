"""What the server counts, in Prometheus' text format, in a registry of its own."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from harness.tier.protocol import Completion


class Metrics:
    """Counters of what has been served, and gauges of what is held for requests now."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter("assay_requests", "Completions by how they ended.", ["outcome"], registry=self.registry)
        self._prompt = Counter("assay_prompt_tokens", "Prompt tokens of finished requests.", registry=self.registry)
        self._new = Counter("assay_generation_tokens", "New tokens of finished requests.", registry=self.registry)
        self._cached = Counter(
            "assay_cached_tokens", "Prompt tokens that were not computed, by the tier that had them.", ["tier"], registry=self.registry
        )
        self._held = Gauge("assay_held", "What is held for requests and copies.", ["what"], registry=self.registry)
        for tier in ("device", "host", "storage"):
            self._cached.labels(tier)

    def finished(self, end: Completion) -> None:
        """Count one."""
        self._requests.labels(end.outcome.value).inc()
        self._prompt.inc(end.prompt_tokens)
        self._new.inc(len(end.token_ids or ()))
        if end.tiers is not None:
            for tier, tokens in (("device", end.tiers.device), ("host", end.tiers.host), ("storage", end.tiers.storage)):
                self._cached.labels(tier).inc(tokens)

    def text(self, held: Mapping[str, int]) -> bytes:
        """All of it; `held` is what the engine holds now."""
        for what, number in held.items():
            self._held.labels(what).set(number)
        return generate_latest(self.registry)
