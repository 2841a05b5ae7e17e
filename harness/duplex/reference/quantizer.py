"""A residual vector quantizer: each codebook names what the ones before it left over."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional as F

from harness.duplex.reference.layers import Bare, weight

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


class Stage(NamedTuple):
    """One codebook as it is searched."""

    book: torch.Tensor
    """f[card, code_dim], and turned, f[code_dim, card]."""
    columns: torch.Tensor
    half_squares: torch.Tensor
    """f[card]: half the square of each entry's length."""


class ResidualQuantizer(Bare):
    """`books` codebooks of `card` entries, in a space of `code_dim` between two projections."""

    def __init__(self, dim: int, code_dim: int, card: int, books: int) -> None:
        super().__init__()
        self.card = card
        self.project_in = weight(dim, code_dim)
        self.project_out = weight(code_dim, dim)
        self.books = weight(books, card, code_dim)
        self.register_buffer("offsets", torch.arange(books) * card, persistent=False)

    def stages(self) -> list[Stage]:
        """The codebooks as they are now."""
        return list(map(Stage, self.books.unbind(), self.books.mT.unbind(), (0.5 * self.books.square().sum(-1)).unbind()))

    def encode(self, x: torch.Tensor, stages: list[Stage] | None = None) -> torch.Tensor:
        """f[..., dim] -> i64[..., books]: at each stage the nearest entry, the first of equals. `stages` of these weights, if at hand."""
        residual = (x @ self.project_in).view(-1, self.project_in.shape[1])
        codes: list[torch.Tensor] = []
        named = None
        for book, columns, half_squares in self.stages() if stages is None else stages:
            if named is not None:
                residual.sub_(named.index_select(0, codes[-1]))
            codes.append(_nearest(residual, columns, half_squares))
            named = book
        return torch.cat(codes).view(len(codes), -1).t().reshape(*x.shape[:-1], -1)

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """i64[..., books] -> f[..., dim]. Tokens behind the codebook, which stand where nothing was said yet, count as its last entry."""
        entries = F.embedding(codes.clamp(max=self.card - 1) + self.offsets, self.books.flatten(0, 1))
        return entries.sum(-2) @ self.project_out

    def forward(self, x: torch.Tensor) -> Quantized:
        """Training: f[..., dim], quantized with a straight-through gradient."""
        projected = x @ self.project_in
        codes = self.encode(x.detach())
        entries = F.embedding(codes + self.offsets, self.books.flatten(0, 1))
        # Of every stage what it was given: the input without the entries before.
        residuals = projected.unsqueeze(-2) - (entries.cumsum(-2) - entries).detach()
        loss = F.mse_loss(entries, residuals.detach()) + COMMITMENT * F.mse_loss(residuals, entries.detach())
        through = projected + (entries.sum(-2) - projected).detach()
        return Quantized(through @ self.project_out, codes, loss * len(self.books))

    @torch.no_grad()
    def seed_books(self, x: torch.Tensor, generator: torch.Generator) -> None:
        """Draw every codebook's entries from what it will see of f[n, dim], so that training starts with none unused."""
        residual = x @ self.project_in
        for book in self.books:
            picked = torch.randint(residual.shape[0], (self.card,), generator=generator)
            book.copy_(residual[picked.to(x.device)])
            residual = residual - book[_nearest(residual, book.t(), 0.5 * book.square().sum(-1))]


def _nearest(x: torch.Tensor, columns: torch.Tensor, half_squares: torch.Tensor) -> torch.Tensor:
    """The entry of least distance: |x - e|^2 = |x|^2 - 2 (x e - |e|^2 / 2), of which only the bracket differs between entries."""
    return torch.addmm(half_squares, x, columns, beta=-1).argmax(-1)
