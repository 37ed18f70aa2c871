"""The part of a run that a person may stop: its reading, up to the freeze. What is frozen is finished.

Whoever stops it does so from outside of the run, which then ends as failed, with what it has read kept.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from paykit_settle.errors import Interrupted

T = TypeVar("T")

NOTHING_POSTED = "nothing was posted; run it again to go on"


class Interruption:
    """One for all runs of a process. `interrupt` is for good: nothing that may be stopped begins any more."""

    def __init__(self) -> None:
        self.is_set = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def interrupt(self) -> None:
        """Stop everything that may be stopped."""
        self.is_set = True
        for task in self._tasks:
            task.cancel()

    def check(self) -> None:
        """Raise `Interrupted` once everything is to stop."""
        if self.is_set:
            raise Interrupted(NOTHING_POSTED)

    async def stoppable(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; `Interrupted` when it was stopped, and everything it had begun has ended."""
        try:
            self.check()
        except Interrupted:
            work.close()
            raise
        task = asyncio.create_task(work)
        self._tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if self.is_set and not (this is not None and this.cancelling()):
                raise Interrupted(NOTHING_POSTED) from None
            raise
        finally:
            self._tasks.discard(task)
