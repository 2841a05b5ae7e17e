"""Requests as vLLM-Omni's pipelines see them: an object with sampling parameters, onto which a received KV cache is set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from harness.transfer.protocol import Delivery, KVPayload, Outcome

ROLES = ("cfg_text", "cfg_img")
"""The engine's guidance branches beside the main one, in the order in which it gives them to the ranks of a CFG group."""


def request(request_id: str, sender: dict[str, Any] | None = None, branches: Mapping[str, str] | None = None) -> SimpleNamespace:
    """`branches`: role to the id that its payload was sent under. `sender`: as `update_sender_info` takes it."""
    return SimpleNamespace(
        request_id=request_id, kv_sender_info=sender, sampling_params=SimpleNamespace(cfg_kv_request_ids=dict(branches or {}))
    )


def delivery(data: dict[str, Any] | None, size: int) -> Delivery:
    """What a receive of the engine returned."""
    if data is None:
        return Delivery(Outcome.MISS)
    held = payload(data["layer_blocks"])
    rows = {layer.shape[0] for layer in held.keys + held.values if layer is not None}
    return Delivery(Outcome.HIT, held, size, min(rows, default=0), data["metadata"], native=data)


def payload(layers: Mapping[str, list[torch.Tensor | None]]) -> KVPayload:
    """The engine's two lists, a tensor a layer."""
    return KVPayload(tuple(layers["key_cache"]), tuple(layers["value_cache"]))


def set_branches(request: SimpleNamespace, deliveries: Sequence[Delivery]) -> None:
    """Set what was fetched for the roles onto the request, in their order and under the names that the engine's collectors use."""
    if len(deliveries) > len(ROLES):
        raise NotImplementedError(f"vllm-omni: {len(deliveries)} guidance branches beside the main one; it knows {', '.join(ROLES)}")
    for role, fetched in zip(ROLES, deliveries, strict=False):
        if fetched.outcome is Outcome.HIT:
            setattr(request.sampling_params, f"{role}_past_key_values", SimpleNamespace(**fetched.native["layer_blocks"]))
            setattr(request.sampling_params, f"{role}_kv_metadata", fetched.native["metadata"])


def set_on(request: SimpleNamespace, role: str | None, size: int | None = None) -> Delivery:
    """The main KV cache (`role` None) or a branch's, as the request holds it. `size` None: the bytes of its tensors."""
    params = request.sampling_params
    held = getattr(params, f"{role}_past_key_values" if role else "past_key_values", None)
    if held is None:
        return Delivery(Outcome.MISS)
    metadata = getattr(params, f"{role}_kv_metadata" if role else "kv_metadata", {})
    layers = {name: list(vars(held)[name]) for name in ("key_cache", "value_cache")}
    if size is None:
        size = sum(layer.nbytes for cache in layers.values() for layer in cache if layer is not None)
    return delivery({"layer_blocks": layers, "metadata": metadata}, size)


def active_role(request: SimpleNamespace, cfg_rank: int) -> str | None:
    """Which branch a rank of a CFG group computes, of what it was given; None is the main one."""
    role = getattr(request.sampling_params, "cfg_active_branch", None)
    if role is None and 0 < cfg_rank <= len(ROLES) and hasattr(request.sampling_params, f"{ROLES[cfg_rank - 1]}_past_key_values"):
        role = ROLES[cfg_rank - 1]
    return role
