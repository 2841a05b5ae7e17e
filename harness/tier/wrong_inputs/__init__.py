"""Wrong answers of the embedded prefix-cache server, each made for a claim that no catalogued fault covers."""

from harness.tier.wrong_inputs import aborts, accounting, bytes, copies, evictions, http, keys, layers, life, malformed, order, rounds

__all__ = ["aborts", "accounting", "bytes", "copies", "evictions", "http", "keys", "layers", "life", "malformed", "order", "rounds"]
