"""One request to the processor: what is sent, the same on every attempt, and how far it has come."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from paykit_settle.endpoint import check_params, check_path
from paykit_settle.errors import SettleError
from paykit_settle.faults import Exchange
from paykit_settle.wire import check_idempotency_key, encode_body

Params = Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorRequest:
    """What goes out: made once, so that every attempt sends the very same bytes under the same key."""

    method: str
    path: str
    params: Params | None = None
    content: bytes | None = None
    idempotency_key: str | None = None

    @property
    def account(self) -> str:
        """Whose request it is, as far as its parameters tell."""
        return str((self.params or {}).get("account", ""))


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
    return ProcessorRequest(method="GET", path=check_path(path), params=check_params(params or {}))


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
