"""How a pull is coming along, on standard error: a line that changes on a terminal, else a plain line now and then.

A short pull shows nothing. The estimate goes by how much of the day's time is read, and is not made too early.
"""

import sys
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.status import Status

from paykit_settle.day_reader import PullProgress

NS_PER_S = 1_000_000_000
TERMINAL_EVERY_NS = NS_PER_S // 5
PLAIN_EVERY_NS = 10 * NS_PER_S


class PullDisplay:
    """Call it with each progress; use it as `with PullDisplay() as display`. `clock_ns` is the monotonic clock."""

    def __init__(self, *, console: Console | None = None, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._clock_ns = clock_ns
        self._every_ns = TERMINAL_EVERY_NS if self._console.is_terminal else PLAIN_EVERY_NS
        self._status: Status | None = None
        self._first: tuple[int, PullProgress] | None = None
        self._shown_ns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, progress: PullProgress) -> None:
        now = self._clock_ns()
        if self._first is None or progress.pages <= self._first[1].pages:
            self._end()  # another day begins
            self._first, self._shown_ns = (now, progress), now
        if now - self._shown_ns < self._every_ns:
            return
        self._shown_ns = now
        text = progress_text(progress, self._first[1], elapsed_ns=now - self._first[0])
        if not self._console.is_terminal:
            print(text, file=sys.stderr, flush=True)
        elif self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def _end(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def progress_text(now: PullProgress, first: PullProgress, *, elapsed_ns: int) -> str:
    """Rows, pages, windows, rows a second since `first`, and how long the rest may take."""
    text = f"reading: {now.rows:,} rows, {now.pages:,} pages, {now.windows} windows"
    text += f", {(now.rows - first.rows) * NS_PER_S // max(1, elapsed_ns):,} rows/s"
    read, left = now.seconds_read - first.seconds_read, now.seconds - now.seconds_read
    if read * 50 < now.seconds or elapsed_ns < NS_PER_S:
        return text + ", no estimate yet"
    return text + f", about {elapsed_ns * left // read // NS_PER_S} s left if the rest of the day is as busy"
