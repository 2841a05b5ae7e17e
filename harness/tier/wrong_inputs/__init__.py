"""Wrong answers of the embedded prefix-cache server, each made for a claim that no catalogued fault covers."""

from harness.tier.wrong_inputs import accounting, bytes, keys, rounds

__all__ = ["accounting", "bytes", "keys", "rounds"]
