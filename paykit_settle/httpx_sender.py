"""httpx as the way to the processor: its client as a `Sender`, and what each of its exceptions means here."""

import ssl
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from paykit_settle.answers import error_of_failure, shown
from paykit_settle.body_reader import read_bounded
from paykit_settle.errors import InvalidConfig, InvariantViolated, SettleError
from paykit_settle.faults import Exchange
from paykit_settle.retry import RetryPolicy
from paykit_settle.sending import Failure, RawAnswer

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
        return error_of_failure(Failure.BAD_ANSWER, what, exchange)
    return error_of_failure(Failure.NEVER_SENT if isinstance(error, _NEVER_SENT) else Failure.BROKE, what, exchange)


class HttpxSender:
    """httpx's client as a `Sender`: the default, which the mocks and tracing of the httpx world know."""

    def __init__(self, http: httpx.AsyncClient, *, is_ours: bool) -> None:
        self._http = http
        self._is_ours = is_ours

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, *, body_bytes_max: int
    ) -> RawAnswer:
        async with self._http.stream(
            method, url, content=content, headers=dict(headers), follow_redirects=False
        ) as response:
            body, is_cut = await read_bounded(response.aiter_raw(), body_bytes_max)
            return RawAnswer(response.status_code, response.headers, body, is_cut)

    async def aclose(self) -> None:
        if self._is_ours:
            await self._http.aclose()


def open_http(base_url: str, policy: RetryPolicy, *, trust_env: bool) -> httpx.AsyncClient:
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
