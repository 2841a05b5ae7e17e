"""Pages of keys and values in one tier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from harness.tier.reference import batch
from harness.tier.reference.config import NetworkConfig


class Pool:
    """`pages` pages of `page` tokens: `kept`, f[pages, layers per group, 2, page, KV heads, head dim], keys first.

    A page holds `page` tokens of all layers of one group, of either group. A copy moves a page in `config.pieces` pieces of equally many
    layers, each of them contiguous. The tensors and addresses that pieces are copied between are made once, here: making them takes longer
    than a copy.
    """

    def __init__(self, config: NetworkConfig, pages: int, page: int, device: torch.device, *, pinned: bool = False) -> None:
        self.pages, self.page = pages, page
        shape = (pages, config.layers_per_group, 2, page, config.kv_heads, config.head_dim)
        self.kept = torch.zeros(shape, dtype=config.dtype, device=device, pin_memory=pinned)
        step = config.layers_per_group // config.pieces
        self.pieces = [self.kept[:, begin : begin + step].unbind(0) for begin in range(0, config.layers_per_group, step)]
        self.addresses = [[piece.data_ptr() for piece in pages] for pages in self.pieces]

    @property
    def page_bytes(self) -> int:
        """Of one page, all of its layers."""
        return self.kept[0].nbytes

    def write(self, row: int, places: tuple[torch.Tensor, torch.Tensor], keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put f[n, KV heads, head dim] of layer `row` of its group into `places`: i64[n] pages and i64[n] tokens in them."""
        pages, tokens = places
        self.kept[:, row, 0].index_put_((pages, tokens), keys)
        self.kept[:, row, 1].index_put_((pages, tokens), values)

    def gather(self, row: int, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of i64[m] pages in order: twice f[m * page, KV heads, head dim]. Other pages are not read."""
        keys, values = self.kept[:, row, 0].index_select(0, pages), self.kept[:, row, 1].index_select(0, pages)
        return keys.flatten(0, 1), values.flatten(0, 1)

    def fill(self, pages: Iterable[int], value: float, behind: int) -> None:
        """Put `value` everywhere into the pages from token `behind` on."""
        for page in pages:
            self.kept[page, :, :, behind:].fill_(value)


def copy_pages(source: Pool, sources: Sequence[int], target: Pool, targets: Sequence[int], piece: int) -> None:
    """Copy one piece of each page, asynchronously where the current stream is a card's."""
    if not sources:
        return
    if source.kept.is_cuda != target.kept.is_cuda and batch.submitter() is not None:
        come, go = source.addresses[piece], target.addresses[piece]
        batch.copy([go[page] for page in targets], [come[page] for page in sources], source.pieces[piece][0].nbytes)
        return
    torch._foreach_copy_(
        [target.pieces[piece][page] for page in targets], [source.pieces[piece][page] for page in sources], non_blocking=True
    )
