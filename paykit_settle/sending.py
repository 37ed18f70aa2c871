"""One request's way to the processor and back, whichever HTTP library does it: what the client needs of either.

Two exist: httpx's own client in `client.py`, and the direct connections of `direct.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(slots=True)
class RawAnswer:
    """An answer as it travelled: its body is still packed. Headers are looked up by their name in lower case.

    `is_cut`: the body is over the limit that was given, and only its beginning is here.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False


class Sender(Protocol):
    """Sends one request, once: follows no redirect, unpacks nothing, keeps no cookie. Every wait has a bound."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, *, body_bytes_max: int
    ) -> RawAnswer: ...

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
