"""The HTTP client of the payment processor: the only module that knows httpx.

One `ProcessorClient` lives as long as the process. Every request has a deadline, bounded retries and a bounded body,
and ends as an answer that was read whole or as one `ProcessorError`; no httpx exception leaves, and neither does the
API key.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from types import TracebackType
from typing import Self, TypeVar

import httpx
import stamina

from paykit_settle.answers import Answer, error_of_answer, unreadable
from paykit_settle.body_reader import ACCEPT_ENCODING, BodyLimits, read_body
from paykit_settle.endpoint import check_api_key, check_base_url, is_header_safe
from paykit_settle.errors import (
    Exchange,
    InvalidRequest,
    InvariantViolated,
    OutcomeUnknown,
    ProcessorError,
    ProcessorUnavailable,
    ProtocolError,
    SettleError,
)
from paykit_settle.models import BalanceTransaction
from paykit_settle.rates import Rates
from paykit_settle.retry import RetryPolicy
from paykit_settle.version import __version__
from paykit_settle.window import Window
from paykit_settle.wire import (
    IDEMPOTENCY_KEY_LENGTH_MAX,
    Page,
    decode_created,
    decode_object,
    decode_page,
    decode_rates,
    encode_body,
)

PAGE_SIZE_MAX = 100
PAGES_MAX = 100_000

Params = Mapping[str, str | int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    path: str
    params: Params | None = None
    content: bytes | None = None
    idempotency_key: str | None = None


@dataclass(slots=True)
class _Progress:
    """How far one request has come over its attempts; `uncertain`: an effect may exist that we have no word of."""

    started: float
    attempt: int = 0
    uncertain: bool = False


class ProcessorClient:
    """Asks one payment processor. Use it as `async with ProcessorClient(url, api_key=...) as client`.

    `api_key=None` is for a processor on this machine; any other needs its key, else `InvalidConfig`.
    `http` injects an `httpx.AsyncClient` (its transport, proxies and TLS); it then stays the caller's to close.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        policy: RetryPolicy | None = None,
        limits: BodyLimits | None = None,
        pages_max: int = PAGES_MAX,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._base_url, loopback = check_base_url(base_url)
        self._policy = policy or RetryPolicy()
        self._limits = limits or BodyLimits()
        self._pages_max = pages_max
        self._api_key = check_api_key(api_key, loopback=loopback)
        self._owns_http = http is None
        # A proxy from the environment must not sit between us and a processor on this machine.
        self._http = http or httpx.AsyncClient(
            timeout=self._policy.request_timeout_s, trust_env=not loopback, follow_redirects=False
        )

    def __repr__(self) -> str:
        return f"ProcessorClient({self._base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections, unless the `httpx.AsyncClient` was injected."""
        if self._owns_http:
            await self._http.aclose()

    async def get(self, path: str, params: Params | None = None) -> dict[str, object]:
        """The JSON object at `path`; retried, as a GET has no effect. Raises a `ProcessorError`."""
        return await self._ask(_Request(method="GET", path=path, params=params), decode_object)

    async def post(self, path: str, body: bytes | Mapping[str, object], *, idempotency_key: str) -> dict[str, object]:
        """Posts a JSON body and gives the JSON answer; retried with the very same bytes under the same key.

        A mapping is encoded once; a float in it is a `TypeError`. Raises `ProcessorRejected` when the processor
        refused for certain, `OutcomeUnknown` when the effect may or may not exist, `ProcessorUnavailable` when it
        certainly does not.
        """
        return await self._ask(_post(path, body, idempotency_key), decode_object)

    async def create_settlement(self, body: bytes, *, idempotency_key: str) -> tuple[str, str]:
        """Posts a settlement's bytes; `(id, status)` as the processor answered. Errors as in `post`."""
        return await self._ask(_post("/v1/settlements", body, idempotency_key), decode_created)

    async def rates(self, *, base: str, day: date) -> Rates:
        """The rate table that the processor published for that day; a rate that is malformed is refused when needed."""
        request = _Request(method="GET", path="/v1/fx/rates", params={"base": base, "date": day.isoformat()})
        return await self._ask(request, decode_rates)

    async def balance_transactions(
        self, account: str, *, window: Window | None = None, page_size: int = PAGE_SIZE_MAX
    ) -> AsyncGenerator[BalanceTransaction, None]:
        """Every balance transaction of the account (of the window), in the processor's order, page by page."""
        async with aclosing(self.pages(account, window=window, page_size=page_size)) as pages:
            async for page in pages:
                for row in page.rows:
                    yield row

    async def pages(
        self, account: str, *, window: Window | None = None, page_size: int = PAGE_SIZE_MAX
    ) -> AsyncGenerator[Page, None]:
        """The same, as whole pages with their bytes. The order of rows is the processor's affair.

        Raises `ProtocolError` rather than loop or end early: rows promised but none sent, a cursor that came before,
        more pages than the limit, a page that does not decode.
        """
        params: dict[str, str | int] = {"account": account, "limit": page_size}
        if window is not None:
            params |= {"created[gte]": window.start_unix_s, "created[lt]": window.end_unix_s}
        cursors: set[str] = set()
        for number in range(1, self._pages_max + 1):
            request = _Request(method="GET", path="/v1/balance_transactions", params=params)
            page = await self._ask(request, lambda body, number=number: decode_page(body, number))  # type: ignore[misc]
            yield page
            if not page.has_more:
                return
            if not page.rows:
                raise ProtocolError(f"page {number} has no rows, yet says that more follow")
            cursor = page.rows[-1].id
            if cursor in cursors:
                raise ProtocolError(f"page {number} ends at {cursor}, as an earlier page did: paging goes in circles")
            cursors.add(cursor)
            params = {**params, "starting_after": cursor}
        raise ProtocolError(f"more than {self._pages_max} pages")

    async def _ask(self, request: _Request, decode: Callable[[bytes], T]) -> T:
        """One request with its retries; the decoded answer, or one `ProcessorError` that says what is certain."""
        progress = _Progress(time.monotonic())

        def backoff(error: Exception) -> bool | float:
            if not isinstance(error, ProcessorError) or not error.retryable:
                return False
            return self._policy.wait(error.retry_after_s, elapsed_s=int(time.monotonic() - progress.started))

        try:
            async with asyncio.timeout(self._policy.deadline_s):
                async for attempt in stamina.retry_context(
                    on=backoff,
                    attempts=self._policy.attempts_max,
                    timeout=None,
                    wait_initial=self._policy.wait_first_ms / 1000,
                    wait_max=self._policy.wait_max_s,
                    wait_jitter=self._policy.wait_first_ms / 1000,
                ):
                    with attempt:
                        progress.attempt = attempt.num
                        return await self._attempt(request, progress, decode)
        except TimeoutError:
            detail = f"no answer within {self._policy.deadline_s} s in all"
            kind = OutcomeUnknown if progress.uncertain else ProcessorUnavailable
            raise kind(detail, exchange=_exchange(request, progress)) from None
        except ProcessorError as error:
            # A refusal that is not about the content (a key revoked meanwhile) says nothing of an earlier attempt.
            settled_it = isinstance(error, OutcomeUnknown) or error.status in (400, 422)
            if progress.uncertain and not settled_it:
                raise OutcomeUnknown(f"an earlier attempt may have succeeded; the last one: {error}") from error
            raise
        raise InvariantViolated("a request ended without an answer or an error")

    async def _attempt(self, request: _Request, progress: _Progress, decode: Callable[[bytes], T]) -> T:
        certain_before = not progress.uncertain
        progress.uncertain = request.method == "POST"
        try:
            answer = await self._send(request, progress)
            if error := error_of_answer(answer, redact=self._api_key):
                raise error
            return _decode(answer, decode)
        except ProcessorError as error:
            if certain_before and not isinstance(error, OutcomeUnknown):
                progress.uncertain = False
            raise

    async def _send(self, request: _Request, progress: _Progress) -> Answer:
        headers = {
            "Authorization": f"Bearer {self._api_key}",
            "Accept": "application/json",
            "Accept-Encoding": ACCEPT_ENCODING,
            "User-Agent": f"paykit-settle/{__version__}",
        }
        if request.idempotency_key is not None:
            headers |= {"Content-Type": "application/json", "Idempotency-Key": request.idempotency_key}
        try:
            async with self._http.stream(
                request.method,
                self._base_url + request.path,
                params=request.params,
                content=request.content,
                headers=headers,
            ) as response:
                answer = Answer(
                    exchange=_exchange(request, progress, response.headers.get("request-id")),
                    status=response.status_code,
                    retry_after=response.headers.get("retry-after"),
                    received_at=datetime.now(UTC),
                )
                encoding = response.headers.get("content-encoding", "")
                try:
                    answer.body = await read_body(response.aiter_raw(), encoding=encoding, limits=self._limits)
                except ValueError as error:
                    answer.fault = str(error)
                return answer
        except (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError) as error:
            raise error_of_transport(error, _exchange(request, progress)) from error


