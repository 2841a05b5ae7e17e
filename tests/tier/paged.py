"""A prompt through an executor, chunk by chunk, in pages that lie anywhere."""

import random

import torch

from harness.tier.reference.executor import Work
from harness.tier.reference.identity import PLAIN

CHUNK = 32


def prompt(tokens, seed=3):
    draw = random.Random(seed)
    return tuple(draw.randrange(3, 512) for _ in range(tokens))


def tables(executor, tokens, seed=5, first=0):
    """A table for each group, of pages from `first` on, in no order."""
    count = -(-tokens // executor.page)
    pages = list(range(first, first + 2 * count))
    random.Random(seed).shuffle(pages)
    return {"sliding": pages[:count], "full": pages[count:]}


def feed(executor, ids, placed, start=0, spoken=PLAIN, loads=()):
    """The prompt from `start` on, each chunk taken before the next: what the last gave."""
    for begin in range(start, len(ids), CHUNK):
        work = Work(ids[begin : begin + CHUNK], begin, placed, spoken, loads, want_logits=True)
        taken = executor.forward(work).take()
    return taken


def generate(executor, ids, placed, new_tokens, spoken=PLAIN):
    """The new tokens of a prompt and their logits."""
    taken = [feed(executor, ids, placed, spoken=spoken)]
    while len(taken) < new_tokens:
        work = Work((taken[-1].token,), len(ids) + len(taken) - 1, placed, spoken, want_logits=True)
        taken.append(executor.forward(work).take())
    return [each.token for each in taken], torch.stack([each.logits for each in taken])
