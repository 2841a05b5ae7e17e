"""Thin adapters, one an engine; third-party imports stand inside functions."""
