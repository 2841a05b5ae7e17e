"""The hybrid system prompt of a session: a voice, silence, the persona's words, silence; a step a tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.names import unknown
from harness.duplex.protocol import Session
from harness.duplex.reference.words import PAD, Words

NO_EMBEDDING = -1


@dataclass(frozen=True)
class Prompt:
    """The steps of one session's prefill.

    `texts`: the text token of each step. `voice`: an index into the engine's voices. The first `voice_ticks` steps are fed that voice's
    embeddings; before the step behind them its snapshot of the delay ring takes the place of what they left there.
    """

    voice: int
    voice_ticks: int
    texts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def embedding(self, position: int) -> int:
        """Which row of all voices' embeddings, laid end to end, the tick at `position` is fed; NO_EMBEDDING: the column before it."""
        return self.voice * self.voice_ticks + position if position < self.voice_ticks else NO_EMBEDDING


class Prompter:
    """Makes prompts, for one set of voices and words."""

    def __init__(self, words: Words, personas: Sequence[str], voices: Sequence[str], voice_ticks: int, silence_ticks: int) -> None:
        self.words, self.personas, self.voices = words, tuple(personas), tuple(voices)
        self._voice_ticks, self._silence_ticks = voice_ticks, silence_ticks

    def prompt(self, session: Session) -> Prompt:
        """ValueError for a persona or voice that is not known."""
        tokens = self.words.tokens(self.persona_of(session))
        voice = self.voice_of(session)
        if voice not in self.voices:
            raise ValueError(unknown("voice", voice, self.voices))
        silence = (PAD,) * self._silence_ticks
        return Prompt(self.voices.index(voice), self._voice_ticks, ((PAD,) * self._voice_ticks + silence + tokens + silence))

    def voice_of(self, session: Session) -> str:
        """The session's own voice, or the default: never what another session asked for."""
        return self.voices[0] if session.voice is None else session.voice

    def persona_of(self, session: Session) -> str:
        """The session's own persona, or the default."""
        return self.personas[0] if session.persona is None else session.persona
