"""The kind `tier`: a prefix-cache LLM server whose evicted prefixes come back from a host tier."""
