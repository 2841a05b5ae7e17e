"""Engines in processes of their own: children that can be called, stopped and killed, and what they leave behind."""

from harness.transfer.processes.child import Kept
from harness.transfer.processes.freight import Drawn
from harness.transfer.processes.parent import Child, ChildDied, Pending, RemoteError, warm
from harness.transfer.processes.remote import Remote, RemoteConnector, RemoteEngine
from harness.transfer.processes.world import World

__all__ = ["Child", "ChildDied", "Drawn", "Kept", "Pending", "Remote", "RemoteConnector", "RemoteEngine", "RemoteError", "World", "warm"]
