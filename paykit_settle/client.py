"""The HTTP client of the payment processor: the only module that knows its requests.

One `ProcessorClient` lives as long as the process. Every request has a deadline, bounded retries and a bounded body,
and ends as an answer that was read whole or as one `ProcessorError`; no httpx exception leaves, and neither does the
API key.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, date, datetime
from typing import Self, TypeVar
from urllib.parse import quote

import httpx

from paykit_settle.answers import SUCCESSES, Answer, error_of_answer, error_of_failure, shown, unreadable
from paykit_settle.asking import ask
from paykit_settle.body_reader import ACCEPT_ENCODING, BodyLimits, unpacked
from paykit_settle.budget import RequestBudget
from paykit_settle.endpoint import ProcessorIdentity, check_api_key, check_base_url, identity_of
from paykit_settle.errors import ProcessorError
from paykit_settle.faults import Exchange
from paykit_settle.found_settlements import FoundSettlement, SettlementList
from paykit_settle.gets_only import GetsOnly
from paykit_settle.httpx_sender import HttpxSender, error_of_transport, open_http
from paykit_settle.models import BalanceTransaction
from paykit_settle.page_shape import AlikeRows
from paykit_settle.page_wire import Page, PageReader, decode_row
from paykit_settle.processor_request import (
    Params,
    ProcessorRequest,
    Progress,
    exchange_of,
    get_request,
    post_request,
)
from paykit_settle.rates import Rates
from paykit_settle.retry import RetryPolicy
from paykit_settle.sending import RawAnswer, Sender, Unreachable
from paykit_settle.version import __version__
from paykit_settle.window import Window
from paykit_settle.wire import (
    decode_created,
    decode_object,
    decode_rates,
)

PAGE_SIZE_MAX = 100
PAGES_MAX = 100_000
NO_SUCH_ROUTE = (404, 405, 410, 501)

T = TypeVar("T")


class ProcessorClient:
    """Asks one payment processor. Use it as `async with ProcessorClient(url, api_key=...) as client`.

    `api_key=None` is for a processor on this machine; any other needs its key, else `InvalidConfig`.
    `http` injects an `httpx.AsyncClient` (its transport, proxies and TLS); it then stays the caller's to close.
    `sender` takes the place of httpx altogether, and is closed with the client. `budget` bounds what goes out.
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
        sender: Sender | None = None,
        budget: RequestBudget | None = None,
    ) -> None:
        self._base_url, loopback = check_base_url(base_url)
        self._policy = policy or RetryPolicy()
        self._limits = limits or BodyLimits()
        self._pages_max = pages_max
        self._api_key = check_api_key(api_key, loopback=loopback)
        self.identity: ProcessorIdentity = identity_of(self._base_url, self._api_key)
        self._budget = budget
        self._headers = {
            "Authorization": f"Bearer {self._api_key}",
            "Accept": "application/json",
            "Accept-Encoding": ACCEPT_ENCODING,
            "User-Agent": f"paykit-settle/{__version__}",
        }
        # No proxy of the user's may sit between us and a processor on this machine.
        self._sender: Sender = sender or HttpxSender(
            http or open_http(self._base_url, self._policy, trust_env=not loopback), is_ours=http is None
        )

    def __repr__(self) -> str:
        return f"ProcessorClient({self._base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections, unless the `httpx.AsyncClient` was injected."""
        await self._sender.aclose()

    def send_only_gets(self) -> GetsOnly:
        """From here on nothing but GETs goes out. What would be posted is kept in what this returns, and is answered
        there as if it had been taken."""
        self._sender = gets = GetsOnly(self._sender)
        return gets

    async def get(self, path: str, params: Params | None = None) -> dict[str, object]:
        """The JSON object at `path`; retried, as a GET has no effect. Raises a `ProcessorError`."""
        return await self._ask(get_request(path, params), decode_object)

    async def post(self, path: str, body: bytes | Mapping[str, object], *, idempotency_key: str) -> dict[str, object]:
        """Posts a JSON body and gives the JSON answer; retried with the very same bytes under the same key.

        A mapping is encoded once; a float in it is a `TypeError`. Raises `ProcessorRejected` when the processor
        refused for certain, `OutcomeUnknown` when the effect may or may not exist, `ProcessorUnavailable` when it
        certainly does not.
        """
        return await self._ask(post_request(path, body, idempotency_key), decode_object)

    async def create_settlement(self, body: bytes, *, idempotency_key: str) -> tuple[str, str]:
        """Posts a settlement's bytes; `(id, status)` as the processor answered. Errors as in `post`."""
        return await self._ask(post_request("/v1/settlements", body, idempotency_key), decode_created)

    async def find_settlements(self, account: str, day: date) -> list[FoundSettlement] | None:
        """What the processor has for that account and day, of all pages; None when it has no such look-up."""
        params: dict[str, str | int] = {"account": account, "date": day.isoformat()}
        settlements = SettlementList(account, day)
        try:
            while (after := await self._ask(get_request("/v1/settlements", params), settlements.read)) is not None:
                params["starting_after"] = after
        except ProcessorError as error:
            if error.status in NO_SUCH_ROUTE and not settlements.page_count:
                return None
            raise
        return settlements.found

    async def transaction(self, account: str, identity: str) -> tuple[BalanceTransaction, bytes]:
        """Return one balance transaction by its id, with its bytes; `ProcessorRejected` with 404 where there is none.

        What comes back may be another row than was asked for: the caller compares.
        """
        path = f"/v1/balance_transactions/{quote(identity, safe='')}"

        def decode(body: bytes) -> tuple[BalanceTransaction, bytes]:
            return decode_row(body, account=account), body

        return await self._ask(get_request(path, {"account": account}), decode)

    async def rates(self, *, base: str, day: date) -> Rates:
        """The rate table that the processor published for that day; a rate that is malformed is refused when needed."""
        return await self._ask(get_request("/v1/fx/rates", {"base": base, "date": day.isoformat()}), decode_rates)

    async def balance_transactions(
        self, account: str, *, window: Window | None = None, page_size: int = PAGE_SIZE_MAX
    ) -> AsyncGenerator[BalanceTransaction, None]:
        """Every balance transaction of the account (of the window), in the processor's order, page by page."""
        async with aclosing(self.pages(account, window=window, page_size=page_size)) as pages:
            async for page in pages:
                for row in page.rows:
                    yield row

    async def pages(
        self,
        account: str,
        *,
        window: Window | None = None,
        page_size: int = PAGE_SIZE_MAX,
        after: str | None = None,
        pages_read: int = 0,
    ) -> AsyncGenerator[Page, None]:
        """The same, as whole pages with their bytes; `ProtocolError` rather than loop or end early (`PageReader`).

        `after` goes on behind that row, `pages_read` pages into the list.
        """
        reader = self.page_reader(pages_read=pages_read)
        span = None if window is None else (window.start_unix_s, window.end_unix_s)
        while True:
            page = await self.page(account, span=span, page_size=page_size, after=after, reader=reader)
            yield page
            if page.next_cursor is None:
                return
            after = page.next_cursor

    @property
    def pages_max(self) -> int:
        """The most pages of one run."""
        return self._pages_max

    def page_reader(self, *, pages_read: int = 0, alike: AlikeRows | None = None) -> PageReader:
        """A reader for the pages of one list."""
        return PageReader(pages_max=self._pages_max, pages_read=pages_read, alike=alike)

    async def page(
        self, account: str, *, span: tuple[int, int] | None, page_size: int, after: str | None, reader: PageReader
    ) -> Page:
        """One page of the rows created in `[start, end)` (unix seconds), behind the row `after`, by that reader."""
        params: dict[str, str | int] = {"account": account, "limit": page_size}
        if span is not None:
            params |= {"created[gte]": span[0], "created[lt]": span[1]}
        if after is not None:
            params["starting_after"] = after
        return await self._ask(get_request("/v1/balance_transactions", params), reader.read)

    async def _ask(self, request: ProcessorRequest, decode: Callable[[bytes], T]) -> T:
        """One request with its retries; the decoded answer, or one error that says what is certain."""

        async def attempt(progress: Progress) -> T:
            raw = await self._send(request, progress)
            if raw.status not in SUCCESSES:
                raise self._error_of(raw, request, progress)
            body = raw.body
            try:
                body = self._unpacked(raw)
                return decode(body)
            except ValueError as error:
                echo = self._api_key.encode() in body
                what = "it is malformed, and repeats the API key" if echo else self._shown(str(error))
                raise unreadable(what, self._exchange(raw, request, progress), status=raw.status) from None

        return await ask(request, attempt, policy=self._policy, budget=self._budget)

    async def _send(self, request: ProcessorRequest, progress: Progress) -> RawAnswer:
        headers = self._headers
        if request.idempotency_key is not None:
            headers = headers | {"Content-Type": "application/json", "Idempotency-Key": request.idempotency_key}
        url = f"{self._base_url}{request.path}?{request.query}" if request.query else self._base_url + request.path
        try:
            return await self._sender.send(
                request.method, url, headers, request.content, body_bytes_max=self._limits.wire_bytes_max
            )
        except (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError, ValueError) as error:
            # ValueError: httpx parses the Location of a redirect that it does not follow, and its parser raises any.
            # Without the cause: a traceback would print what the processor sent, an echoed key included.
            raise error_of_transport(error, exchange_of(request, progress), secret=self._api_key) from None
        except Unreachable as error:
            what = self._shown(str(error))
            raise error_of_failure(error.failure, what, exchange_of(request, progress)) from None

    def _unpacked(self, raw: RawAnswer) -> bytes:
        encoding = raw.headers.get("content-encoding", "")
        return unpacked(raw.body, is_cut=raw.is_cut, encoding=encoding, limits=self._limits)

    def _error_of(self, raw: RawAnswer, request: ProcessorRequest, progress: Progress) -> ProcessorError:
        try:
            body: bytes | None = self._unpacked(raw)
        except ValueError:
            body = None
        answer = Answer(
            exchange=self._exchange(raw, request, progress),
            status=raw.status,
            retry_after=raw.headers.get("retry-after"),
            received_at=datetime.now(UTC),
            replayed=raw.headers.get("idempotent-replayed") == "true",
            body=body,
        )
        return error_of_answer(answer, secret=self._api_key)

    def _exchange(self, raw: RawAnswer, request: ProcessorRequest, progress: Progress) -> Exchange:
        request_id = self._shown(raw.headers.get("request-id", ""))
        return exchange_of(request, progress, request_id=request_id or None)

    def _shown(self, text: str) -> str:
        return shown(text, secret=self._api_key)
