"""A wrong answer about captured ticks, seen on a card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.duplex.wrong_inputs.register import wrong_input


@wrong_input("duplex/graph-bakes-samples", "runner:Runner.capture", "duplex.graphs.eager")
def graph_bakes_samples(original: Any, runner: Any) -> Callable[[], Any]:
    """A captured tick hears the samples that lay there when it was captured."""
    play = original(runner)
    if not runner._graphs:
        return play
    baked = runner._given.pcm.clone()

    def replay() -> Any:
        runner._given.pcm.copy_(baked)
        return play()

    return replay
