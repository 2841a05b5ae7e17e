"""Paged caches of every layout, and an oracle that finds its way in them one token at a time."""

import torch

from harness.transfer.protocol import KVLayout, KVOrder

LAYOUTS = {
    f"{'packed' if packed else 'split'}-{order.value}-{str(dtype).removeprefix('torch.')}": KVLayout(2, 4, 3, 8, dtype, packed, order)
    for packed in (True, False)
    for order in KVOrder
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
}
"""Three heads in blocks of four tokens, so that no two axes are taken for one another."""


def bits(tensor):
    """The bytes of a tensor, [*shape but the last, bytes of the last axis]."""
    return tensor.contiguous().view(torch.uint8)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def any_bits(shape, dtype, seed):
    """A tensor of every bit pattern: NaNs with payloads, negative zero, subnormals."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize), dtype=torch.uint8, generator=generator).view(dtype)


def cache(layout, blocks=6, seed=0):
    """A layer of any bits for each of the layout's."""
    shape = (blocks, *layout.block_shape)
    if layout.packed:
        return [any_bits((2, *shape), layout.dtype, seed + layer) for layer in range(layout.layers)]
    parts = [any_bits(shape, layout.dtype, seed + part) for part in range(2 * layout.layers)]
    return list(zip(parts[0::2], parts[1::2], strict=True))


def copied(kv):
    return [layer.clone() if isinstance(layer, torch.Tensor) else tuple(part.clone() for part in layer) for layer in kv]


def untouched(a, b):
    """Every bit of two caches is the same."""
    return all(same(x[part], y[part]) for x, y in zip(a, b, strict=True) for part in (0, 1))


def row(layout, kv, layer, part, block_ids, token):
    """The [heads, head_dim] of one token, a view: keys for part 0, values for 1."""
    block = kv[layer][part][block_ids[token // layout.block_size]]
    place = token % layout.block_size
    return block[place] if layout.order is KVOrder.NHD else block[:, place]


def holds(layout, kv, block_ids, payload, first=0):
    """Whether `payload` is what stands in the cache from token `first` on."""
    return all(
        same(tensor[number], row(layout, kv, layer, part, block_ids, first + number))
        for part, tensors in enumerate((payload.keys, payload.values))
        for layer, tensor in enumerate(tensors)
        for number in range(len(tensor))
    )
