"""Idempotency keys: what each was first used for and what was answered, for 24 hours of the fake's clock.

An answer is kept once execution began, also when it was a 500; a refused request leaves its key free. A key
in use by a request that is still being worked on is a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fake_processor.clock import Clock
from fake_processor.wire import Refusal, invalid

KEY_LENGTH_MAX = 255
KEY_AGE_MAX_S = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedAnswer:
    """What a key was first used for, as a fingerprint, and how that ended. A 500 has no answer."""

    content: str
    status: int
    answer: Mapping[str, object]
    expires_s: int


class IdempotencyKeys:
    """The keys that one processor remembers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._saved: dict[str, SavedAnswer] = {}
        self._in_flight: set[str] = set()

    def find(self, key: str, *, content: str) -> SavedAnswer | None:
        """What was answered to this key before; None for a new one, or one older than 24 hours.

        Refusal: 400 `idempotency_error` when it was first used for something else.
        """
        saved = self._saved.get(key)
        if saved is not None and saved.expires_s <= self._clock.now_s:
            del self._saved[key]
            saved = None
        if saved is not None and saved.content != content:
            raise _key_reused(key)
        return saved

    def save(self, key: str, *, content: str, status: int, answer: Mapping[str, object]) -> None:
        """Keep an answer for the key, from now for 24 hours."""
        expires_s = self._clock.now_s + KEY_AGE_MAX_S
        self._saved[key] = SavedAnswer(content=content, status=status, answer=dict(answer), expires_s=expires_s)

    def forget(self, key: str) -> None:
        """Let a key be as if it was never used."""
        self._saved.pop(key, None)

    def turn_into_failure(self, key: str) -> None:
        """Replace the kept answer by a 500: the effect is there, and nobody will be told so."""
        saved = self._saved[key]
        self._saved[key] = SavedAnswer(content=saved.content, status=500, answer={}, expires_s=saved.expires_s)

    @contextmanager
    def in_flight(self, key: str | None) -> Iterator[None]:
        """Holds a key while its request is worked on. Refusal (409) when another one holds it."""
        if key is None:
            yield
            return
        if key in self._in_flight:
            raise _key_in_use(key)
        self._in_flight.add(key)
        try:
            yield
        finally:
            self._in_flight.discard(key)


def read_key(headers: Mapping[str, str]) -> str | None:
    """The key of a request without the quotes that the HTTP draft asks for and Stripe leaves out; None without one.

    Refusal (400) for a key that is empty, longer than 255 characters or no printable ASCII.
    """
    if "idempotency-key" not in headers:
        return None
    key = headers["idempotency-key"].strip()
    if len(key) >= 2 and key.startswith('"') and key.endswith('"'):
        key = key[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if not key:
        raise invalid("An Idempotency-Key is not empty.", param="Idempotency-Key")
    if len(key) > KEY_LENGTH_MAX:
        raise invalid(f"An Idempotency-Key has at most {KEY_LENGTH_MAX} characters.", param="Idempotency-Key")
    if not (key.isascii() and key.isprintable()):
        raise invalid("An Idempotency-Key is printable ASCII.", param="Idempotency-Key")
    return key


def _key_in_use(key: str) -> Refusal:
    return Refusal(
        409,
        "There is currently another in-progress request using this Idempotent Key (that probably means you "
        f"submitted twice, and the other request is still going through): {key}. Please try again later.",
        code="idempotency_key_in_use",
        error_type="idempotency_error",
    )


def _key_reused(key: str) -> Refusal:
    return Refusal(
        400,
        "Keys for idempotent requests can only be used with the same parameters they were first used "
        f"with. Try using a key other than '{key}' if you meant to execute a different request.",
        code="idempotency_key_reused",
        error_type="idempotency_error",
    )
