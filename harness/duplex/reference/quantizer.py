"""A residual vector quantizer: each codebook names what the ones before it left over."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from harness.duplex.reference.layers import weight

COMMITMENT = 0.25
"""Weight of drawing the input to its codes, beside drawing the codes to the input (VQ-VAE, arXiv 1711.00937)."""


class Quantized(NamedTuple):
    """The result of `ResidualQuantizer.forward`."""

    output: torch.Tensor
    """f[..., dim]: what `decode` gives; its gradient is passed through to the input."""
    codes: torch.Tensor
    """i64[..., books]."""
    loss: torch.Tensor
    """f[]: of the codebooks and the commitment."""


class ResidualQuantizer(nn.Module):
    """`books` codebooks of `card` entries, in a space of `code_dim` between two projections."""

    def __init__(self, dim: int, code_dim: int, card: int, books: int) -> None:
        super().__init__()
        self.card = card
        self.project_in = weight(code_dim, dim)
        self.project_out = weight(dim, code_dim)
        self.books = weight(books, card, code_dim)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """f[..., dim] -> i64[..., books]: at each stage the nearest entry, the first of equals."""
        return self._search(F.linear(x, self.project_in))[0]

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """i64[..., books] -> f[..., dim]. Tokens behind the codebook, which stand where nothing was said yet, count as its last entry."""
        offsets = torch.arange(self.books.shape[0], device=codes.device) * self.card
        entries = F.embedding(codes.clamp(max=self.card - 1) + offsets, self.books.flatten(0, 1))
        return F.linear(entries.sum(-2), self.project_out)

    def forward(self, x: torch.Tensor) -> Quantized:
        """Training: f[..., dim], quantized with a straight-through gradient."""
        projected = F.linear(x, self.project_in)
        codes, residuals, entries = self._search(projected)
        loss = F.mse_loss(entries, residuals.detach()) + COMMITMENT * F.mse_loss(residuals, entries.detach())
        total = entries.sum(-2)
        through = projected + (total - projected).detach()
        return Quantized(F.linear(through, self.project_out), codes, loss * self.books.shape[0])

    @torch.no_grad()
    def seed_books(self, x: torch.Tensor, generator: torch.Generator) -> None:
        """Draw every codebook's entries from what it will see of f[n, dim], so that training starts with none unused."""
        residual = F.linear(x, self.project_in)
        for book in self.books:
            picked = torch.randint(residual.shape[0], (self.card,), generator=generator)
            book.copy_(residual[picked.to(x.device)])
            residual = residual - book[_nearest(residual, book)]

    def _search(self, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The codes i64[..., books], and of every stage what it was given and what it chose, f[..., books, code_dim]."""
        codes, given, chosen = [], [], []
        for book in self.books:
            code = _nearest(residual, book)
            entry = F.embedding(code, book)
            codes.append(code)
            given.append(residual)
            chosen.append(entry)
            residual = residual - entry.detach()
        return torch.stack(codes, -1), torch.stack(given, -2), torch.stack(chosen, -2)


def _nearest(x: torch.Tensor, book: torch.Tensor) -> torch.Tensor:
    """The entry of least distance: |x - e|^2 = |x|^2 - 2 (x e - |e|^2 / 2), of which only the bracket differs between entries."""
    return F.linear(x, book, -0.5 * book.square().sum(-1)).argmax(-1)
