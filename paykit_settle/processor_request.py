"""One request to the processor: what is sent, the same on every attempt, and how far it has come."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from paykit_settle.endpoint import check_path, write_query
from paykit_settle.errors import SettleError
from paykit_settle.faults import Exchange
from paykit_settle.wire import check_idempotency_key, encode_body

Params = Mapping[str, str | int]


class ProcessorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What goes out: made once, so that every attempt sends the very same bytes under the same key.

    `account` is whose request it is, as far as its parameters tell.
    """

    method: str
    path: str
    query: str = ""
    account: str = ""
    content: bytes | None = None
    idempotency_key: str | None = None


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far one request has come over its attempts; `uncertain`: an effect may exist that we have no word of.

    `started` is a reading of the monotonic clock, in seconds.
    """

    started: float
    attempt: int = 0
    uncertain: bool = False
    last: SettleError | None = None


def get_request(path: str, params: Params | None) -> ProcessorRequest:
    """A GET; `InvalidRequest` for a path or parameters that could lead elsewhere."""
    if not params:
        return ProcessorRequest(method="GET", path=check_path(path))
    account = str(params.get("account", ""))
    return ProcessorRequest(method="GET", path=check_path(path), query=write_query(params), account=account)


def post_request(path: str, body: bytes | Mapping[str, object], idempotency_key: str) -> ProcessorRequest:
    """A POST of JSON, encoded once; `InvalidRequest` for an unusable path or key, `TypeError` for a float."""
    content = body if isinstance(body, bytes) else encode_body(body)
    key = check_idempotency_key(idempotency_key)
    return ProcessorRequest(method="POST", path=check_path(path), content=content, idempotency_key=key)


def exchange_of(request: ProcessorRequest, progress: Progress, request_id: str | None = None) -> Exchange:
    """Where and when this attempt stands, for an error."""
    return Exchange(
        method=request.method,
        path=request.path,
        request_id=request_id,
        attempt=progress.attempt,
        elapsed_ms=int((time.monotonic() - progress.started) * 1000),
    )
