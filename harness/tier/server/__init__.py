"""`assay serve`: a stepped prefix-cache server behind OpenAI's completions API."""
