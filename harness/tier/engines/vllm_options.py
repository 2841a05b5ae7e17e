"""The options of `tier/vllm`, and what they come to as arguments of vLLM's `LLM`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.names import unknown
from harness.core.verdict import Unavailable

ENGINE = "tier/vllm"
DEFAULTS = {
    "model": "llama",
    "size": "auto",
    "host": "auto",
    "device_pages": "2200",
    "host_pages": "16384",
    "page": "16",
    "max_running": "2",
    "chunk": "8192",
    "eager": "auto",
}
SHAPES = {"llama": {"tiny": "tiny", "full": "8b"}, "gptoss": {"tiny": "tiny", "full": "20b"}}
"""Option `model` to what sizes its shape comes in; anything else is the path of a checkpoint."""
CHOICES = {"size": ("auto", "tiny", "full"), "host": ("auto", "on", "off"), "eager": ("auto", "on", "off")}
LONGEST = 8192
"""Tokens of a request: the seeds' max_model_len."""
BYTES, GIB = 2, 1 << 30
"""Of a bfloat16."""
NULL = 1
"""Block 0 is vLLM's own."""


@dataclass(frozen=True)
class Options:
    """`model` and `size` name a shape with random weights; `size` None: `model` is the path of a checkpoint.

    `device_pages` blocks of `page` tokens, and `host_pages` on the host: 0 without that tier. `chunk`: prompt tokens of a step at most.
    """

    model: str
    size: str | None
    device_pages: int
    host_pages: int
    page: int
    max_running: int
    chunk: int
    eager: bool

    @classmethod
    def parse(cls, given: Mapping[str, str], device: str) -> Options:
        """ValueError that names the option; Unavailable for a host tier on a CPU."""
        if set(given) - set(DEFAULTS):
            raise ValueError(f"{ENGINE}: {unknown('option', min(set(given) - set(DEFAULTS)), DEFAULTS)}")
        chosen = DEFAULTS | dict(given)
        for name, choices in CHOICES.items():
            if chosen[name] not in choices:
                raise ValueError(f"{ENGINE}: option {name}: {unknown('value', chosen[name], choices)}")
        model, card = chosen["model"], device != "cpu"
        if chosen["host"] == "on" and not card:
            raise Unavailable("host = on: vLLM's native KV offloading refuses a CPU")
        if model not in SHAPES and not Path(model).is_dir():
            raise ValueError(f"{ENGINE}: option model = {model!r}: write {' or '.join(SHAPES)}, or the directory of a checkpoint")
        size = chosen["size"] if chosen["size"] != "auto" else "full" if card else "tiny"
        return cls(
            model=model,
            size=SHAPES[model][size] if model in SHAPES else None,
            device_pages=_number("device_pages", chosen),
            host_pages=_number("host_pages", chosen) if card and chosen["host"] != "off" else 0,
            page=_number("page", chosen),
            max_running=_number("max_running", chosen),
            chunk=_number("chunk", chosen),
            eager=not card if chosen["eager"] == "auto" else chosen["eager"] == "on",
        )

    def arguments(self, directory: Path, shape: Shape) -> dict[str, Any]:
        """Of `LLM`, for the checkpoint in `directory`."""
        host = self.host_pages * self.page * shape.token_bytes / GIB
        offloading = {"kv_offloading_size": host, "kv_offloading_backend": "native"} if host else {}
        return offloading | {
            "model": str(directory),
            "load_format": "auto" if self.size in (None, "tiny") else "dummy",
            "skip_tokenizer_init": not (directory / "tokenizer.json").is_file(),
            "enable_prefix_caching": True,
            "num_gpu_blocks_override": self.device_pages + NULL,
            "block_size": self.page,
            "max_num_seqs": self.max_running,
            "max_num_batched_tokens": max(self.chunk, self.max_running),
            "max_model_len": self.longest(shape),
            "enforce_eager": self.eager,
            "seed": 42,
        }

    def longest(self, shape: Shape) -> int:
        """Tokens of a request that the model and the device pool have room for: vLLM starts with no less."""
        return min(LONGEST, shape.positions, self.device_pages * self.page // shape.groups)


@dataclass(frozen=True)
class Shape:
    """What a checkpoint's configuration says. `groups` of layers keep pages of their own; `token_bytes`: of one token in one of them."""

    vocabulary: int
    positions: int
    groups: int
    token_bytes: int

    @classmethod
    def read(cls, directory: Path) -> Shape:
        """ValueError for a directory without config.json."""
        try:
            config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        except OSError as missing:
            raise ValueError(f"{ENGINE}: option model = {str(directory)!r}: {missing}; give the directory of a checkpoint") from None
        groups = len(set(config.get("layer_types") or ["full_attention"]))
        head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        bytes_ = 2 * config["num_hidden_layers"] // groups * config["num_key_value_heads"] * head * BYTES
        return cls(config["vocab_size"], config["max_position_embeddings"], groups, bytes_)


def _number(name: str, chosen: Mapping[str, str]) -> int:
    given = chosen[name]
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise ValueError(f"{ENGINE}: option {name} = {given!r}: write a number, 1 or more")
    return int(given)
