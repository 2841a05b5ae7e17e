"""One thin adapter an engine."""
