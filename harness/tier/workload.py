"""The constants of the tier checks: the seeds' figures, and the prompts made from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

WORDS = [
    "amber",
    "birch",
    "cobalt",
    "damson",
    "ember",
    "fennel",
    "garnet",
    "hazel",
    "indigo",
    "juniper",
    "kestrel",
    "larch",
    "mallow",
    "nutmeg",
]
"""The seeds'."""


@dataclass(frozen=True)
class Workload:
    """Overridable as `--set tier.<name>=<value>`. Lengths count tokens.

    `entries`, `prompt_tokens`, `prompt_least`, `prompt_most`, `oversubscribed`, `prompts_least`, `prompts_most`, `new_tokens`, `warm_least`
    and `cold_most` are the seeds'.

    `step_tokens` is how much of a prompt is computed at once in their check, where an engine can be told. In the others, a prompt has
    `pages` pages and a few tokens. `pressed_prompts` prompts, or `pressure_prompts` in a soak, go through `pressure_passes` passes;
    `distinct_prompts` are kept at once; `requests` are sent with random aborts. `connections` are open at once. `schedules` and
    `soak_schedules` are drawn, of at most `schedule_steps` and `soak_steps` steps each.
    """

    entries: int = 130
    prompt_tokens: int = 2074
    prompt_least: int = 1900
    prompt_most: int = 2270
    oversubscribed: float = 1.44
    prompts_least: int = 8
    prompts_most: int = 120
    new_tokens: int = 4
    step_tokens: int = 512
    warm_least: float = 0.5
    cold_most: float = 0.2
    pages: int = 6
    pressure_prompts: int = 200
    pressed_prompts: int = 24
    pressure_passes: int = 3
    distinct_prompts: int = 64
    requests: int = 1000
    connections: int = 200
    schedules: int = 10
    schedule_steps: int = 30
    soak_schedules: int = 300
    soak_steps: int = 60

    def __post_init__(self) -> None:
        least = (self.entries, self.prompt_tokens, self.new_tokens, self.pages, self.schedules, self.soak_schedules, self.requests)
        if min(least) < 1:
            raise ValueError("entries, prompt_tokens, new_tokens, pages, requests and schedules are at least 1")
        if not self.prompt_least <= self.prompt_tokens <= self.prompt_most:
            raise ValueError(f"prompt_tokens = {self.prompt_tokens}: it lies between prompt_least and prompt_most")

    def prompt(self, number: int) -> str:
        """Ledger `number`: prompts differ from their first sentence on."""
        said = [f"Ledger {number} opens with a fresh manifest of arrivals."]
        for entry in range(self.entries):
            word, count = WORDS[entry % len(WORDS)], number * 7 + entry * 3 + 3
            said.append(f"Entry {number}-{entry}: the {word} shipment number {count} arrived intact.")
        said.append(f"Ledger {number} summary: report the last entry number only.")
        return " ".join(said)

    def prompts(self, capacity: int, footprint: int) -> int:
        """How many of them oversubscribe a pool of `capacity` tokens as far as the seeds do."""
        return math.ceil(self.oversubscribed * capacity / (footprint * self.prompt_tokens))
