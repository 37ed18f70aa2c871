"""One request's way to the processor and back, whichever HTTP library does it: what the client needs of either.

Two exist: httpx's own client in `client.py`, and aiohttp's in `connections.py`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """An answer's head, and its body as it travels. Header names are looked up in any case."""

    status: int
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]


class Sender(Protocol):
    """Sends one request, once: follows no redirect, unpacks nothing, keeps no cookie. Every wait has a bound."""

    def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> AbstractAsyncContextManager[RawAnswer]: ...

    async def aclose(self) -> None: ...


class Failure(StrEnum):
    """What is certain after a request that had no usable answer."""

    NEVER_SENT = "never sent"
    BROKE = "broke"
    BAD_ANSWER = "bad answer"


class Unreachable(Exception):
    """A request without a usable answer: what happened, in the HTTP library's words, and what is certain."""

    def __init__(self, what: str, failure: Failure) -> None:
        super().__init__(what)
        self.failure = failure


def full_url(base_url: str, path: str, params: Mapping[str, str | int] | None) -> str:
    """The URL of a request, its parameters percent-encoded."""
    if not params:
        return base_url + path
    return f"{base_url}{path}?" + "&".join(f"{_quoted(name)}={_quoted(str(value))}" for name, value in params.items())


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return quote(text, safe="")
