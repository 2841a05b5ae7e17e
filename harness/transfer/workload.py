"""The constants of the KV transfer checks: the seeds' figures, and the tensors made from them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.transfer.protocol import Endpoint, KVLayout, KVOrder, LayerKV


@dataclass(frozen=True)
class Workload:
    """Overridable as `--set transfer.<name>=<value>`. Sizes count tokens, blocks, heads; `receive_timeout` is in seconds.

    `layers`, `blocks`, `block_size`, `heads`, `head_dim`, `seq_len`, `receive_timeout`, `host` and `port` are the seeds'. `many_layers` is
    more than ten, so that layers sorted by name come out in another order than sorted by number; `many_blocks` makes tensors of more than
    64 KiB, and leaves room for block tables with gaps. `schedules` are drawn for the short claim, `schedules_on_wall_clock` for an engine
    that offers no lab, where each miss costs real time, and `soak_schedules` for the long one; they run over `schedule_requests` requests,
    and a fetch in them waits `schedule_timeout` seconds.
    """

    layers: int = 2
    blocks: int = 5
    block_size: int = 4
    heads: int = 4
    head_dim: int = 8
    seq_len: int = 10
    receive_timeout: float = 1.0
    host: str = "127.0.0.1"
    port: int = 50051
    many_layers: int = 12
    many_blocks: int = 160
    schedules: int = 60
    schedules_on_wall_clock: int = 12
    soak_schedules: int = 1000
    schedule_requests: int = 4
    schedule_timeout: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.seq_len <= self.blocks * self.block_size:
            raise ValueError(f"seq_len = {self.seq_len} does not fit {self.blocks} blocks of {self.block_size} tokens")
        if self.blocks < 2:
            raise ValueError(f"blocks = {self.blocks}: the seeds' block table names two")
        if self.layers < 1 or self.many_layers < 11 or self.heads < 1 or self.head_dim < 1:
            raise ValueError("layers, heads and head_dim are at least 1, many_layers at least 11")
        if self.many_blocks < 10:
            raise ValueError(f"many_blocks = {self.many_blocks}: block tables with gaps need ten")
        if not self.receive_timeout > 0 or not self.schedule_timeout > 0:
            raise ValueError(f"receive_timeout = {self.receive_timeout}, schedule_timeout = {self.schedule_timeout}: give seconds above 0")
        if min(self.schedules, self.schedules_on_wall_clock, self.soak_schedules, self.schedule_requests) < 1:
            raise ValueError("schedules, schedules_on_wall_clock, soak_schedules and schedule_requests are at least 1")
        if self.schedule_requests > 20:
            raise ValueError(f"schedule_requests = {self.schedule_requests}: requests are named by letters, up to 20 of them")

    def layout(self, layers: int | None = None, dtype: torch.dtype = torch.float32) -> KVLayout:
        """float32, as the seeds have it, unless said otherwise."""
        return KVLayout(layers or self.layers, self.block_size, self.heads, self.head_dim, dtype)

    @property
    def endpoint(self) -> Endpoint:
        """Where the seeds' sender listens."""
        return Endpoint(self.host, self.port)

    @property
    def seed_block_ids(self) -> list[int]:
        """The seeds' block table: two blocks, which hold 8 of the 10 tokens that the metadata names."""
        return [0, 1]

    @property
    def block_ids(self) -> list[int]:
        """The first blocks, as many as `seq_len` tokens need."""
        return list(range(-(-self.seq_len // self.block_size)))

    def kv(self, generator: torch.Generator, layout: KVLayout | None = None, blocks: int | None = None) -> list[torch.Tensor]:
        """One tensor [2, blocks, block_size, heads, head_dim] of normal values a layer, on the CPU."""
        layout = layout or self.layout()
        shape = (2, blocks or self.blocks, layout.block_size, layout.heads, layout.head_dim)
        return [torch.randn(shape, generator=generator).to(layout.dtype) for _ in range(layout.layers)]

    def square(self) -> KVLayout:
        """A layout whose axes all have size 2, as keys and values do and two blocks: no shape tells one axis from another."""
        return KVLayout(2, 2, 2, 2, torch.float32)

    def any_bits(self, generator: torch.Generator, layout: KVLayout) -> list[torch.Tensor]:
        """The same of every bit pattern: NaNs with payloads, infinities, negative zero, subnormals."""
        width = layout.dtype.itemsize
        shape = (2, self.blocks, layout.block_size, layout.heads, layout.head_dim * width)
        return [torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).view(layout.dtype) for _ in range(layout.layers)]


def laid_out(kv: torch.Tensor, layout: KVLayout) -> LayerKV:
    """A copy of one layer [2, blocks, block_size, heads, head_dim] as `layout` has it: packed or split, tokens or heads first."""
    blocks = kv if layout.order is KVOrder.NHD else kv.transpose(2, 3)
    return blocks.clone(memory_format=torch.contiguous_format) if layout.packed else (blocks[0].contiguous(), blocks[1].contiguous())


def tokens_first(layer: LayerKV, layout: KVLayout) -> torch.Tensor:
    """The inverse of `laid_out`: a copy as [2, blocks, block_size, heads, head_dim], on the CPU."""
    both = layer if isinstance(layer, torch.Tensor) else torch.stack(list(layer))
    return (both if layout.order is KVOrder.NHD else both.transpose(2, 3)).cpu().contiguous()


def heads_of(rank: int, ranks: int, total: int) -> list[int]:
    """The model's KV heads that a tensor-parallel rank holds; written apart from any engine's way of splitting them."""
    if ranks <= total:
        return [head for head in range(total) if head * ranks // total == rank]
    return [head for head in range(total) if head == rank * total // ranks]


def expected_rows(kv: torch.Tensor, block_ids: list[int], seq_len: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The oracle of a payload: keys and values [tokens, heads, head_dim] of one layer, gathered token by token.

    Written apart from any engine's way of gathering: token t stands in block `block_ids[t // block_size]` at row `t % block_size`.
    """
    block_size = kv.shape[2]
    tokens = range(min(seq_len, len(block_ids) * block_size))
    rows = [kv[:, block_ids[t // block_size], t % block_size] for t in tokens]
    both = torch.stack(rows, dim=1)
    return both[0], both[1]
