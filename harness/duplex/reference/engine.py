"""The embedded duplex engine: slots in lockstep, each with an occupant that is prompted, heard, answered and drained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from harness.core.clock import Clock
from harness.core.threads import one_thread
from harness.duplex.floor import weight_bytes
from harness.duplex.protocol import Dialogue, Frame, Parity, Phase, Session
from harness.duplex.reference.config import FRAME_SIZE, MAX_DELAY, ROWS, SAMPLE_RATE
from harness.duplex.reference.inlet import Inlet, Input, SessionError
from harness.duplex.reference.lab import ReferenceLab
from harness.duplex.reference.outlet import Outlet
from harness.duplex.reference.prompt import Prompt, Prompter
from harness.duplex.reference.runner import Runner
from harness.duplex.reference.slots import Occupant, Slots
from harness.duplex.reference.staging import Mark, Marks
from harness.duplex.reference.tick import IDLE, Tick
from harness.duplex.reference.turn import Turn
from harness.duplex.reference.weights import DATA, Weights

BOOT = Session()
"""Who sits in every slot after `open`."""
SEEDS = 2**63
SILENCE = np.zeros(FRAME_SIZE, np.float32)


class ReferenceEngine:
    """A DuplexEngine of so many slots over a model, padded to `rows`."""

    sample_rate = SAMPLE_RATE
    frame_size = FRAME_SIZE
    streams = ROWS
    delay = MAX_DELAY

    def __init__(self, weights: Weights, slots: int, rows: int, sdpa: str, graphs: bool, clock: Clock) -> None:
        config, table = weights.model.config, weights.table
        self.slots, self._weights = slots, weights
        self.weight_bytes = weight_bytes(weights.model)
        self.window: int | None = config.temporal.context
        self.parity = self._parity(weights)
        self.voices: Sequence[str] = weights.voices
        self.personas: Sequence[str] = table.personas
        self.dialogues = [Dialogue(DATA / d.question, d.persona, d.answer) for d in table.dialogues] if weights.trained else []
        self.prompter = Prompter(table.words, table.personas, weights.voices, config.voice_ticks, config.silence_ticks)
        self.tick = Tick(weights.model, rows)
        self.lab = ReferenceLab(self, clock)
        self._words, self._rows = table.words, rows
        self._runner = Runner(self.tick, sdpa, graphs)
        self._inlet = Inlet(slots)
        self._silence = torch.zeros(slots, FRAME_SIZE)
        self._is_open = self._is_closed = False
        self._clear()

    def open(self) -> None:
        if self._is_closed:
            raise RuntimeError("open after close: build another engine")
        self._runner.warm_up()
        self.wipe()
        self._clear()
        self._is_open = True
        prompts = [self.prompter.prompt(BOOT)] * self.slots
        for slot, prompt in enumerate(prompts):
            self._seat(slot, BOOT, prompt)
        for _ in range(len(prompts[0])):
            self.step(self._silence)

    def wipe(self) -> None:
        """Nothing is left of what the rows held: sessions of before, and the warm-up."""
        with one_thread():
            self.tick.clear()

    def admit(self, session: Session) -> int:
        self.must_be_open()
        prompt = self._prompt(session)
        slot = self.occupancy.free()
        if slot is None:
            raise RuntimeError(f"all {self.slots} slots are occupied; release one")
        self._renew(slot, session, prompt)
        return slot

    def release(self, slot: int) -> None:
        self.must_be_open()
        self._leave(self.checked(slot))

    def recycle(self, slot: int, session: Session) -> None:
        self.must_be_open()
        prompt = self._prompt(session)
        self._leave(self.checked(slot))
        self._renew(slot, session, prompt)

    def prefill_ticks(self, session: Session) -> int:
        return len(self._prompt(session))

    def finish(self, slot: int) -> None:
        self.must_be_open()
        if self.occupancy.occupants[self.checked(slot)] is None:
            raise ValueError(f"slot {slot} is free: there is no input that could end")
        self._outlet.end_input(slot)

    def cancel(self, slot: int) -> None:
        self.must_be_open()
        self._leave(self.checked(slot))

    def step(self, pcm: torch.Tensor, live: Sequence[bool] | None = None, valid_samples: Sequence[int] | None = None) -> list[Frame]:
        self.must_be_open()
        given = self._inlet.read(pcm, live, valid_samples)
        parts = [self._part(slot, given) for slot in range(self.slots)]
        turns = [part for part in parts if isinstance(part, Turn)]
        self._fill(turns)
        outcome = self._runner.run()
        self._ticks += 1
        return [part if isinstance(part, Frame) else self._taken(part, outcome.tokens[part.row], outcome.audio[part.row]) for part in parts]

    def usage(self) -> dict[str, int]:
        """`streams`: occupants to be given something; `draws`: sampled sessions; `failures`: what the lab has yet to fail."""
        return {
            "slots": self.slots - self.occupancy.unoccupied,
            "streams": len(self._outlet.streams),
            "draws": len(self.occupancy.table),
            "failures": self.lab.failures,
        }

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_open, self._is_closed = False, True
        self._clear()
        del self.tick, self._runner, self._weights

    def must_be_open(self) -> None:
        """RuntimeError before `open` and after `close`."""
        if not self._is_open:
            raise RuntimeError("the engine is closed" if self._is_closed else "the engine is not open; call open() first")

    def checked(self, slot: int) -> int:
        """The slot. ValueError if there is none of that number."""
        if not isinstance(slot, int) or isinstance(slot, bool) or not 0 <= slot < self.slots:
            raise ValueError(f"slot {slot!r}: this engine has slots 0 to {self.slots - 1}")
        return slot

    @staticmethod
    def _parity(weights: Weights) -> Parity | None:
        """On a CPU rows are computed in tiles of one size; a card's kernels go by the batch size, and only trained weights have margins."""
        if weights.model.silence.device.type == "cpu":
            return Parity.BITS
        return Parity.TEXT if weights.trained else None

    def _clear(self) -> None:
        self.occupancy = Slots(self.slots, self._rows)
        self._outlet = Outlet(self.slots, self._words)
        self._marks = Marks(self.slots)
        self._ticks = 0
        self.lab.forget()

    def _prompt(self, session: Session) -> Prompt:
        """ValueError for a persona, voice or seed that cannot be."""
        seed = session.seed
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < SEEDS):
            raise ValueError(f"seed = {seed!r}; write None or an integer from 0 to 2**63 - 1")
        return self.prompter.prompt(session)

    def _renew(self, slot: int, session: Session, prompt: Prompt) -> None:
        """A free slot's next occupant, in a row that holds nothing any more."""
        self.tick.reset(torch.arange(self._rows) == self.occupancy.table.row_of[slot])
        self._seat(slot, session, prompt)

    def _seat(self, slot: int, session: Session, prompt: Prompt) -> None:
        self.occupancy.seat(slot, session, prompt, self._ticks)
        self._outlet.begin(slot)

    def _leave(self, slot: int) -> None:
        """The slot is free. What its occupant was owed is dropped; marks of its frames stay where they are, and are nobody's."""
        self.occupancy.vacate(slot)
        self._outlet.forget(slot)

    def _part(self, slot: int, given: Input) -> Turn | Frame:
        """The turn of the slot's occupant, or what is said in its place."""
        occupant = self.occupancy.occupants[slot]
        if occupant is None:
            return Frame(Phase.FREE)
        if not given.live[slot]:
            return Frame(Phase.PAUSED, epoch=occupant.epoch)
        return self._bounded(slot, occupant, given)

    def _bounded(self, slot: int, occupant: Occupant, given: Input) -> Turn | Frame:
        """An error of the session ends that session, and nothing else."""
        try:
            return self._turn(slot, occupant, given)
        except SessionError as error:
            return self._end(slot, occupant, str(error))

    def _turn(self, slot: int, occupant: Occupant, given: Input) -> Turn | Frame:
        """The occupant takes part, unless everything was given. Raises SessionError before anything of it has moved."""
        if self._outlet.is_drained(slot):
            return self._end(slot, occupant)
        self.lab.enter(slot)
        heard = None if occupant.in_prefill else self._heard(slot, given)
        mark = self._marks.complete(slot, occupant.cursor)
        return Turn(slot, self.occupancy.table.row_of[slot], occupant, mark, self._outlet.delivers(slot, occupant, mark), heard)

    def _heard(self, slot: int, given: Input) -> np.ndarray:
        return SILENCE if self._outlet.is_ending(slot) else self._inlet.heard(given, slot)

    def _end(self, slot: int, occupant: Occupant, error: str | None = None) -> Frame:
        """The last word, once; the slot is free."""
        self._leave(slot)
        return self._outlet.last_word(occupant, error)

    def _fill(self, turns: Sequence[Turn]) -> None:
        """Tell the rows what they do on this tick."""
        control: list[Sequence[int]] = [IDLE] * self._rows
        draws = {}
        for turn in turns:
            row, occupant = turn.row, turn.occupant
            control[row] = turn.control
            if turn.heard is not None:
                self._runner.samples[row] = turn.heard
                own = self.occupancy.table.draws(row)
                if own is not None:
                    draws[row] = own
            elif turn.is_behind_the_voice:
                self.tick.restore(row, occupant.prompt.voice, occupant.base)
        self._runner.control[:] = control
        self._runner.sample(draws)

    def _taken(self, turn: Turn, tokens: torch.Tensor, audio: torch.Tensor) -> Frame:
        """The tick is over for the occupant: what it gives, of `tokens` i64[2, ROWS] and `audio` f32[FRAME_SIZE]."""
        slot, occupant = turn.slot, turn.occupant
        live = not turn.in_prefill and not self._outlet.is_ending(slot)
        mark = Mark(occupant.epoch, live, occupant.heard)
        self._marks.put(slot, occupant.cursor, mark)
        self._outlet.staged(slot, mark)
        occupant.took_part(live)
        if self.lab.records:
            occupant.record(tokens[0], turn.heard)
        if turn.delivers:
            return self._outlet.give(slot, occupant, turn.mark, tokens[1], audio)
        return Frame(Phase.PREFILL if turn.in_prefill else Phase.WARMUP, epoch=occupant.epoch)
