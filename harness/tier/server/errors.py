"""Refusals in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

INVALID = "invalid_request_error"


class Refusal(Exception):
    """What a request is refused with. `param`: the field to change; `code`: what a client may branch on."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None, kind: str = INVALID) -> None:
        super().__init__(message)
        self.message, self.status, self.param, self.code, self.kind = message, status, param, code, kind

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else None
        return JSONResponse(self.body(), self.status, headers)


def unauthorized(has_key: bool) -> Refusal:
    """A request without the key, or with another."""
    message = "Incorrect API key provided." if has_key else "No API key: send it as 'Authorization: Bearer KEY'."
    return Refusal(message, status=401, code="invalid_api_key")


def no_model(name: str, served: list[str]) -> Refusal:
    """A model that is not served."""
    return Refusal(f"The model {name!r} does not exist; there are {', '.join(served)}.", status=404, param="model", code="model_not_found")


def failed(message: str) -> Refusal:
    """What the engine could not do."""
    return Refusal(message, status=500, kind="server_error")


def misread(wrong: RequestValidationError) -> Refusal:
    """The first thing that is wrong with a body."""
    first = wrong.errors()[0]
    path = [str(part) for part in first["loc"] if part != "body"]
    if first["type"] == "json_invalid":
        return Refusal(f"The body is no JSON: {first.get('ctx', {}).get('error', first['msg'])}.", code="invalid_json")
    if not path:
        return Refusal(f"The body: {first['msg']}.")
    if first["type"] == "extra_forbidden":
        return Refusal(f"Unrecognized request argument: {path[0]}.", param=path[0], code="unknown_parameter")
    missing = first["type"] == "missing"
    message = f"You must provide {path[0]}." if missing else f"{'.'.join(path)}: {first['msg']}."
    return Refusal(message, param=path[0], code="missing_required_parameter" if missing else "invalid_type")
