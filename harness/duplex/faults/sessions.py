"""Faults of how a session begins: boot, system prompt, persona and voice."""

from __future__ import annotations

from typing import Any

from harness.duplex.faults.register import catalogued
from harness.duplex.protocol import Session


@catalogued(
    "warmup-state-survives",
    "engine:ReferenceEngine.wipe",
    claims=["duplex.replay.second_boot"],
    source="vllm-omni runtime.py warmup_and_capture (code guards against it; inferred)",
)
def warmup_state_survives(original: Any, engine: Any) -> None:
    """What the warm-up left in the rows is still there when the first sessions after a boot begin."""
    if engine._is_open:
        original(engine)


@catalogued(
    "voice-global",
    "prompt:Prompter.voice_of",
    claims=["duplex.replay.voice_forgotten"],
    source="vllm-omni runtime.py open_session, a comment (code guards against it; inferred)",
)
def voice_global(original: Any, prompter: Any, session: Session) -> str:
    """A session without a voice of its own gets the voice that was asked for last."""
    if session.voice is not None:
        prompter.last = session.voice
    return getattr(prompter, "last", original(prompter, session))


@catalogued(
    "delay-line-phase",
    "staging:Staging.restore",
    claims=["duplex.replay.join_tick", "duplex.history.one_pass"],
    source="vllm-omni runtime.py voice_end (code; inferred)",
)
def delay_line_phase(original: Any, staging: Any, row: int, base: int, snapshot: Any) -> None:
    """A voice's delay ring is put into a row's as it was taken, wherever the row's stands."""
    original(staging, row, 0, snapshot)
