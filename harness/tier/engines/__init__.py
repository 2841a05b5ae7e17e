"""Adapters of tiered prefix-cache servers: one thin file an engine."""
