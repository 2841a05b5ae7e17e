"""The streaming codec: 80 ms of sound to eight codes, and back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import nn
from torch.nn import functional as F

from harness.duplex.reference.config import AGENT_ROWS, CodecConfig
from harness.duplex.reference.layers import Bare, Transformer, weight
from harness.duplex.reference.quantizer import ResidualQuantizer, Stage
from harness.duplex.reference.ring import RingKV
from harness.duplex.reference.room import ConvRoom
from harness.duplex.reference.tiles import Tiles


class BlockConv(Bare):
    """A causal convolution over blocks: a block of inputs is felt in its own block of outputs, and in the next.

    With blocks of `stride` samples at its input it is a convolution of kernel 2 * stride that goes by strides; with such blocks at its
    output it is the transpose of one. What the last block leaves to the next is the carry.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.kernel = weight(inputs, 2 * outputs)
        self.bias = weight(2 * outputs)

    def forward(self, x: torch.Tensor, carry: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """f[B, T, inputs] behind a carry f[B, outputs]; f[B, T, outputs] and the next carry."""
        now, later = torch.addmm(self.bias, x.flatten(0, 1), self.kernel).unflatten(0, x.shape[:2]).chunk(2, -1)
        felt = torch.cat((carry.unsqueeze(1), later[:, :-1]), 1)
        return now + felt, later[:, -1]

    def step(self, x: torch.Tensor, carry: torch.Tensor, room: ConvRoom) -> torch.Tensor:
        """`forward` of f[B * T, inputs] in a room of T blocks: f[B, T * outputs], which stays the room's, as does the next carry."""
        torch.addmm(self.bias, x, self.kernel, out=room.product)
        if room.blocks > 1:
            torch.add(room.now, room.before, out=room.felt)
        torch.add(room.first, carry, out=room.felt_first)
        return room.samples


class CodecRows:
    """What the rows of an encoder or a decoder carry: a carry of each convolution, and the transformer's ring. And where they compute.

    `samples`: how many numbers a tick's input of each row has, before the convolutions. `stages`: of the quantizer, which rows share.
    """

    def __init__(self, convolutions: nn.ModuleList, ring: RingKV, samples: int, stages: list[Stage]) -> None:
        like = ring.keys[0]
        self.ring, self.stages = ring, stages
        self.carries = []
        self.rooms = []
        for layer in convolutions:
            inputs, outputs = layer.kernel.shape[0], layer.bias.shape[0] // 2
            self.carries.append(torch.zeros(ring.rows, outputs, device=like.device, dtype=like.dtype))
            self.rooms.append(ConvRoom(ring.rows, samples // inputs, outputs, like.device, like.dtype))
            samples = samples // inputs * outputs

    def reset(self, row: int) -> None:
        """As in `tiles.Rows`."""
        self.ring.reset(row)
        for carry in self.carries:
            carry[row].zero_()

    def parts(self) -> Iterator[torch.Tensor]:
        """As in `tiles.Rows`."""
        return chain(self.ring.parts(), self.carries)

    def poison(self, free: list[bool]) -> None:
        """As in `tiles.Rows`."""
        self.ring.poison(free)
        for carry in self.carries:
            carry[torch.tensor(free, device=carry.device)] = torch.nan
        for room in self.rooms:
            room.poison()

    def convolve(self, layers: nn.ModuleList, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """`convolve` of one tick, f[R, n], in the rooms: f[R, m] and the next carries, to be read before the next tick."""
        for layer, carry, room in zip(layers, self.carries, self.rooms, strict=True):
            x = F.silu(x, inplace=True) if room is not self.rooms[0] else x
            x = layer.step(x.reshape(room.product.shape[0], -1), carry, room)
        return x, [room.carry for room in self.rooms]


def convolve(
    layers: nn.ModuleList, widths: tuple[int, ...], x: torch.Tensor, carries: list[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The convolutions one behind the other, f[B, n] of samples in time, cut into blocks of `widths`; f[B, m], and the next carries."""
    after = []
    for index, (layer, width, carry) in enumerate(zip(layers, widths, carries, strict=True)):
        x, later = layer((F.silu(x) if index else x).view(x.shape[0], -1, width), carry)
        x = x.flatten(1)
        after.append(later)
    return x, after


class Codec(Bare):
    """Encoder, quantizer, decoder; each half with a transformer at one position a tick."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        near = (1, *config.channels[:-1])
        self.down = tuple(channels * stride for channels, stride in zip(near, config.strides, strict=True))
        self.up = config.channels[::-1]
        self.encoder = nn.ModuleList(BlockConv(width, channels) for width, channels in zip(self.down, config.channels, strict=True))
        self.encoder_transformer = Transformer(config.transformer)
        self.quantizer = ResidualQuantizer(config.channels[-1], config.code_dim, config.card, AGENT_ROWS)
        self.decoder_transformer = Transformer(config.transformer)
        self.decoder = nn.ModuleList(BlockConv(channels, width) for channels, width in zip(self.up, self.down[::-1], strict=True))

    def encode(self, pcm: torch.Tensor, state: Tiles[CodecRows], active: torch.Tensor) -> torch.Tensor:
        """One tick: f32[R, FRAME_SIZE] -> i64[R, 8]; active bool[R]: other rows change nothing, and their result is void."""
        return state.map(self._encode, pcm, active)

    def decode(self, codes: torch.Tensor, state: Tiles[CodecRows], active: torch.Tensor) -> torch.Tensor:
        """One tick: i64[R, 8] -> f32[R, FRAME_SIZE], between -1 and 1; active bool[R] as in `encode`."""
        return state.map(self._decode, codes, active)

    def latents(self, pcm: torch.Tensor) -> torch.Tensor:
        """f[B, T * FRAME_SIZE] -> f[B, T, width]: what the quantizer is given."""
        x, _ = convolve(self.encoder, self.down, pcm.to(self.encoder[0].bias.dtype), self._silence(self.encoder, pcm.shape[0]))
        return self.encoder_transformer.sequence(x.view(pcm.shape[0], -1, self.up[0]))

    def sound(self, latents: torch.Tensor) -> torch.Tensor:
        """f[B, T, width] -> f[B, T * FRAME_SIZE]: what the quantizer gave, made heard."""
        x = self.decoder_transformer.sequence(latents).flatten(1)
        return convolve(self.decoder, self.up, x, self._silence(self.decoder, latents.shape[0]))[0].tanh()

    def encode_sequence(self, pcm: torch.Tensor) -> torch.Tensor:
        """All ticks at once: f32[B, T * FRAME_SIZE] -> i64[B, T, 8]."""
        return self.quantizer.encode(self.latents(pcm))

    def decode_sequence(self, codes: torch.Tensor) -> torch.Tensor:
        """All ticks at once: i64[B, T, 8] -> f[B, T * FRAME_SIZE]."""
        return self.sound(self.quantizer.decode(codes))

    def _encode(self, tile: CodecRows, pcm: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
        x, carries = tile.convolve(self.encoder, pcm.to(tile.carries[0].dtype))
        keep(tile.carries, carries, active)
        return self.quantizer.encode(self.encoder_transformer.step(x, tile.ring, active), tile.stages)

    def _decode(self, tile: CodecRows, codes: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
        x = self.decoder_transformer.step(self.quantizer.decode(codes), tile.ring, active)
        x, carries = tile.convolve(self.decoder, x)
        keep(tile.carries, carries, active)
        return x.float().tanh()

    @staticmethod
    def _silence(layers: nn.ModuleList, rows: int) -> list[torch.Tensor]:
        return [layer.bias.new_zeros(rows, layer.bias.shape[0] // 2) for layer in layers]


def keep(carries: list[torch.Tensor], after: list[torch.Tensor], active: torch.Tensor) -> None:
    """The carries of active rows become those `after` the tick; bool[R]."""
    active = active[:, None]
    for carry, later in zip(carries, after, strict=True):
        torch.where(active, later, carry, out=carry)
