"""Wrong answers about neighbours: what one slot hears, is or does reaches another."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from harness.duplex.reference.inlet import SessionError
from harness.duplex.reference.words import PAD
from harness.duplex.wrong_inputs.register import wrong_input


@wrong_input("duplex/crosstalk", "inlet:Inlet.heard", "duplex.neighbours.audio")
def crosstalk(original: Any, inlet: Any, given: Any, slot: int) -> np.ndarray:
    """A thousandth of what the next slot's caller says is heard in this one."""
    return original(inlet, given, slot) + np.float32(1e-3) * given.audio[(slot + 1) % len(given.audio)]


@wrong_input("duplex/batch-must-be-finite", "inlet:Inlet.heard", "duplex.neighbours.not_finite", raises=[SessionError])
def batch_must_be_finite(original: Any, inlet: Any, given: Any, slot: int) -> np.ndarray:
    """Samples that are not finite in any slot end the session in every slot."""
    if not np.isfinite(given.audio).all():
        raise SessionError("the batch holds samples that are not finite")
    return original(inlet, given, slot)


@wrong_input("duplex/persona-in-every-ear", "tick:Tick._stage", "duplex.neighbours.persona")
def persona_in_every_ear(original: Any, tick: Any, told: Any, heard: torch.Tensor) -> Any:
    """While a persona's words are replayed in one row, they change the codes that the other callers' sound becomes."""
    word = torch.where(told.prefill, told.text, PAD).max()
    return original(tick, told, (heard + word - PAD) % tick.config.audio_card)


@wrong_input("duplex/voice-beside-itself", "tick:Tick.restore", "duplex.neighbours.voice")
def voice_beside_itself(original: Any, tick: Any, row: int, voice: int, base: int) -> None:
    """The delay ring of a voice that is not the default goes into the next row too."""
    original(tick, row, voice, base)
    if voice:
        original(tick, (row + 1) % tick.rows, voice, base)


@wrong_input("duplex/noise-for-everyone", "runner:Runner.sample", "duplex.neighbours.seed")
def noise_for_everyone(original: Any, runner: Any, draws: Any) -> None:
    """As soon as one session is sampled, the greedy ones have its noise too."""
    original(runner, draws)
    noise = runner.host.audio_noise
    noise.copy_(noise[next(iter(draws))].clone() if draws else torch.zeros_like(noise))


@wrong_input("duplex/seed-salted-by-row", "slots:RowTable.seat", "duplex.neighbours.draws")
def seed_salted_by_row(original: Any, table: Any, row: int, seed: int | None) -> None:
    """A session's draws depend on the row that it sits in."""
    original(table, row, None if seed is None else seed + row)


@wrong_input("duplex/pause-of-two", "inlet:Inlet.taking_part", "duplex.neighbours.pause", "duplex.pause.after_wrap")
def pause_of_two(original: Any, inlet: Any, live: Any) -> tuple[bool, ...]:
    """With a slot that is paused, the next one is left out too."""
    flags = original(inlet, live)
    return tuple(flag and flags[number - 1] for number, flag in enumerate(flags))


@wrong_input("duplex/finish-of-two", "outlet:Outlet.end_input", "duplex.neighbours.finish")
def finish_of_two(original: Any, outlet: Any, slot: int) -> None:
    """The end of one caller's input ends the next slot's too."""
    for ended in {slot, slot + 1} & set(outlet.streams):
        original(outlet, ended)


@wrong_input("duplex/cancel-wipes-next", "engine:ReferenceEngine.cancel", "duplex.neighbours.cancel")
def cancel_wipes_next(original: Any, engine: Any, slot: int) -> None:
    """Cancelling a session empties the next slot's row."""
    original(engine, slot)
    wipe(engine, slot + 1)


@wrong_input("duplex/release-wipes-next", "engine:ReferenceEngine.release", "duplex.neighbours.admission")
def release_wipes_next(original: Any, engine: Any, slot: int) -> None:
    """A session that leaves empties the next slot's row."""
    original(engine, slot)
    wipe(engine, slot + 1)


@wrong_input("duplex/row-in-the-codes", "tick:Tick.codes", "duplex.neighbours.permuted")
def row_in_the_codes(original: Any, tick: Any, frame: torch.Tensor) -> torch.Tensor:
    """What is said is spoken in codes that depend on the row."""
    return (original(tick, frame) + torch.arange(tick.rows)[:, None]) % tick.config.audio_card


@wrong_input("duplex/sum-over-free-rows", "codec:Codec._decode", "duplex.rows.poisoned")
def sum_over_free_rows(original: Any, codec: Any, tile: Any, codes: Any, active: Any) -> torch.Tensor:
    """A sum over all rows, free ones among them, is added and taken away again."""
    return original(codec, tile, codes, active) + 0.0 * tile.carries[-1].sum()


@wrong_input("duplex/tokens-stay-behind", "staging:Staging.move", "duplex.rows.moved")
def tokens_stay_behind(original: Any, staging: Any, order: Any) -> None:
    """The delay rings do not go with the sessions that are moved to other rows."""


@wrong_input("duplex/past-eight-rows", "tick:Tick.codes", "duplex.parity.batch")
def past_eight_rows(original: Any, tick: Any, frame: torch.Tensor) -> torch.Tensor:
    """In batches of more than one tile, a tie between two codes is broken the other way."""
    codes = original(tick, frame)
    return codes ^ 1 if len(tick.state.decoder.tiles) > 1 else codes


@wrong_input("duplex/recycle-wipes-next", "engine:ReferenceEngine.recycle", "duplex.isolation.while_paused")
def recycle_wipes_next(original: Any, engine: Any, slot: int, session: Any) -> None:
    """Recycling a slot empties the next slot's row."""
    original(engine, slot, session)
    wipe(engine, slot + 1)


@wrong_input("duplex/short-frame-cuts-next", "inlet:Inlet.lengths", "duplex.neighbours.short_frame")
def short_frame_cuts_next(original: Any, inlet: Any, valid_samples: Any) -> tuple[int, ...]:
    """Where a slot's frame is short, so is the next one's."""
    lengths = original(inlet, valid_samples)
    return tuple(min(length, lengths[number - 1]) for number, length in enumerate(lengths))


@wrong_input("duplex/second-tile-resets-first", "tiles:Tiles.reset", "duplex.isolation.large_batch")
def second_tile_resets_first(original: Any, tiles: Any, rows: torch.Tensor) -> None:
    """A row is made new in the first tile, whichever tile it lies in."""
    for row in rows.nonzero().flatten().tolist():
        tiles.tiles[0].reset(row % tiles.size)


def wipe(engine: Any, slot: int) -> None:
    """Empty the row of a slot, whoever sits in it."""
    row = engine.occupancy.table.row_of[slot % engine.slots]
    engine.tick.reset(torch.arange(engine.tick.rows) == row)
