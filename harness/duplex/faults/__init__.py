"""Catalogued faults of the reference duplex engine: ways in which a real speech batcher was wrong. Kind A of the catalogue.

Each breaks one seam and is caught through the public protocol.
"""

from harness.duplex.faults import context, controls, rows, sessions, speaking

__all__ = ["context", "controls", "rows", "sessions", "speaking"]
