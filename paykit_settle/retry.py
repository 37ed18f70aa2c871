"""When to ask the processor again, and how long to wait first. Pure: the clock is an argument.

Bounded in count, in each wait and in total; the processor's own Retry-After is honoured within those bounds. A run that
stays unfinished is taken up again by itself, less and less often, but for ever: it is money that somebody waits for.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED_STATUSES = frozenset({408, 425, 429})
"""Statuses below 500 that a later attempt can change; 5xx are retried too, every other one never."""

IN_FLIGHT_CODES = frozenset({"idempotency_key_in_use", "lock_timeout"})
"""Codes of a 409 that mean "your earlier request is still running": retried with the same key."""

BACK_OFF_FIRST_S = 60
"""How long an unfinished run waits after its first try; each further wait is twice as long."""
BACK_OFF_MAX_S = 15 * 60
"""The longest of these waits."""
PAUSE_MIN_S = 1
"""The least time between two tries, whatever is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The bounds of one request and its retries, in attempts, seconds and milliseconds."""

    attempts_max: int = 5
    wait_first_ms: int = 200
    wait_max_s: int = 5
    retry_after_max_s: int = 30
    request_timeout_s: float = 20
    deadline_s: float = 60

    def wait(self, retry_after_s: int | None, *, elapsed_s: float) -> bool | int:
        """The seconds to wait for the next attempt; True: the usual back-off; False: do not try again.

        The processor's wish is capped. A wait that would outlast the deadline is not begun: it could only delay the
        answer "try later".
        """
        if not retry_after_s:
            return True
        wait = min(retry_after_s, self.retry_after_max_s)
        return wait if elapsed_s + wait < self.deadline_s else False


def back_off_s(tries: int) -> int:
    """How long an unfinished run waits after so many tries: 60 s after the first, doubling up to 15 minutes."""
    doublings = min(max(0, tries - 1), BACK_OFF_MAX_S.bit_length())
    return min(BACK_OFF_FIRST_S << doublings, BACK_OFF_MAX_S)


def next_try_ms(now_ms: int, tries: int, *, known_ms: int | None) -> int:
    """When a run is due again: at the time that is known to be the right one, else after the back-off of its tries."""
    return now_ms + back_off_s(tries) * 1000 if known_ms is None else max(known_ms, now_ms + PAUSE_MIN_S * 1000)


def parse_retry_after(value: str | None, now: datetime) -> int | None:
    """Whole seconds to wait by a Retry-After header, in either form of RFC 9110 section 10.2.3.

    A date is rounded up, a past one is 0; anything that is neither form is None, never an exception.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdecimal():
        return int(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        wait = moment - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(0, wait.days * 86_400 + wait.seconds + (1 if wait.microseconds else 0))
