"""`tier/reference`: the embedded server, at the size that its options say."""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch

from harness.core.clock import Clock
from harness.core.spec import EngineConfig
from harness.tier.protocol import Group, Policy
from harness.tier.reference.config import GROUPS, SIZES, SLIDING, config_of
from harness.tier.reference.engine import ReferenceServer
from harness.tier.reference.executor import Executor
from harness.tier.reference.network import Network
from harness.tier.reference.tokenizer import TierTokenizer

DEFAULTS = {"size": "auto", "host": "on", "page": "16", "chunk": "auto", "device_pages": "1280", "host_pages": "4096", "max_running": "4"}
CHOICES = {"size": ("auto", *SIZES), "host": ("on", "off")}
LIMIT = 8192
"""Positions that a request may have: the seeds' max_model_len."""


class ReferenceTier:
    """Builds reference servers."""

    @staticmethod
    def available() -> str | None:
        """It ships with Assay and runs wherever torch does."""
        return None

    @staticmethod
    def build(config: EngineConfig, clock: Clock) -> ReferenceServer:
        """ValueError for an option or value that it does not know. Its time is counted in steps: the clock has no part in it."""
        options = _options(config)
        device = torch.device(config.device)
        page, device_pages = _number(options, "page"), _number(options, "device_pages")
        chunk = (512 if device.type == "cuda" else 32) if options["chunk"] == "auto" else _number(options, "chunk")
        if chunk % page:
            raise ValueError(f"tier/reference: chunk = {chunk} is no multiple of page = {page}")
        host_pages = _number(options, "host_pages") if options["host"] == "on" else 0
        network = _network(options["size"], device)
        groups = tuple(Group(name, network.config.window if name == SLIDING else None) for name in GROUPS)
        policy = Policy(page, chunk, device_pages, host_pages, groups, _number(options, "max_running"))
        return ReferenceServer(network, TierTokenizer(), Executor(network, page, device_pages, host_pages, device), policy, LIMIT)


_SHARED: WeakValueDictionary[tuple[str, torch.device], Network] = WeakValueDictionary()


def _network(size: str, device: torch.device) -> Network:
    """Engines of one process share it."""
    network = _SHARED.get((size, device))
    if network is None:
        network = _SHARED[size, device] = Network(config_of(size, device), device)
    return network


def _options(config: EngineConfig) -> dict[str, str]:
    options = DEFAULTS | dict(config.options)
    unknown = sorted(set(options) - set(DEFAULTS))
    if unknown:
        raise ValueError(f"tier/reference: unknown options {unknown}; it has {', '.join(sorted(DEFAULTS))}")
    for name, choices in CHOICES.items():
        if options[name] not in choices:
            raise ValueError(f"tier/reference: option {name} = {options[name]!r}: write one of {', '.join(choices)}")
    return options


def _number(options: dict[str, str], name: str) -> int:
    if not options[name].isdecimal() or int(options[name]) < 1:
        raise ValueError(f"tier/reference: option {name} = {options[name]!r}: write a number of at least 1")
    return int(options[name])
