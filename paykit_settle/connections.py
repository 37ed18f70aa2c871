"""The fast way to a processor: aiohttp's client, whose HTTP parser is written in C.

What `run` and `serve` inject into `ProcessorClient`. It sends what it is given and reads answers raw; what they mean,
retries, bounds and the API key's secrecy are the client's. TLS, proxies from the environment, keep-alive and time-outs
are aiohttp's. No exception of its own leaves: a failure is an `Unreachable`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self

import aiohttp
from yarl import URL

from paykit_settle.sending import Failure, RawAnswer, Unreachable


class Connections:
    """Keeps at most `connections_max` connections, made when they are needed; `aclose` closes them.

    `timeout_s` bounds connecting, and each wait for bytes. `trust_env` takes proxies from the environment.
    """

    def __init__(self, *, connections_max: int, timeout_s: float, trust_env: bool) -> None:
        self._connections_max = connections_max
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeout_s, sock_read=timeout_s)
        self._trust_env = trust_env
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> AsyncIterator[RawAnswer]:
        """The answer's head at once, its body as it comes. Raises `Unreachable`, in the block too."""
        session = self._session or self._open()
        try:
            async with session.request(
                method, URL(url, encoded=True), headers=headers, data=content, allow_redirects=False
            ) as response:
                yield RawAnswer(status=response.status, headers=response.headers, body=response.content.iter_any())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise unreachable(error) from None

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=self._connections_max, keepalive_timeout=15)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            trust_env=self._trust_env,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        )
        # Not aiohttp's own second try of a GET: how often we ask is counted, and decided, in `asking.py`.
        self._session._retry_connection = False
        return self._session


_NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)


def unreachable(error: Exception) -> Unreachable:
    """What an exception of aiohttp's means: could the request have had an effect?"""
    text = str(error)
    what = type(error).__name__ + (f": {text}" if text else "")
    if isinstance(error, _NEVER_SENT):
        return Unreachable(what, Failure.NEVER_SENT)
    is_bad = isinstance(error, aiohttp.InvalidURL) or not isinstance(error, aiohttp.ClientError | OSError)
    return Unreachable(what, Failure.BAD_ANSWER if is_bad else Failure.BROKE)
