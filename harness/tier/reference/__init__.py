"""The embedded prefix-cache server: GptOss of transformers over a paged pool in two groups, a host tier, copies on side streams."""
