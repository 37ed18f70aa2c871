"""The HTTP client of the payment processor: the only module that knows httpx.

One `ProcessorClient` lives as long as the process. Every request has a deadline, bounded retries and a bounded body,
and ends as an answer that was read whole or as one `ProcessorError`; no httpx exception leaves, and neither does the
API key.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Self, TypeVar

import httpx
import stamina

from paykit_settle.answers import Answer, error_of_answer, shown, still_unknown, unreadable
from paykit_settle.body_reader import ACCEPT_ENCODING, BodyLimits, read_body
from paykit_settle.endpoint import check_api_key, check_base_url, check_params, check_path
from paykit_settle.errors import (
    Exchange,
    InvalidConfig,
    InvariantViolated,
    OutcomeUnknown,
    ProcessorError,
    ProcessorUnavailable,
    SettleError,
)
from paykit_settle.models import BalanceTransaction
from paykit_settle.rates import Rates
from paykit_settle.retry import RetryPolicy
from paykit_settle.version import __version__
from paykit_settle.window import Window
from paykit_settle.wire import (
    Page,
    PageReader,
    check_idempotency_key,
    decode_created,
    decode_object,
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
    last: SettleError | None = None


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
        # No proxy of the user's may sit between us and a processor on this machine.
        self._http = http or _open_http(self._base_url, self._policy, trust_env=not loopback)

    def __repr__(self) -> str:
        return f"ProcessorClient({self._base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections, unless the `httpx.AsyncClient` was injected."""
        if self._owns_http:
            await self._http.aclose()

    async def get(self, path: str, params: Params | None = None) -> dict[str, object]:
        """The JSON object at `path`; retried, as a GET has no effect. Raises a `ProcessorError`."""
        return await self._ask(_get(path, params), decode_object)

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
        return await self._ask(_get("/v1/fx/rates", {"base": base, "date": day.isoformat()}), decode_rates)

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
        """The same, as whole pages with their bytes; `ProtocolError` rather than loop or end early (`PageReader`)."""
        params: dict[str, str | int] = {"account": account, "limit": page_size}
        if window is not None:
            params |= {"created[gte]": window.start_unix_s, "created[lt]": window.end_unix_s}
        reader = PageReader(pages_max=self._pages_max)
        while True:
            page = await self._ask(_get("/v1/balance_transactions", params), reader.read)
            yield page
            if page.next_cursor is None:
                return
            params = {**params, "starting_after": page.next_cursor}

    async def _ask(self, request: _Request, decode: Callable[[bytes], T]) -> T:
        """One request with its retries; the decoded answer, or one error that says what is certain."""
        policy, progress = self._policy, _Progress(time.monotonic())

        def backoff(error: Exception) -> bool | float:
            if not isinstance(error, ProcessorError) or not error.retryable:
                return False
            return policy.wait(error.retry_after_s, elapsed_s=time.monotonic() - progress.started)

        retry = stamina.AsyncRetryingCaller(
            attempts=policy.attempts_max,
            timeout=None,
            wait_initial=policy.wait_first_ms / 1000,
            wait_max=policy.wait_max_s,
            wait_jitter=policy.wait_first_ms / 1000,
        )
        try:
            async with asyncio.timeout(policy.deadline_s):
                return await retry(backoff, self._attempt, request, progress, decode)
        except TimeoutError:
            detail = f"no answer within {policy.deadline_s} s in all; before: {progress.last or 'nothing'}"
            failure: SettleError = ProcessorUnavailable(detail, exchange=_exchange(request, progress))
        except SettleError as error:
            failure = error
        raise still_unknown(failure, _exchange(request, progress)) if progress.uncertain else failure

    async def _attempt(self, request: _Request, progress: _Progress, decode: Callable[[bytes], T]) -> T:
        certain_before = not progress.uncertain
        progress.attempt += 1
        progress.uncertain = request.method == "POST"
        try:
            answer = await self._send(request, progress)
            if error := error_of_answer(answer, secret=self._api_key):
                raise error
            return self._decode(answer, decode)
        except SettleError as error:
            progress.last = error
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
                follow_redirects=False,
            ) as response:
                request_id = shown(response.headers.get("request-id", ""), secret=self._api_key)
                answer = Answer(
                    exchange=_exchange(request, progress, request_id or None),
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
        except (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError, ValueError) as error:
            # ValueError: httpx parses the Location of a redirect that it does not follow, and its parser raises any.
            # Without the cause: a traceback would print what the processor sent, an echoed key included.
            raise error_of_transport(error, _exchange(request, progress), secret=self._api_key) from None

    def _decode(self, answer: Answer, decode: Callable[[bytes], T]) -> T:
        try:
            if answer.fault:
                raise ValueError(answer.fault)
            return decode(answer.body)
        except ValueError as error:
            echo = self._api_key.encode() in answer.body
            what = "it is malformed, and repeats the API key" if echo else shown(str(error), secret=self._api_key)
            raise unreadable(what, answer.exchange, status=answer.status) from None


_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_MISUSE = (httpx.LocalProtocolError, httpx.CookieConflict, httpx.StreamError)
_BAD_ANSWER = (httpx.TooManyRedirects, httpx.DecodingError, httpx.InvalidURL, ValueError)


def error_of_transport(error: Exception, exchange: Exchange, *, secret: str) -> SettleError:
    """What an httpx exception means here: could the request have had an effect, and can a retry help?

    A POST that broke after its connection was made is `OutcomeUnknown`; everything else that the network does is
    `ProcessorUnavailable`. What only a bug of ours can cause is `InvariantViolated`, unless a POST may have gone out.
    """
    what = type(error).__name__ + (f": {shown(str(error), secret=secret)}" if str(error) else "")
    is_post = exchange.method == "POST"
    if isinstance(error, httpx.UnsupportedProtocol) or (isinstance(error, _MISUSE) and not is_post):
        return InvariantViolated(f"a request that cannot be sent: {what} ({exchange})")
    if isinstance(error, _BAD_ANSWER):
        return unreadable(what, exchange)
    if isinstance(error, _NEVER_SENT) or not is_post:
        return ProcessorUnavailable(f"the processor could not be reached: {what}", exchange=exchange)
    return OutcomeUnknown(f"the connection broke: {what}", exchange=exchange)


def _open_http(base_url: str, policy: RetryPolicy, *, trust_env: bool) -> httpx.AsyncClient:
    # Cookies are neither read nor sent: a jar would grow with whatever the processor sets. Plain HTTP gets a TLS
    # context that trusts nobody: it is never used, and reading the certificates takes longer than a small settlement.
    cookies = CookieJar(DefaultCookiePolicy(netscape=False, rfc2965=False))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if base_url.startswith("http:") else True
    try:
        _ = httpx.URL(base_url).host  # the parser that requests go through, now rather than then
        return httpx.AsyncClient(verify=tls, timeout=policy.request_timeout_s, trust_env=trust_env, cookies=cookies)
    except (httpx.InvalidURL, ValueError, ImportError, OSError) as error:
        what = type(error).__name__  # not its text: a proxy's URL may hold a password
        raise InvalidConfig(f"processor URL, proxy or certificate settings cannot be used ({what})") from None


def _exchange(request: _Request, progress: _Progress, request_id: str | None = None) -> Exchange:
    return Exchange(
        method=request.method,
        path=request.path,
        request_id=request_id,
        attempt=progress.attempt,
        elapsed_ms=int((time.monotonic() - progress.started) * 1000),
    )


def _get(path: str, params: Params | None) -> _Request:
    return _Request(method="GET", path=check_path(path), params=check_params(params or {}))


def _post(path: str, body: bytes | Mapping[str, object], idempotency_key: str) -> _Request:
    content = body if isinstance(body, bytes) else encode_body(body)
    key = check_idempotency_key(idempotency_key)
    return _Request(method="POST", path=check_path(path), content=content, idempotency_key=key)
