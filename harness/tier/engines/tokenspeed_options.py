"""The options of `tier/tokenspeed-scheduler`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.core.names import unknown

ENGINE = "tier/tokenspeed-scheduler"
DEFAULTS = {
    "size": "auto",
    "host": "on",
    "page": "16",
    "chunk": "512",
    "device_pages": "640",
    "host_pages": "2048",
    "max_running": "4",
    "retract_every": "0",
}
CHOICES = {"size": ("auto", "tiny", "20b"), "host": ("on", "off")}


@dataclass(frozen=True)
class Options:
    """`page` tokens a page; `chunk` prompt tokens a step at most. `host_pages` is 0 without a host tier.

    `retract_every`: the scheduler retracts the oldest decoding request every so many steps; 0: only when pages run short.
    """

    size: str
    page: int
    chunk: int
    device_pages: int
    host_pages: int
    max_running: int
    retract_every: int

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """ValueError that names the option; one left out has its default."""
        if set(given) - set(DEFAULTS):
            raise ValueError(f"{ENGINE}: {unknown('option', min(set(given) - set(DEFAULTS)), DEFAULTS)}")
        chosen = DEFAULTS | dict(given)
        for name, choices in CHOICES.items():
            if chosen[name] not in choices:
                raise ValueError(f"{ENGINE}: option {name}: {unknown('value', chosen[name], choices)}")
        least = {"page": 1, "chunk": 1, "device_pages": 2, "host_pages": 0, "max_running": 1, "retract_every": 0}
        numbers = {name: _number(name, chosen[name], at_least) for name, at_least in least.items()}
        if numbers["chunk"] % numbers["page"]:
            raise ValueError(f"{ENGINE}: option chunk = {numbers['chunk']}: give a multiple of page = {numbers['page']}")
        if chosen["host"] == "off":
            numbers["host_pages"] = 0
        return cls(size=chosen["size"], **numbers)


def _number(name: str, given: str, least: int) -> int:
    if not given.isascii() or not given.isdigit() or int(given) < least:
        raise ValueError(f"{ENGINE}: option {name} = {given!r}: write a number, {least} or more")
    return int(given)
