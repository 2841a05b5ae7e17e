"""Wrong lives: twins, branches, flushes, restarts and retractions after which something is another than it was."""

from __future__ import annotations

from typing import Any
from weakref import ref

import torch

from harness.tier.protocol import TierHits
from harness.tier.reference.keys import Key
from harness.tier.wrong_inputs.register import wrong_input


@wrong_input("second-copy-kept", "keeping:Keeping.keep", "tier.life.one_copy")
def second_copy_kept(original: Any, keeping: Any, run: Any, first: int, last: int, computed: Any) -> None:
    """What a twin computed is kept beside the first one's, where nobody finds it."""
    original(keeping, run, first, last, computed)
    for at in range(first, last):
        if at in run.own:
            key = Key(None, (run.handle, at), run.owner, hash((run.handle, at)))
            run.kept[at] = keeping.device.keep(key, run.own.pop(at), keeping.moment())
            keeping.device.pin(run.kept[at])


@wrong_input("first-suffix-token-in-the-stem", "cache:PagedCache.places", "tier.life.branches")
def first_suffix_token_in_the_stem(original: Any, cache: Any, positions: torch.Tensor) -> Any:
    """What follows a hit begins one position early, in the last page of the shared prefix."""
    return original(cache, positions - 1 if len(positions) > 1 and cache.start else positions)


@wrong_input("flush-forgets-the-device", "engine:ReferenceServer.flush", "tier.life.flush")
def flush_forgets_the_device(original: Any, server: Any) -> None:
    """A flush leaves what the host keeps."""
    if server._runs:
        original(server)
    server.quiesce(1.0)
    server.drop_device()


@wrong_input("flush-at-any-time", "engine:ReferenceServer.flush", "tier.life.flush_refused")
def flush_at_any_time(original: Any, server: Any) -> None:
    """A flush does not ask whether requests are done."""
    runs, server._runs = server._runs, {}
    original(server)
    server._runs = runs


@wrong_input("index-outlives-server", "admission:Admission.tell", "tier.life.restart")
def index_outlives_server(original: Any, admission: Any, run: Any, found: Any) -> None:
    """A prompt that an earlier server of this process had counts as cached."""
    original(admission, run, found)
    if FIRST.setdefault(run.ids, ref(admission))() is not admission:
        run.told = TierHits(len(run.keys) * admission.policy.page, 0)


FIRST: dict[tuple[int, ...], Any] = {}
"""Prompt to whichever admission had it first."""


@wrong_input("retraction-takes-logits", "scheduler:Scheduler.retract", "tier.retract.again_and_again")
def retraction_takes_logits(original: Any, scheduler: Any, run: Any) -> None:
    """The logits of tokens from before a retraction are lost."""
    run.logits.clear()
    original(scheduler, run)


@wrong_input(
    "retraction-keeps-pins", "scheduler:Scheduler.retract", "tier.retract.loading", "tier.retract.write_back", "tier.retract.host_full"
)
def retraction_keeps_pins(original: Any, scheduler: Any, run: Any) -> None:
    """A request that is retracted does not give back the kept pages that it held."""
    run.kept = {}
    original(scheduler, run)


@wrong_input("retracted-goes-last", "scheduler:Scheduler.retract", "tier.retract.goes_first")
def retracted_goes_last(original: Any, scheduler: Any, run: Any) -> None:
    """A request that is retracted waits behind all others."""
    original(scheduler, run)
    scheduler.waiting.rotate(-1)


@wrong_input("second-retraction-garbles", "scheduler:Scheduler.retract", "tier.schedule.long")
def second_retraction_garbles(original: Any, scheduler: Any, run: Any) -> None:
    """A request that is retracted a second time has another last token than before."""
    original(scheduler, run)
    run.retractions = getattr(run, "retractions", 0) + 1
    if run.retractions == 2 and run.tokens:
        run.tokens[-1] = 0
