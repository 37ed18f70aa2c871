"""A rate limit: so many requests per second as a token bucket, and so many at once.

Tokens are counted in nanoseconds of the fake's clock, so a frozen clock refills nothing and an advanced one does at
once. Integers only.
"""

from __future__ import annotations

from fake_processor.clock import NS_PER_S
from fake_processor.wire import Refusal


class RateLimit:
    """`per_second` requests, `burst` of them at one moment (0: as many as per second), `in_flight` at once.

    A bound of 0 is none. `should_retry` tells Stripe's own SDK to try again.
    """

    def __init__(self, *, per_second: int, burst: int, in_flight: int, should_retry: int) -> None:
        self._per_second = per_second
        self._burst = burst or per_second
        self._in_flight_max = in_flight
        self._should_retry = bool(should_retry)
        self._in_flight = 0
        # A bucket is a debt: each request adds its share of a second, and time pays it off.
        self._debt_ns = 0
        self._paid_ns = 0

    def enter(self, now_ns: int) -> None:
        """Take a request in. Refusal (429) when it is over a bound; then nothing is used up."""
        self._pay(now_ns)
        if self._in_flight_max and self._in_flight >= self._in_flight_max:
            raise self._refusal("concurrency", retry_after_s=1)
        if self._per_second:
            cost = NS_PER_S // self._per_second
            if self._debt_ns + cost > self._burst * cost:
                wait_ns = self._debt_ns + cost - self._burst * cost
                raise self._refusal("rate", retry_after_s=-(-wait_ns // NS_PER_S))
            self._debt_ns += cost
        self._in_flight += 1

    def leave(self) -> None:
        """The request that was taken in is answered."""
        self._in_flight -= 1

    def headers(self, now_ns: int) -> dict[str, str]:
        """The RateLimit fields of the HTTP draft; none without a bound per second."""
        if not self._per_second:
            return {}
        self._pay(now_ns)
        cost = NS_PER_S // self._per_second
        left = max(0, (self._burst * cost - self._debt_ns) // cost)
        full_s = -(-self._debt_ns // NS_PER_S)
        window_s = max(1, -(-self._burst // self._per_second))
        return {
            "RateLimit-Policy": f'"default";q={self._burst};w={window_s}',
            "RateLimit": f'"default";r={left};t={full_s}',
        }

    def _pay(self, now_ns: int) -> None:
        self._debt_ns = max(0, self._debt_ns - max(0, now_ns - self._paid_ns))
        self._paid_ns = max(now_ns, self._paid_ns)

    def _refusal(self, reason: str, *, retry_after_s: int) -> Refusal:
        return too_many_requests(str(retry_after_s), reason=f"global-{reason}", should_retry=self._should_retry)


def too_many_requests(retry_after: str, *, reason: str = "global-rate", should_retry: bool = False) -> Refusal:
    """The 429 of this wire; `retry_after` are seconds or an HTTP date."""
    headers = {"Retry-After": retry_after, "Stripe-Rate-Limited-Reason": reason}
    if should_retry:
        headers["Stripe-Should-Retry"] = "true"
    message = "Request rate limit exceeded. Ask again later."
    return Refusal(429, message, code="rate_limit", headers=headers)
