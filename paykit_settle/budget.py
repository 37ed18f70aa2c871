"""The request budget of one processor: so many requests per second, so many in flight, fair between accounts.

All runs of a process share it. When the processor says "later" (Retry-After), nobody asks before that. Integers only:
time is the monotonic clock in nanoseconds.
"""

import asyncio
import time
from collections import deque

NS_PER_S = 1_000_000_000


class RequestBudget:
    """Use it as `try_enter() or await enter(account)` … `leave()`. `per_second` 0 is no bound on the rate.

    At most a tenth of a second's requests go out at one moment, so that the processor's own bound is not overrun. Who
    waits is served account by account in turn, whatever each has waiting.
    """

    def __init__(self, *, per_second: int = 0, in_flight_max: int = 64) -> None:
        self._cost_ns = NS_PER_S // per_second if per_second else 0
        self._burst_ns = self._cost_ns * max(1, per_second // 10)
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._paid_until_ns = 0
        self._held_until_ns = 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def try_enter(self) -> bool:
        """Whether a request may go out now; if so it has entered, and needs its `leave`."""
        if self._waiting or self._wait_ns() != 0:
            return False
        self._spend()
        return True

    async def enter(self, account: str) -> None:
        """Returns when a request of the account may go out; each `enter` needs its `leave`."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(account, deque()).append(turn)
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # its turn had come just then: the next one may have it
            raise

    def leave(self) -> None:
        """A request that had entered is answered, or has failed."""
        self._in_flight -= 1
        if self._waiting:
            self._serve()

    def hold(self, seconds: int) -> None:
        """Nobody enters for so long: the processor has asked for it."""
        self._held_until_ns = max(self._held_until_ns, time.monotonic_ns() + seconds * NS_PER_S)

    def _serve(self) -> None:
        while self._waiting:
            wait_ns = self._wait_ns()
            if wait_ns is None:
                return  # whoever leaves next serves on
            if wait_ns:
                self._serve_in(wait_ns)
                return
            account, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            # To the end of the line, if it has more waiting: the other accounts come first.
            del self._waiting[account]
            if turns:
                self._waiting[account] = turns
            if not turn.done():
                self._spend()
                turn.set_result(None)

    def _wait_ns(self) -> int | None:
        """How long until the next request may go out; None: until one that is in flight ends."""
        if self._in_flight >= self._in_flight_max:
            return None
        now = time.monotonic_ns()
        return max(0, self._held_until_ns - now, self._paid_until_ns - self._burst_ns + self._cost_ns - now)

    def _spend(self) -> None:
        self._in_flight += 1
        if self._cost_ns:
            self._paid_until_ns = max(self._paid_until_ns, time.monotonic_ns()) + self._cost_ns

    def _serve_in(self, wait_ns: int) -> None:
        if self._timer is None or self._timer.cancelled():
            self._timer = asyncio.get_running_loop().call_later(wait_ns / NS_PER_S, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._serve()
