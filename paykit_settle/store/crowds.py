"""Units of work that travel together: from an event loop or a thread to the writer, and their outcomes back."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import InvalidStateError
from dataclasses import dataclass, field
from typing import Any

import apsw

from paykit_settle.journal import Journal

Unit = Callable[[apsw.Connection], Any] | Journal
"""A function that writes through the connection, or a journal to post."""


@dataclass(slots=True)
class Crowd:
    """Units that arrived together, in order, and the future of each: of coroutines of one event loop, or a thread's."""

    loop: asyncio.AbstractEventLoop | None
    units: list[Unit] = field(default_factory=list)
    futures: list[Any] = field(default_factory=list)

    def cut(self, count: int) -> "Crowd":
        """Keeps the first units; those after them are another crowd."""
        rest = Crowd(self.loop, self.units[count:], self.futures[count:])
        del self.units[count:], self.futures[count:]
        return rest


def tell(crowds: Sequence[Crowd], outcomes: Sequence[Any]) -> None:
    """Gives every unit its outcome, the result or the exception, waking the event loop of each crowd once."""
    told = 0
    for crowd in crowds:
        own = outcomes[told : told + len(crowd.futures)]
        told += len(own)
        if crowd.loop is None:
            # A thread may give its future up at any time.
            with contextlib.suppress(InvalidStateError):
                _resolve(crowd.futures, own)
            continue
        # A loop that has closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            crowd.loop.call_soon_threadsafe(_resolve, crowd.futures, own)


def _resolve(futures: Sequence[Any], outcomes: Sequence[Any]) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():  # cancelled: its caller went away, its work stands
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
