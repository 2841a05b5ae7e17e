"""Loads vLLM-Omni's PersonaPlexEngine: from the hub as it does it itself, or from a local directory at another size.

The engine takes its files from `hf_hub_download` and its sizes from the defaults of constructors, both looked up while it loads. For a
synthetic checkpoint they are replaced during the load, and put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.duplex.engines import personaplex_checkpoint as checkpoint
from harness.duplex.engines.hub import gated
from harness.duplex.engines.personaplex_archive import unpack_voices
from harness.duplex.engines.personaplex_sizes import CODEBOOKS, STRIDES, Size


def from_hub(batch: int, device: str) -> Any:
    """The engine with the published weights. Raises Unavailable where the hub refuses them; any other failure as it comes."""
    import huggingface_hub

    config = _config(batch, device)
    with gated(config.hf_repo), _without_accelerator():
        unpack_voices(Path(huggingface_hub.hf_hub_download(config.hf_repo, checkpoint.VOICES)))
        return _load(config)


def from_directory(directory: Path, size: Size, batch: int, device: str) -> Any:
    """The engine with the checkpoint of `directory`, at `size`."""
    unpack_voices(directory / checkpoint.VOICES)
    with _served(directory), _sized(size), _without_accelerator():
        return _load(_config(batch, device))


def _config(batch: int, device: str) -> Any:
    from vllm_omni.experimental.fullduplex.personaplex.config import PersonaPlexConfig

    return PersonaPlexConfig(batch_size=batch, device=device)


def _load(config: Any) -> Any:
    from vllm_omni.experimental.fullduplex.personaplex.runtime import PersonaPlexEngine

    return PersonaPlexEngine(config).load()


@contextmanager
def _replaced(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Attributes (of, name, value) for the time being."""
    with ExitStack() as stack:
        for of, name, value in places:
            stack.callback(setattr, of, name, getattr(of, name))
            setattr(of, name, value)
        yield


@contextmanager
def _served(directory: Path) -> Iterator[None]:
    """The hub's files are those of `directory`, by name."""
    import huggingface_hub

    def local(repo_id: str, filename: str) -> str:
        path = directory / filename
        if not path.is_file():
            raise FileNotFoundError(f"{path}: {repo_id} has it, this checkpoint has not; remove the directory, and it is built anew")
        return str(path)

    with _replaced((huggingface_hub, "hf_hub_download", local)):
        yield


@contextmanager
def _without_accelerator() -> Iterator[None]:
    """A load ends with `torch.accelerator.empty_cache()`, which raises on a machine that has none."""
    import torch

    if torch.accelerator.is_available():
        yield
        return

    def nothing_cached() -> None:
        """There is no accelerator."""

    with _replaced((torch.accelerator, "empty_cache", nothing_cached)):
        yield


@contextmanager
def _sized(size: Size) -> Iterator[None]:
    """The constructors that the load calls make networks of this size."""
    from vllm_omni.model_executor.models.personaplex import (
        configuration_personaplex,
        personaplex_depformer,
        personaplex_mimi,
        personaplex_temporal,
    )

    # vLLM puts another module of this name into its place, so the engine's is there only now.
    transformers = import_module("transformers")
    codec, config = size.codec, configuration_personaplex.PersonaPlexConfig
    temporal = partial(
        personaplex_temporal.PersonaPlexTemporalStreaming,
        dim=size.hidden,
        num_layers=size.layers,
        num_heads=size.heads,
        hidden=size.feedforward,
        context=size.context,
    )
    depth = {
        "hidden_size": size.depth_hidden,
        "num_hidden_layers": size.depth_layers,
        "num_attention_heads": size.depth_heads,
        "num_key_value_heads": size.depth_heads,
        "head_dim": size.depth_hidden // size.depth_heads,
        "intermediate_size": size.depth_feedforward,
    }
    codec_layers = partial(personaplex_mimi._MimiStreamingTransformer, dim=codec.hidden, num_heads=codec.heads, context=codec.context)
    with _replaced(
        (personaplex_temporal, "PersonaPlexTemporalStreaming", temporal),
        (configuration_personaplex, "PersonaPlexConfig", partial(config, {"hidden_size": size.hidden}, depth)),
        (personaplex_depformer, "PersonaPlexDepformer", _narrow(personaplex_depformer.PersonaPlexDepformer, size)),
        (personaplex_mimi, "_MimiTransformerLayer", partial(personaplex_mimi._MimiTransformerLayer, ffn=codec.feedforward)),
        (personaplex_mimi, "_MimiStreamingTransformer", codec_layers),
        (transformers, "MimiConfig", partial(transformers.MimiConfig, **_mimi(size))),
    ):
        yield


def _narrow(depformer: Callable[..., Any], size: Size) -> Callable[..., Any]:
    """The engine names the temporal width, 4096, in its call."""

    def make(config: Any, **widths: int) -> Any:
        return depformer(config, **widths | {"temporal_hidden_size": size.hidden})

    return make


def _mimi(size: Size) -> dict[str, Any]:
    codec = size.codec
    return {
        "num_filters": codec.filters,
        "hidden_size": codec.hidden,
        "upsample_groups": codec.hidden,
        "upsampling_ratios": list(STRIDES),
        "num_quantizers": max(codec.quantizers, CODEBOOKS),
        "codebook_dim": codec.code_dim,
        "vector_quantization_hidden_dimension": codec.code_dim,
        "num_attention_heads": codec.heads,
        "num_key_value_heads": codec.heads,
        "intermediate_size": codec.feedforward,
        "sliding_window": codec.context,
    }
