"""Wrong answers of the reference duplex engine, each made for one claim that no catalogued fault covers."""

from harness.duplex.wrong_inputs import conversation, crosstalk, delivery, endings, graphs, history, malformed, recycling

__all__ = ["conversation", "crosstalk", "delivery", "endings", "graphs", "history", "malformed", "recycling"]
