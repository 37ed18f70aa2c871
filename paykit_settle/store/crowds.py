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
    """Units that arrived together, in order, each with its future: of coroutines of one event loop, or a thread's.

    Unit and future are one member, so that no interruption leaves a unit with the outcome of another.
    """

    loop: asyncio.AbstractEventLoop | None
    members: list[tuple[Unit, Any]] = field(default_factory=list)

    def cut(self, count: int) -> "Crowd":
        """Keeps the first members; those after them are another crowd."""
        rest = Crowd(self.loop, self.members[count:])
        del self.members[count:]
        return rest


def tell(crowds: Sequence[Crowd], outcomes: Sequence[Any]) -> None:
    """Gives every unit its outcome, the result or the exception, waking the event loop of each crowd once."""
    told = 0
    for crowd in crowds:
        own = outcomes[told : told + len(crowd.members)]
        told += len(own)
        if crowd.loop is None:
            # A thread may give its future up at any time.
            with contextlib.suppress(InvalidStateError):
                _resolve(crowd.members, own)
            continue
        # A loop that has closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            crowd.loop.call_soon_threadsafe(_resolve, crowd.members, own)


def _resolve(members: Sequence[tuple[Unit, Any]], outcomes: Sequence[Any]) -> None:
    for (_, future), outcome in zip(members, outcomes, strict=True):
        if future.done():  # cancelled: its caller went away, its work stands
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
