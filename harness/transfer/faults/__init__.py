"""Catalogued faults of the reference transfer engine: ways in which a real KV transfer manager was wrong. Kind B of the catalogue.

Each breaks one seam and is caught through the public protocol.
"""

from harness.transfer.faults import connectors, controls, layouts, lifecycle, receiving, sending

__all__ = ["connectors", "controls", "layouts", "lifecycle", "receiving", "sending"]
