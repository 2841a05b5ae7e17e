"""What attention hides from the positions of one forward."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from harness.tier.reference.config import FULL, LAYER_TYPES, SLIDING, NetworkConfig


class Masks:
    """The masks of a network on a device. Only what a forward hides of its own positions and of a window is kept, once it was made."""

    def __init__(self, config: NetworkConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        self._made: dict[tuple[int, int, int], torch.Tensor] = {}

    def of(self, start: int, length: int) -> Mapping[str, torch.Tensor | None]:
        """f[1, 1, length, seen] to add to scores, by transformers' types of layers; None: a lone token sees all that it is given."""
        if length == 1:
            return dict.fromkeys(LAYER_TYPES.values())
        before = start - self.config.first(SLIDING, start)
        return {
            # All that comes before a forward is seen from every position of it.
            LAYER_TYPES[FULL]: torch.nn.functional.pad(self._window(length, 0, length), (start, 0)),
            LAYER_TYPES[SLIDING]: self._window(self.config.window, before, length),
        }

    def _window(self, window: int, before: int, length: int) -> torch.Tensor:
        """f[1, 1, length, before + length]: what a window hides from `length` positions that have `before` others before them."""
        if (window, before, length) not in self._made:
            queries = torch.arange(before, before + length, device=self.device)[:, None]
            keys = torch.arange(before + length, device=self.device)[None]
            hidden = (keys > queries) | (keys <= queries - window)
            mask = torch.zeros(hidden.shape, dtype=self.config.dtype, device=self.device)
            self._made[window, before, length] = mask.masked_fill_(hidden, torch.finfo(self.config.dtype).min)[None, None]
        return self._made[window, before, length]
