"""How many bytes of weights a tick must read, for engines that are torch modules in this process."""

from __future__ import annotations

from torch import nn

TABLE = "embedding"
"""The name of a parameter that is a table of embeddings, where it is not the weight of an `nn.Embedding`."""


def weight_bytes(*networks: nn.Module) -> int:
    """Bytes of the networks' parameters, each counted once. Tables of embeddings are left out: a tick reads a few of their rows."""
    modules = [module for network in networks for module in network.modules()]
    tables = {id(module.weight) for module in modules if isinstance(module, nn.Embedding)}
    found = {
        id(parameter): parameter.numel() * parameter.element_size()
        for module in modules
        for name, parameter in module.named_parameters(recurse=False)
        if name != TABLE and id(parameter) not in tables
    }
    return sum(found.values())
