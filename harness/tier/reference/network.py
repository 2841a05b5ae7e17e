"""A GptOss of transformers with seeded random weights, and what adapters, versions and media do to its embeddings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence

import torch
from transformers import DynamicCache, GptOssConfig, GptOssForCausalLM
from transformers.cache_utils import Cache
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssModel, GptOssRotaryEmbedding

from harness.tier.reference.config import LAYER_TYPES, NetworkConfig
from harness.tier.reference.identity import Identity, drawn
from harness.tier.reference.streams import put, synchronize

PLACEHOLDER = 2
"""The id that stands for a position of media: <media> of the tokenizer."""
ADAPTERS = ("formal", "terse")
VERSIONS = ("1", "2")
"""The first is the plain network."""
MEDIA_TOKENS = 8
"""Positions that media take before the prompt."""
RANK = 8
"""Of the changes that an adapter and a version make to embeddings."""
GAINS = {"embed_tokens": 1.0, "q_proj": 2.0, "k_proj": 2.0, "v_proj": 2.0, "o_proj": 4.0, "lm_head": 4.0}
"""Standard deviations of outputs for inputs of deviation 1, 1 where it is not named. These make attention choose among far positions and
weigh as much as the token itself, so that another prefix gives another token, and spread the logits."""
CACHE_ARGUMENT = "cache" if "cache" in inspect.signature(GptOssModel.forward).parameters else "past_key_values"
"""transformers renamed it in 5.2x."""


class Network:
    """The network of `config` on a device; its weights are a function of the config, `seed` and the kind of device."""

    adapters, versions, media_tokens = ADAPTERS, VERSIONS, MEDIA_TOKENS

    def __init__(self, config: NetworkConfig, device: torch.device, seed: int = 7) -> None:
        self.config, self.device = config, device
        self.vocabulary = config.vocabulary
        with torch.device("meta"):
            model = GptOssForCausalLM(transformers_config(config))
        with torch.inference_mode():
            fill(model, config.dtype, device, seed)
            # The executor's streams do not wait for the one that made the weights.
            synchronize(device)
        self.model = model.eval()
        self._changes: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    @torch.inference_mode()
    def embed(self, ids: torch.Tensor, media_ids: int, spoken: Identity, start: int) -> torch.Tensor:
        """f[1, n, hidden] of i64[n] tokens from position `start` on, of which the first `media_ids` stand for media."""
        embedded = self.model.model.embed_tokens(ids)
        if spoken.media is not None and media_ids:
            seen = drawn(b"media " + spoken.media, MEDIA_TOKENS, self.config.hidden)[start : start + media_ids]
            seen = put(seen.to(self.config.dtype), self.device)
            embedded = torch.cat((seen, embedded[media_ids:]))
        for name in self.changes(spoken):
            down, up = self.change(name)
            embedded = embedded + embedded @ down @ up
        return embedded[None]

    def changes(self, spoken: Identity) -> Iterator[str]:
        """The names of what changes embeddings. ValueError for an adapter or a version that there is not."""
        if spoken.adapter not in (None, *ADAPTERS) or spoken.version not in (None, *VERSIONS):
            raise ValueError(f"adapter {spoken.adapter!r} is not one of {ADAPTERS}, or version {spoken.version!r} not one of {VERSIONS}")
        if spoken.adapter is not None:
            yield f"adapter {spoken.adapter}"
        if spoken.version not in (None, VERSIONS[0]):
            yield f"version {spoken.version}"

    def change(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """f[hidden, RANK] and f[RANK, hidden] of a change of embeddings."""
        if name not in self._changes:
            hidden = self.config.hidden
            parts = drawn(f"{name} down".encode(), hidden, RANK) * hidden**-0.5, drawn(f"{name} up".encode(), RANK, hidden)
            self._changes[name] = tuple(part.to(self.device, self.config.dtype) for part in parts)
            synchronize(self.device)
        return self._changes[name]

    @torch.inference_mode()
    def run(self, embedded: torch.Tensor, cache: Cache, positions: torch.Tensor, masks: Mapping[str, torch.Tensor | None]) -> torch.Tensor:
        """f32[vocabulary]: the logits at the last position of f[1, n, hidden]; masks by transformers' types of layers."""
        hidden = self.model.model(
            inputs_embeds=embedded, position_ids=positions[None], attention_mask=dict(masks), use_cache=True, **{CACHE_ARGUMENT: cache}
        ).last_hidden_state
        return self.model.lm_head(hidden[:, -1:])[0, 0].float()

    def contiguous(self) -> DynamicCache:
        """An empty cache of transformers' own."""
        return DynamicCache(config=self.model.config)

    @torch.inference_mode()
    def run_contiguous(self, embedded: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        """As `run`, all of it as transformers does it: positions, masks, keys and values."""
        given = self.model(inputs_embeds=embedded, use_cache=True, logits_to_keep=1, **{CACHE_ARGUMENT: cache})
        return given.logits[0, 0].float()


def transformers_config(config: NetworkConfig) -> GptOssConfig:
    """The same, as transformers has it."""
    made = GptOssConfig(
        num_hidden_layers=config.layers,
        hidden_size=config.hidden,
        intermediate_size=config.intermediate,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        num_local_experts=config.experts,
        num_experts_per_tok=config.experts_per_token,
        sliding_window=config.window,
        vocab_size=config.vocabulary,
        max_position_embeddings=config.max_positions,
        rope_parameters=dict(config.rope),
        layer_types=[LAYER_TYPES[config.group(layer)] for layer in range(config.layers)],
        attn_implementation="eager",
        experts_implementation=config.experts_implementation,
    )
    made.dtype = config.dtype
    return made


def fill(model: GptOssForCausalLM, dtype: torch.dtype, device: torch.device, seed: int) -> None:
    """Give every parameter of a model on `meta` its numbers, one after the other, on the device itself."""
    for name, parameter in list(model.named_parameters()):
        owner, _, own = name.rpartition(".")
        generator = torch.Generator(device).manual_seed(int(drawn(f"{seed} {name}".encode(), 1).view(torch.int32)) & 0x7FFFFFFF)
        wide = torch.float32 if "norm" in owner else dtype
        numbers = weights(name, parameter.shape, generator, wide, device)
        setattr(model.get_submodule(owner), own, torch.nn.Parameter(numbers, requires_grad=False))
    model.model.rotary_emb = GptOssRotaryEmbedding(model.config).to(device)


def weights(name: str, shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Normal numbers, of a deviation that keeps what the layer gives at its gain; norms are 1, biases and sinks small."""
    owner, _, own = name.rpartition(".")
    layer = owner.rpartition(".")[2]
    if "norm" in layer:
        return torch.ones(shape, dtype=dtype, device=device)
    made = torch.empty(shape, dtype=dtype, device=device).normal_(generator=generator)
    if own in ("bias", "sinks") or own.endswith("_bias"):
        return made.mul_(0.02)
    # The experts' are [experts, in, out], all others [out, in], and an embedding is looked up.
    inputs = 1 if layer == "embed_tokens" else shape[1]
    return made.mul_(GAINS.get(layer, 1.0) * inputs**-0.5)
