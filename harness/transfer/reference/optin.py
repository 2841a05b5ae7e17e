"""Whether a stage prefetches: an opt-in with two vetoes."""

from __future__ import annotations

from harness.transfer.protocol import EntryPoint, TransferConfig


class OptIn:
    """Reads one stage's configuration. What it holds for the connector has no say here."""

    def __init__(self, config: TransferConfig) -> None:
        self._config = config

    def prefetches(self) -> bool:
        return self._requested() and not self._vetoed_by_entry_point() and not self._vetoed_by_companion()

    def _requested(self) -> bool:
        """Only a written True asks for it: None, False and absence are the default, off."""
        return self._config.async_prefetch is True

    def _vetoed_by_entry_point(self) -> bool:
        """An autoregressive stage never prefetches."""
        return self._config.entry is EntryPoint.AUTOREGRESSIVE

    def _vetoed_by_companion(self) -> bool:
        """A stage that also collects CFG companions needs all payloads at one moment, which a prefetch of one does not give."""
        return self._config.companion
