"""The fake's own time: it runs with the machine's, stands still, or jumps, as a test wishes.

Whole nanoseconds, never a float. Everything that ages (idempotency keys, token buckets, new rows) asks
this clock and no other, so a test can let a day pass without waiting.
"""

from __future__ import annotations

import datetime as dt
import time

NS_PER_S = 1_000_000_000


class Clock:
    """Runs with the machine's time until it is frozen or moved."""

    def __init__(self) -> None:
        self._offset_ns = 0
        self._frozen_ns: int | None = None

    @property
    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        return time.time_ns() + self._offset_ns if self._frozen_ns is None else self._frozen_ns

    @property
    def now_s(self) -> int:
        """Unix time in whole seconds."""
        return self.now_ns // NS_PER_S

    @property
    def machine_s(self) -> int:
        """The machine's own unix second, whatever this clock says."""
        return time.time_ns() // NS_PER_S

    @property
    def frozen(self) -> bool:
        return self._frozen_ns is not None

    def freeze(self, unix_s: int | None = None) -> None:
        """Stand still at that second, or at the present moment."""
        self._frozen_ns = self.now_ns if unix_s is None else unix_s * NS_PER_S

    def advance(self, seconds: int) -> None:
        """Jump ahead, frozen or not. ValueError for a step back: keys that came to life again would prove nothing."""
        if seconds < 0:
            raise ValueError("the clock goes forward only")
        if self._frozen_ns is None:
            self._offset_ns += seconds * NS_PER_S
        else:
            self._frozen_ns += seconds * NS_PER_S

    def run(self) -> None:
        """Go on from where it stands, at the machine's pace."""
        if self._frozen_ns is not None:
            self._offset_ns = self._frozen_ns - time.time_ns()
            self._frozen_ns = None

    def text(self) -> str:
        """The present second as ISO text in UTC."""
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=self.now_s)
        return moment.isoformat().replace("+00:00", "Z")


def unix_s(text: str) -> int:
    """The unix second of an ISO text that names its zone. ValueError otherwise."""
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text} names no zone; write it with a Z")
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(seconds=1)
