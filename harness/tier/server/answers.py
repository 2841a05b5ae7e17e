"""What a completion is told in: one JSON document, or server-sent events."""

from __future__ import annotations

import codecs
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from harness.tier.protocol import Completion, Outcome
from harness.tier.server.body import CompletionBody
from harness.tier.server.errors import Refusal, failed
from harness.tier.server.metrics import Metrics
from harness.tier.server.worker import Job, Progress, Worker

DONE = "data: [DONE]\n\n"


class Answer:
    """To one body: a job for each of its prompts, whose numbers are the choices' indices. `leave` must be called in the end."""

    def __init__(self, worker: Worker, body: CompletionBody, jobs: Sequence[Job], metrics: Metrics) -> None:
        self._worker, self._body, self._jobs, self._metrics = worker, body, list(jobs), metrics
        self._head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time()), "model": body.model}

    async def whole(self) -> dict[str, Any]:
        """Once every job has ended. Raises Refusal if one failed."""
        ends = [await self._end(job) for job in self._jobs]
        choices = [self._choice(number, end.text, end.token_ids, "length") for number, end in enumerate(ends)]
        return {**self._head, "choices": choices, "usage": usage(ends)}

    async def events(self) -> AsyncIterator[str]:
        """An event a token, the usage where it is asked for, and [DONE]. A job that fails is an event with an error, and the last."""
        ends: list[Completion] = []
        try:
            for number, job in enumerate(self._jobs):
                async with aclosing(self._told(number, job, ends)) as events:
                    async for event in events:
                        yield event
            if self._body.stream_options and self._body.stream_options.include_usage:
                yield _event({**self._head, "choices": [], "usage": usage(ends)})
        except Refusal as refusal:
            yield _event(refusal.body())
        finally:
            self.leave()
        yield DONE

    async def _end(self, job: Job) -> Completion:
        while True:
            word = await self._word(job)
            if word.end is not None:
                return word.end

    async def _word(self, job: Job) -> Progress:
        """The next one; a last one is counted. Raises Refusal where the job failed."""
        word = await job.words.get()
        if isinstance(word, Exception):
            raise failed(f"The engine failed: {word}.")
        if word.end is not None:
            self._metrics.finished(word.end)
            _check(word.end)
        return word

    async def _told(self, number: int, job: Job, ends: list[Completion]) -> AsyncIterator[str]:
        # A character may take several tokens: it is told with the last of them.
        decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        said = ""
        while True:
            word = await self._word(job)
            if word.end is None:
                text = decoder.decode(word.said)
                said += text
                yield _event({**self._head, "choices": [self._choice(number, text, word.ids, None)]})
                continue
            ends.append(word.end)
            yield _event({**self._head, "choices": [self._choice(number, word.end.text[len(said) :], word.ids, "length")]})
            return

    def _choice(self, number: int, text: str, ids: Sequence[int] | None, reason: str | None) -> dict[str, Any]:
        choice = {"index": number, "text": text, "logprobs": None, "finish_reason": reason}
        return choice | {"token_ids": None if ids is None else list(ids)} if self._body.return_token_ids else choice

    def leave(self) -> None:
        """End what is still under way. May be called twice."""
        for job in self._jobs:
            self._worker.leave(job)


def usage(ends: Sequence[Completion]) -> dict[str, Any]:
    """Of all prompts of a body together. `tiers` is ours: which of the cached tokens came from where."""
    prompt, new = sum(end.prompt_tokens for end in ends), sum(len(end.token_ids or ()) for end in ends)
    answer: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
    if all(end.cached_tokens is not None for end in ends):
        details: dict[str, Any] = {"cached_tokens": sum(end.cached_tokens or 0 for end in ends)}
        tiers = [asdict(end.tiers) for end in ends if end.tiers is not None]
        if len(tiers) == len(ends):
            details["tiers"] = {name: sum(one[name] for one in tiers) for name in ("device", "host", "storage")}
        answer["prompt_tokens_details"] = details
    return answer


def _check(end: Completion) -> None:
    if end.outcome is not Outcome.FINISHED:
        raise failed(end.error or f"The request was {end.outcome.value}.")


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"
