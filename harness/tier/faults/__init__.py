"""Catalogued faults of the embedded prefix-cache server: ways in which a real tiered cache was wrong. Kind C of the catalogue.

Each breaks one seam and is caught through the public protocol.
"""

from harness.tier.faults import controls, copies, keys, pages, requests

__all__ = ["controls", "copies", "keys", "pages", "requests"]
