"""Checkpoints with random weights for servers that read one: Llama and GptOss, tiny and at their published sizes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from harness.tier.reference.tokenizer import PATH as TOKENIZER

if TYPE_CHECKING:
    from transformers import PretrainedConfig

VERSION = 1
"""Of what this builder makes: raised with every change of it, so that no older directory is taken for a new one."""
SEED = 20
"""Of the weights. Not the run's: a run under another seed is still a run of the same model."""
LONGEST = 8192
"""Tokens of a sequence: the seeds' max_model_len."""

_LLAMA_TINY = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
_LLAMA_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
_GPTOSS_TINY = {
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 32,
}
SIZES: dict[tuple[str, str], dict[str, Any]] = {
    ("llama", "tiny"): _LLAMA_TINY,
    ("llama", "8b"): _LLAMA_8B,
    ("gptoss", "tiny"): _GPTOSS_TINY,
    ("gptoss", "20b"): {"num_hidden_layers": 24, "num_local_experts": 32},
}
"""Model and size to what differs from the configuration's defaults; GptOss's are gpt-oss-120b's."""


def build(directory: Path, model: str, size: str, seed: int = SEED) -> None:
    """Write config.json, the tokenizer and the shards, one a layer, into `directory`, which is made; never more than a shard is in memory.

    KeyError for a size that the model has not.
    """
    config = configuration(model, size)
    directory.mkdir(parents=True, exist_ok=True)
    write_tokenizer(directory)
    config.save_pretrained(directory)
    index: dict[str, str] = {}
    total = 0
    for number, shapes in enumerate(_shards(config), start=1):
        file = f"model-{number:05d}.safetensors"
        tensors = {name: _weights(name, shape, seed) for name, shape in shapes.items()}
        save_file(tensors, directory / file, metadata={"format": "pt"})
        index.update(dict.fromkeys(tensors, file))
        total += sum(tensor.nbytes for tensor in tensors.values())
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=1)
    (directory / "model.safetensors.index.json").write_text(text + "\n")


def cached(model: str, size: str, seed: int = SEED) -> Path:
    """The directory of this checkpoint on this machine, built where it is missing. Several may ask at once: one's work is kept."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "assay" / "tier"
    digest = hashlib.sha256(TOKENIZER.read_bytes()).hexdigest()[:8]
    directory = root / f"v{VERSION}-{model}-{size}-seed{seed}-{digest}"
    if directory.exists():
        return directory
    root.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=root))
    try:
        build(making, model, size, seed)
        making.rename(directory)
    except OSError:
        # A directory that is not empty takes the name of no other: somebody else was first.
        if not directory.exists():
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return directory


def vocabulary(model: str, size: str) -> int:
    """Token ids are below it."""
    return int(configuration(model, size).vocab_size)


def configuration(model: str, size: str) -> PretrainedConfig:
    """What config.json says. KeyError for a size that the model has not."""
    from tokenizers import Tokenizer
    from transformers import GptOssConfig, LlamaConfig

    given = SIZES[model, size]
    ours = {
        "vocab_size": Tokenizer.from_file(str(TOKENIZER)).get_vocab_size(),
        "eos_token_id": 0,
        "bos_token_id": None,
        "pad_token_id": None,
    }
    common = {"dtype": "bfloat16", "tie_word_embeddings": False}
    if model == "llama":
        rope = {"rope_type": "default", "rope_theta": 500000.0}
        return LlamaConfig(
            **ours | {"max_position_embeddings": LONGEST, "rope_parameters": rope} | common | given, architectures=["LlamaForCausalLM"]
        )
    vocabulary = ours if size == "tiny" else ours | {"vocab_size": 201088}
    return GptOssConfig(**vocabulary | common | given, architectures=["GptOssForCausalLM"])


def _shards(config: PretrainedConfig) -> Iterator[dict[str, torch.Size]]:
    """Name to shape, a layer a shard, what belongs to no layer last; without making a weight."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        shapes = {name: value.shape for name, value in AutoModelForCausalLM.from_config(config).state_dict().items()}
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        yield {name: shapes.pop(name) for name in list(shapes) if name.startswith(prefix)}
    yield shapes


def _weights(name: str, shape: torch.Size, seed: int) -> torch.Tensor:
    """bf16, by name and seed alone. Matrices keep the scale of what goes through them, so that answers depend on every layer."""
    if name.endswith("norm.weight"):
        return torch.ones(shape, dtype=torch.bfloat16)
    if len(shape) < 2 or name.endswith("_bias"):
        return torch.zeros(shape, dtype=torch.bfloat16)
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
    # Experts' matrices are kept [expert, in, out], all others [out, in].
    fan_in = shape[-2] if len(shape) == 3 else shape[-1]
    scale = 1.0 if "embed_tokens" in name else fan_in**-0.5
    return torch.empty(shape, dtype=torch.bfloat16).normal_(0.0, scale, generator=generator)


def write_tokenizer(directory: Path) -> None:
    """The one that was trained on the workload's prompts, as transformers reads it."""
    shutil.copyfile(TOKENIZER, directory / "tokenizer.json")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LONGEST, "clean_up_tokenization_spaces": False}
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