_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_OUR_FAULT = (
    httpx.LocalProtocolError,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
    httpx.CookieConflict,
    httpx.StreamError,
)


def error_of_transport(error: Exception, exchange: Exchange) -> SettleError:
    """What an httpx exception means here: could the request have had an effect, and can a retry help?

    A POST whose connection broke after it was made is `OutcomeUnknown`; everything else that the network does is
    `ProcessorUnavailable`. What only a bug of ours can cause is `InvariantViolated`.
    """
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, _OUR_FAULT):
        return InvariantViolated(f"a request that cannot be sent: {what} ({exchange})")
    if isinstance(error, httpx.TooManyRedirects | httpx.DecodingError):
        return unreadable(what, exchange)
    if exchange.method != "POST" or isinstance(error, _NEVER_SENT):
        return ProcessorUnavailable(f"the processor could not be reached: {what}", exchange=exchange)
    return OutcomeUnknown(f"the connection broke: {what}", exchange=exchange)


def _decode(answer: Answer, decode: Callable[[bytes], T]) -> T:
    try:
        if answer.fault:
            raise ValueError(answer.fault)
        return decode(answer.body)
    except ValueError as error:
        raise unreadable(str(error), answer.exchange, status=answer.status) from None


def _exchange(request: _Request, progress: _Progress, request_id: str | None = None) -> Exchange:
    elapsed_ms = int((time.monotonic() - progress.started) * 1000)
    return Exchange(
        method=request.method,
        path=request.path,
        request_id=request_id,
        attempt=progress.attempt,
        elapsed_ms=elapsed_ms,
    )


def _post(path: str, body: bytes | Mapping[str, object], idempotency_key: str) -> _Request:
    if len(idempotency_key) > IDEMPOTENCY_KEY_LENGTH_MAX or not is_header_safe(idempotency_key):
        raise InvalidRequest(f"idempotency key must be 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} printable ASCII characters")
    content = body if isinstance(body, bytes) else encode_body(body)
    return _Request(method="POST", path=path, content=content, idempotency_key=idempotency_key)
