"""Processes that die at a drawn moment: what they had not committed by then is lost, and their claims stand."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import apsw

from paykit_settle.errors import StoreUnavailable
from paykit_settle.lifecycle import Step
from paykit_settle.store.store import Store

T = TypeVar("T")


class Crash(BaseException):
    """The process dies here."""


@dataclass
class Death:
    """When a process dies: after so many pages, or as it sends so many requests; if hard, commits nothing more."""

    pages: int = 10**9
    requests: int = 10**9
    is_hard: bool = False
    is_dead: bool = False

    def at_step(self, step: Step) -> None:
        self.pages -= step is Step.PAGE_STORED
        self._die_if(self.pages == 0)

    def at_request(self) -> None:
        self.requests -= 1
        self._die_if(self.requests == 0)

    def _die_if(self, is_time: bool) -> None:
        if is_time:
            self.is_dead = True
            raise Crash


@dataclass
class Mortal:
    """A store whose process may die: what waits for its commit then does not get there."""

    store: Store
    death: Death

    async def read(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self.store.read(work)

    def write(self, work: Callable[[apsw.Connection], T]) -> Awaitable[T]:
        if self.death.is_dead and self.death.is_hard:
            raise StoreUnavailable("the process is dead")
        return self.store.write(work)

    @property
    def path(self) -> Path:
        return self.store.path
