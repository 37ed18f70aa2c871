"""The fake processor on a real socket: a thin aiohttp shell around `Processor`.

It reads bytes, asks, waits where it is told to, and writes bytes. It must never decide anything about money.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import lru_cache
from types import TracebackType
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from fake_processor.clock import Clock
from fake_processor.control import PREFIX, control
from fake_processor.delivery import MS_PER_S, deliver, whole
from fake_processor.faults import Rule
from fake_processor.fixtures import load_fixtures
from fake_processor.oracle import right_settlement
from fake_processor.processor import Processor
from fake_processor.records import RequestRecord
from fake_processor.state import ProcessorState
from fake_processor.threads import ServerThread
from fake_processor.wire import Refusal, Request, invalid

BODY_BYTES_MAX = 1024 * 1024
SHUTDOWN_TIMEOUT_S = 1


class FakeProcessor:
    """A payment processor on a local socket, for the length of an `async with`, or of a `with` (in a thread).

    `state` is what it serves (the fixtures when None); `port` 0 takes a free one; `api_keys` are the keys it lets in
    (None: every key that starts with `sk_test_`). Inside the block `url` is its address and `requests` lists what was
    asked, oldest first. Entering raises OSError when the address cannot be bound.
    """

    def __init__(
        self,
        state: ProcessorState | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_keys: Collection[str] | None = None,
    ) -> None:
        self.processor = Processor(
            state=load_fixtures() if state is None else state,
            api_keys=None if api_keys is None else frozenset(api_keys),
        )
        self._host = host
        self._port = port
        self._runner: web.ServerRunner | None = None
        self._url: str | None = None
        self._thread: ServerThread | None = None

    @property
    def url(self) -> str:
        """`http://host:port`, without a slash at the end. RuntimeError when it is not running."""
        if self._url is None:
            raise RuntimeError("the fake processor is not running: use it in a `with` or an `async with`")
        return self._url

    @property
    def state(self) -> ProcessorState:
        """The transactions, rates, settlements and keys that it serves; a test may change them at any time."""
        return self.processor.state

    @property
    def clock(self) -> Clock:
        """The fake's own time: freeze, advance, run."""
        return self.processor.state.clock

    @property
    def requests(self) -> list[RequestRecord]:
        """What was asked, oldest first (the last 10,000 at least)."""
        return self.processor.requests

    def fault(
        self,
        name: str,
        *,
        route: str | None = None,
        after: int = 0,
        count: int | None = None,
        nth: int | None = None,
        per_mille: int = 1000,
        seed: int = 0,
        **options: int | str,
    ) -> Rule:
        """Misbehave from now on, as `GET /_fake/faults` lists it. ValueError for an unknown fault or option.

        On requests of `route` (`GET /v1/balance_transactions`, a path, `*`): the `nth`, or else those after the first
        `after`, at most `count` of them, each with a chance of `per_mille` by the `seed`.
        """
        return self.processor.faults.add(
            name, route=route, after=after, count=count, nth=nth, per_mille=per_mille, seed=seed, **options
        )

    def heal(self) -> None:
        """Behave again: every fault is taken back. What they have done stays done."""
        self.processor.faults.heal()

    def right_settlement(self, *, account: str, date: str, currency: str = "usd") -> dict[str, object]:
        """What a right client posts for that day, by the oracle."""
        return right_settlement(self.state, account=account, date=date, currency=currency)

    async def __aenter__(self) -> FakeProcessor:
        # A lasting answer may hold a connection for long; a test that ends must not wait for it.
        runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=SHUTDOWN_TIMEOUT_S)
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
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        runner, self._runner, self._url = self._runner, None, None
        if runner is not None:
            await runner.cleanup()

    def __enter__(self) -> FakeProcessor:
        self._thread = ServerThread(self)
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.stop()

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        body, refused = await _read_body(incoming) if incoming.can_read_body else (b"", None)
        path, _, query = incoming.raw_path.partition("?")
        request = Request(
            method=incoming.method,
            path=unquote(path),
            query=_pairs(query),
            headers=_joined(incoming.headers),
            body=body,
        )
        if request.path.startswith(PREFIX):
            return whole(control(self.processor, request))
        if refused is None and (reply := self.processor.at_once(request)) is not None:
            return await deliver(incoming, reply)
        with self.processor.exchange(request, refused=refused) as exchange:
            if exchange.wait_ms:
                await asyncio.sleep(exchange.wait_ms / MS_PER_S)
            reply = exchange.reply()
        return await deliver(incoming, reply)


async def _read_body(incoming: web.BaseRequest) -> tuple[bytes, Refusal | None]:
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


def _pairs(query: str) -> tuple[tuple[str, str], ...]:
    """The parameters of a query, in order, repeated ones too."""
    window, named, cursor = query.rpartition("&starting_after=")
    if named and cursor.isidentifier():  # such as txn_123: nothing that would have to be decoded or split
        return (*_window_pairs(window), ("starting_after", cursor))
    return _window_pairs(query)


# The pages of one window differ in their cursors alone, so the rest of their query is remembered.
@lru_cache(maxsize=256)
def _window_pairs(query: str) -> tuple[tuple[str, str], ...]:
    if "%" in query or "+" in query or ";" in query:
        return tuple(parse_qsl(query, keep_blank_values=True))
    return tuple((name, value) for name, _, value in (part.partition("=") for part in query.split("&") if part))


def _joined(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by lower-case name; one that is repeated has its values joined, as HTTP defines it."""
    joined = {name.lower(): value for name, value in headers.items()}
    if len(joined) == len(headers):
        return joined
    joined = {}
    for name, value in headers.items():
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined
