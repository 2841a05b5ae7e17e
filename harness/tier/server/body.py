"""The body of a completion request, and the requests of the engine that it stands for."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.tier.protocol import Request
from harness.tier.server.errors import Refusal, no_model

DEFAULT_TOKENS = 16
"""OpenAI's."""

TokenIds = list[Annotated[int, Field(ge=0)]]


class StreamOptions(BaseModel):
    """What a stream brings beside the text. `include_usage`: a last event with the usage."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool = False


class CompletionBody(BaseModel):
    """OpenAI's fields that greedy decoding has a use for, vLLM's `cache_salt`, `return_token_ids` and `ignore_eos`, and two of ours.

    `model_version`: of the weights. `media`: the bytes of an image that stands before the prompt, in base64. `user` and `seed` are read,
    and change nothing.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str
    prompt: str | TokenIds | list[str] | list[TokenIds]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    n: Literal[1] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    seed: int | None = None
    ignore_eos: Literal[True] | None = None
    return_token_ids: bool = False
    cache_salt: Annotated[str, Field(min_length=1)] | None = None
    model_version: str | None = None
    media: str | None = None


def requests(body: CompletionBody, model: str, adapters: list[str], versions: list[str]) -> list[Request]:
    """One for each prompt. `model` is the served model without an adapter. Raises Refusal."""
    if body.model not in (model, *adapters):
        raise no_model(body.model, [model, *adapters])
    if body.model_version is not None and body.model_version not in versions:
        raise Refusal(f"There is no version {body.model_version!r}; there are {', '.join(versions)}.", param="model_version")
    if body.temperature:
        raise Refusal("Decoding is greedy here: temperature is 0.", param="temperature", code="unsupported_value")
    if body.stream_options and not body.stream:
        raise Refusal("stream_options are for a stream: set stream.", param="stream_options")
    prompts = _prompts(body)
    if not all(prompts):
        raise Refusal("The prompt is empty.", param="prompt", code="empty_prompt")
    tokens = DEFAULT_TOKENS if body.max_tokens is None else body.max_tokens
    adapter, media = None if body.model == model else body.model, _media(body)
    return [Request(prompt, tokens, body.cache_salt, adapter, media, body.model_version) for prompt in prompts]


def _prompts(body: CompletionBody) -> list[str | tuple[int, ...]]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        return [""]
    if isinstance(prompt[0], int):
        return [tuple(prompt)]  # type: ignore[arg-type]
    return [one if isinstance(one, str) else tuple(one) for one in prompt]  # type: ignore[union-attr, arg-type]


def _media(body: CompletionBody) -> bytes | None:
    if body.media is None:
        return None
    try:
        return base64.b64decode(body.media, validate=True)
    except binascii.Error as wrong:
        raise Refusal(f"media is no base64: {wrong}.", param="media") from None
