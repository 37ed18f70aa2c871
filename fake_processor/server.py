"""The fake processor on a real socket: a thin aiohttp shell around the routes.

It reads bytes, asks `routes.answer`, and writes bytes; it adds a Request-Id to every answer and
keeps a record of every request. It must never decide anything about money.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType

from aiohttp import web

from fake_processor.fixtures import load_fixtures
from fake_processor.routes import answer
from fake_processor.state import ProcessorState
from fake_processor.wire import Answer, Refusal, Request, invalid, refusal_answer

BODY_BYTES_MAX = 1024 * 1024
SHUTDOWN_TIMEOUT_S = 1.0
ECHOED_HEADERS = ("Idempotency-Key", "Stripe-Version")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request that came, and the status it was answered with."""

    method: str
    path: str
    query: list[tuple[str, str]]
    idempotency_key: str | None
    content_type: str | None
    body: bytes
    status: int
    request_id: str


class FakeProcessor:
    """A payment processor on a local socket, for the length of an `async with`.

    `state` is what it serves (the fixtures when None); `port` 0 takes a free one; `api_keys` are the
    keys it lets in (None: every key that starts with `sk_test_`). Inside the block `url` is its
    address and `requests` lists what was asked, oldest first. Entering raises OSError when the
    address cannot be bound.
    """

    def __init__(
        self,
        state: ProcessorState | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_keys: Collection[str] | None = None,
    ) -> None:
        self.state = load_fixtures() if state is None else state
        self.requests: list[RequestRecord] = []
        self._host = host
        self._port = port
        self._api_keys = None if api_keys is None else frozenset(api_keys)
        self._runner: web.AppRunner | None = None
        self._url: str | None = None
        self._request_count = 0

    @property
    def url(self) -> str:
        """`http://host:port`, without a slash at the end. RuntimeError when it is not running."""
        if self._url is None:
            raise RuntimeError("the fake processor is not running: use it in an `async with`")
        return self._url

    async def __aenter__(self) -> FakeProcessor:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        port = runner.addresses[0][1]
        self._url = f"http://[{self._host}]:{port}" if ":" in self._host else f"http://{self._host}:{port}"
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        runner, self._runner, self._url = self._runner, None, None
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, incoming: web.Request) -> web.Response:
        self._request_count += 1
        request_id = f"req_{self._request_count:06d}"
        body, refusal = await _read_body(incoming)
        request = Request(
            method=incoming.method,
            path=incoming.path,
            query=list(incoming.query.items()),
            headers=_joined(incoming.headers.items()),
            body=body,
        )
        reply = self._answer(request) if refusal is None else refusal_answer(refusal)
        self.requests.append(
            RequestRecord(
                method=request.method,
                path=request.path,
                query=list(request.query),
                idempotency_key=request.headers.get("idempotency-key"),
                content_type=request.headers.get("content-type"),
                body=body,
                status=reply.status,
                request_id=request_id,
            )
        )
        headers = {**reply.headers, "Request-Id": request_id, **_echoed(request.headers)}
        return web.Response(status=reply.status, body=reply.body, headers=headers, content_type=reply.content_type)

    def _answer(self, request: Request) -> Answer:
        try:
            return answer(self.state, request, api_keys=self._api_keys)
        except Exception:
            # A bug of the fake, or a row that JSON cannot express: still an answer in the usual shape.
            logger.exception("fake processor failed on %s %s", request.method, request.path)
            return refusal_answer(Refusal(500, "The fake processor failed.", code="internal", error_type="api_error"))


async def _read_body(incoming: web.Request) -> tuple[bytes, Refusal | None]:
    """The body up to its bound, and why it is refused when it is: read no further than needed."""
    body = bytearray()
    try:
        async for chunk in incoming.content.iter_any():
            body += chunk
            if len(body) > BODY_BYTES_MAX:
                message = f"The body has more than {BODY_BYTES_MAX} bytes."
                return bytes(body), Refusal(413, message, code="body_too_large", param="body")
    except web.RequestPayloadError:
        return bytes(body), invalid("The body cannot be decoded.", param="body")
    return bytes(body), None


def _joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by lower-case name; one that is repeated has its values joined, as HTTP defines it."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


def _echoed(headers: Mapping[str, str]) -> dict[str, str]:
    # Only what can be written back as it is: other bytes would break the answer's own headers.
    sent = {name: headers.get(name.lower()) for name in ECHOED_HEADERS}
    return {name: value for name, value in sent.items() if value and value.isascii() and value.isprintable()}
