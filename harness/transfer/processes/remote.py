"""Stand-ins for what lives in a child: they satisfy the protocols, so that a check reads as it does within one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.core.blueprint import Blueprint
from harness.transfer.processes.child import WORKSHOP, Kept, Method
from harness.transfer.processes.parent import Child, Pending
from harness.transfer.protocol import Topology, TransferConfig, TransferManager


class Remote:
    """Any object of a child. Its methods and attributes are that object's, by name; errors are those of `Child.call`."""

    def __init__(self, child: Child, kept: Kept) -> None:
        self.child, self.kept = child, kept

    def begin(self, name: str, *args: Any, **kwargs: Any) -> Pending:
        """Call the method without waiting for its end."""
        return self.child.begin(self.kept.number, name, *args, **kwargs)

    def begin_keep(self, name: str, *args: Any, **kwargs: Any) -> Pending:
        """As `begin`; what the method returns stays in the child, which holds it until it ends. The result is a `Kept`."""
        return self.child.begin_keep(self.kept.number, name, *args, **kwargs)

    def keep(self, name: str, *args: Any) -> Kept:
        """`begin_keep`, waited for."""
        return self.begin_keep(name, *args).result()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.child.read(self.kept.number, name)
        if not isinstance(value, Method):
            return value
        method = self._method(name)
        # The next look-up finds the method on the stand-in itself.
        self.__dict__[name] = method
        return method

    def _method(self, name: str) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            return self.child.call(self.kept.number, name, *args, **kwargs)

        return method


class RemoteConnector(Remote):
    """A `Connector` in a child."""

    def witnessed(self) -> RemoteConnector:
        """The connector behind a witness, which is asked for `calls`."""
        return RemoteConnector(self.child, self.child.keep(WORKSHOP, "witness", self.kept))


class RemoteEngine:
    """A `TransferEngine` or `ConnectorEngine` in a child."""

    lab = None

    def __init__(self, child: Child, blueprint: Blueprint) -> None:
        self.child = child
        self._kept = child.build(blueprint)

    def connector(self, address: str | None = None) -> RemoteConnector:
        return RemoteConnector(self.child, self.child.keep(self._kept.number, "connector", address))

    def deploy(self, topology: Topology | None, connector: RemoteConnector, config: TransferConfig) -> TransferManager:
        """A manager in the child, over a connector there."""
        return Remote(self.child, self.begin_deploy(topology, connector, config).result())  # type: ignore[return-value]

    def begin_deploy(self, topology: Topology | None, connector: RemoteConnector, config: TransferConfig) -> Pending:
        """The same without waiting for its end; the result is a `Kept`."""
        return self.child.begin_keep(self._kept.number, "deploy", topology, connector.kept, config)

    def usage(self) -> dict[str, int]:
        return self.child.call(self._kept.number, "usage")

    def close(self) -> None:
        """The engine is closed with its child."""
        self.child.close()
