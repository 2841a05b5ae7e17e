"""One thin adapter an engine. Third-party imports stay inside functions."""
