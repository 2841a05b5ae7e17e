"""Kind `transfer`: a KV cache handed from one stage to another through a connector."""
