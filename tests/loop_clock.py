"""The event loop's clock, moved by hand: a time-out ends when a test says so, on a slow machine and on a fast one.

A time-out of a tenth of a second ends too early where the machine is slow: before the request has arrived that is not
to be answered. So these tests set time-outs of minutes, and have the minutes pass at the moment that they are about.
"""

import asyncio
from collections.abc import Callable

TURNS = 100
"""More turns of the loop than anybody needs who has been woken up, until he waits again."""
_sleep = asyncio.sleep  # the real one, also where a test puts another in its place


class _MovedClock:
    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.passed_s = 0.0

    def __call__(self) -> float:
        return self._time() + self.passed_s


def pass_time(seconds: float) -> None:
    """Puts the running loop's clock forward, for good: whatever was to happen by then is due at once."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop.time, _MovedClock):
        loop.time = _MovedClock(loop.time)  # type: ignore[method-assign]
    loop.time.passed_s += seconds


async def everybody_waits() -> None:
    """Returns when all others in this loop have come to where they wait: a client, for instance, for its answer."""
    for _ in range(TURNS):
        await _sleep(0)
