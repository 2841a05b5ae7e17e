"""Wrong answers of the reference duplex engine, each made for one claim that no catalogued fault covers."""

from harness.duplex.wrong_inputs import conversation, delivery, endings, malformed

__all__ = ["conversation", "delivery", "endings", "malformed"]
