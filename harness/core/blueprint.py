"""What another process needs to build the engine under test: plain values, so that nothing of an engine is copied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from harness.core.clock import Clock
from harness.core.faults import find_fault
from harness.core.registry import Registry, adapter_spec, builtin_specs, entry_point_specs
from harness.core.spec import EngineConfig, EngineSpec


@dataclass(frozen=True)
class Blueprint:
    """An engine by name, with its configuration. `adapter`: the module:attr that brought it, if --adapter did; `fault`: one by name."""

    engine: str
    config: EngineConfig
    adapter: str | None = None
    fault: str | None = None

    def with_options(self, **options: str) -> Blueprint:
        """The same engine with these options changed."""
        return replace(self, config=replace(self.config, options={**self.config.options, **options}))

    def spec(self) -> EngineSpec:
        """The engine's description, found anew in this process."""
        brought = [adapter_spec(self.adapter)] if self.adapter else []
        return Registry([*builtin_specs(), *entry_point_specs(), *brought]).specs[self.engine]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The fault is planted inside the block, here; without one nothing happens."""
        if self.fault is None:
            yield
            return
        self.spec().load()  # faults of a third party are registered by its own module
        with find_fault(self.fault).planted():
            yield

    def build(self, clock: Clock) -> Any:
        """The engine; see `Adapter.build`."""
        return self.spec().load().build(self.config, clock)
