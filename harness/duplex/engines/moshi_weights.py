"""What `duplex/moshi` runs: Kyutai's published weights, or random ones of any size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from harness.duplex.engines.hub import gated

SEED = 20
"""Of random weights. Not the run's: a run under another seed is still a run of the same model."""
LOUDNESS = 0.05
"""Root mean square of what a random codec says, so that what it says stays between -1 and 1."""
LAYER_SCALE = 0.3
"""Of the codec's attention layers. At their initial 0.01 nothing in their KV could be heard in a code."""

TINY_LM: Mapping[str, Any] = {
    "dim": 128,
    "text_card": 128,
    "existing_text_padding_id": 3,
    "n_q": 16,
    "dep_q": 8,
    "card": 64,
    "num_heads": 4,
    "num_layers": 2,
    "hidden_scale": 3.0,
    "causal": True,
    "layer_scale": None,
    "context": 32,
    "max_period": 10_000,
    "gating": "silu",
    "norm": "rms_norm_f32",
    "positional_embedding": "rope",
    "depformer_dim": 64,
    "depformer_dim_feedforward": 192,
    "depformer_num_heads": 2,
    "depformer_num_layers": 1,
    "depformer_multi_linear": True,
    "depformer_context": 8,
    "depformer_gating": "silu",
    "depformer_pos_emb": "none",
    "depformer_weights_per_step": True,
    "delays": [0, *([0] + [1] * 7) * 2],
}
"""`LMModel`'s arguments: Moshi's streams and delays, a network of a thousandth of its size."""
TINY_MIMI: Mapping[str, Any] = {
    "sample_rate": 24_000,
    "channels": 1,
    "frame_rate": 12.5,
    "seanet": {
        "channels": 1,
        "dimension": 64,
        "causal": True,
        "n_filters": 8,
        "n_residual_layers": 1,
        "activation": "ELU",
        "compress": 2,
        "dilation_base": 2,
        "kernel_size": 7,
        "residual_kernel_size": 3,
        "last_kernel_size": 3,
        "norm": "none",
        "pad_mode": "constant",
        "ratios": [40, 24],
        "true_skip": True,
    },
    "quantizer": {"dimension": 32, "n_q": 8, "bins": 64, "input_dimension": 64, "output_dimension": 64},
    "transformer": {
        "d_model": 64,
        "num_heads": 2,
        "num_layers": 1,
        "causal": True,
        "layer_scale": LAYER_SCALE,
        "context": 32,
        "conv_layout": True,
        "max_period": 10_000,
        "gating": "none",
        "norm": "layer_norm",
        "positional_embedding": "rope",
        "dim_feedforward": 128,
        "input_dimension": 64,
        "output_dimensions": [64],
    },
}
"""`get_mimi`'s configuration: Mimi's rates, few and narrow layers."""


@dataclass(frozen=True)
class Weights:
    """A codec, a language model, and what a text token reads as: None for padding."""

    mimi: Any
    lm: Any
    piece: Callable[[int], str | None]


def random(size: str, device: torch.device) -> Weights:
    """A seeded model of the size `tiny`, in float32, or `7b`, in bfloat16 with Moshi's own sizes; the codec is in float32."""
    from moshi.models import loaders

    tiny = size == "tiny"
    with _seeded(device):
        lm = loaders.get_moshi_lm(
            None, lm_kwargs=dict(TINY_LM) if tiny else None, device=device, dtype=torch.float32 if tiny else torch.bfloat16
        )
        mimi = loaders.get_mimi(None, mimi_config=dict(TINY_MIMI) if tiny else None, device=device, num_codebooks=lm.dep_q)
        _draw_codec(mimi, device)
    padding = {lm.text_padding_token_id, lm.end_of_text_padding_id}
    return Weights(mimi, lm, lambda token: None if token in padding else f"t{token}")


def published(device: torch.device) -> Weights:
    """Kyutai's weights from the Hugging Face hub. Unavailable where access is refused; whatever else fails is raised."""
    from moshi.models import loaders

    with gated(loaders.DEFAULT_REPO):
        checkpoint = loaders.CheckpointInfo.from_hf_repo(loaders.DEFAULT_REPO)
    tokenizer = checkpoint.get_text_tokenizer()
    lm, mimi = checkpoint.get_moshi(device=device, dtype=torch.bfloat16), checkpoint.get_mimi(device=device)
    padding = {lm.text_padding_token_id, lm.end_of_text_padding_id}
    return Weights(mimi, lm, lambda token: None if token in padding else tokenizer.id_to_piece(token).replace("\u2581", " "))


@contextmanager
def _seeded(device: torch.device) -> Iterator[None]:
    """Initialisers draw from torch's global generators: these are seeded inside, and go on as before afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.no_grad():
        torch.manual_seed(SEED)
        yield


def _draw_codec(mimi: Any, device: torch.device) -> None:
    """Draw the codec anew so that its codes follow the sound, and its sound the codes: torch's initialisers let both fade away."""
    for module in mimi.modules():
        if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
            _keep_variance(module)
    for name, parameter in mimi.named_parameters():
        if "layer_scale" in name:
            parameter.fill_(LAYER_SCALE)
    latent = mimi.encode_to_latent(_sound(mimi, device), quantize=False)
    for quantizer in (mimi.quantizer.rvq_first, mimi.quantizer.rvq_rest):
        _draw_codebooks(quantizer, latent)
    codes = torch.randint(mimi.cardinality, (1, mimi.num_codebooks, 64), device=device)
    last = mimi.decoder.model[-1].conv.conv
    last.weight.mul_(LOUDNESS / mimi.decode(codes).std())


def _keep_variance(conv: nn.Conv1d | nn.ConvTranspose1d) -> None:
    """Weights with which the output is about as loud as the input; no bias, so that silence stays silence."""
    seen = conv.in_channels // conv.groups * conv.kernel_size[0]
    if isinstance(conv, nn.ConvTranspose1d):
        seen //= conv.stride[0]
    nn.init.normal_(conv.weight, std=1 / math.sqrt(seen))
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)


def _draw_codebooks(quantizer: Any, latent: torch.Tensor) -> None:
    """Entries are latents of a sound, each moved a little; those of a later book are drawn from what the earlier ones leave."""
    residual = quantizer.input_proj(latent)
    for layer in quantizer.vq.layers:
        book = layer._codebook
        rows = residual[0].T[torch.randint(residual.shape[-1], (book.codebook_size,), device=residual.device)]
        book.embedding_sum.copy_(rows + 0.5 * residual.std() * torch.randn_like(rows))
        book.cluster_usage.fill_(1)
        residual = residual - layer.decode(layer.encode(residual))


def _sound(mimi: Any, device: torch.device) -> torch.Tensor:
    """f32[1, 1, samples]: 96 frames, a tone of its own in each, under noise that comes and goes."""
    frames, size = 96, mimi.frame_size
    hertz = 100 * 10 ** torch.rand(frames, 1, device=device)
    tones = torch.sin(2 * math.pi * hertz * torch.arange(size, device=device) / mimi.sample_rate)
    noise = torch.randn(frames, size, device=device) * torch.rand(frames, 1, device=device)
    return (0.12 * tones + 0.05 * noise).reshape(1, 1, -1)
