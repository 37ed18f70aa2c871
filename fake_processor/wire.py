"""What goes in and out of the fake processor, as plain records.

A request, its answer, and the one error that a refusal raises. Nothing here opens a socket, reads a
file or knows a route, so the whole processor can be asked questions inside a unit test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

ErrorType = Literal["api_error", "idempotency_error", "invalid_request_error"]

JSON_TYPE = "application/json"


class Request(NamedTuple):
    """One request, as the routes read it. Header names are in lower case."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""


@dataclass(slots=True, kw_only=True)
class Answer:
    """One answer: the exact bytes of the body and the headers beside them, which may be added to."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = JSON_TYPE


class Refusal(Exception):
    """The processor says no: an HTTP status and the `error` object of Stripe's shape.

    `param` names the parameter, member or header at fault (`limit`, `lines[0].net`).
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        error_type: ErrorType = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.error_type = error_type
        self.headers = dict(headers or {})


def invalid(message: str, *, param: str, code: str = "parameter_invalid") -> Refusal:
    """The usual refusal: 400 `invalid_request_error`, naming what is wrong."""
    return Refusal(400, message, code=code, param=param)


def json_answer(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """`value` as one line of JSON. A row put in by a test is written as it is, whatever its types."""
    body = f"{json.dumps(value)}\n".encode("ascii")
    return Answer(status=status, body=body, headers=dict(headers or {}))


def refusal_answer(refusal: Refusal) -> Answer:
    """A refusal in Stripe's shape; `param` is left out when there is none."""
    error = {"type": refusal.error_type, "code": refusal.code, "message": refusal.message}
    if refusal.param is not None:
        error["param"] = refusal.param
    return json_answer({"error": error}, status=refusal.status, headers=refusal.headers)
