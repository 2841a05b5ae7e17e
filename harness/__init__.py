"""Assay's harness: the engine protocols, the reference engines and the pytest plugin."""

__version__ = "0.1.0"
