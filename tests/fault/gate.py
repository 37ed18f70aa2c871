"""A gate at the processor: it holds the first request of a kind for as long as a test looks, by no clock."""

import asyncio
import threading

from fake_processor import FakeProcessor
from fake_processor.wire import Request
from tests.fault.stage import scripted

GATE_TIMEOUT_S = 100
"""More than a program gets to end: a gate that is shut holds a run for as long as a test looks."""


class Gate:
    """Holds the processor at the first request of a kind, until it is opened; `reached` says that it came."""

    def __init__(self, fake: FakeProcessor, method: str, path: str) -> None:
        self.reached, self._opened = threading.Event(), threading.Event()
        self._kind = (method, path)
        scripted(fake).instead = self._hold

    def _hold(self, request: Request) -> None:
        if (request.method, request.path) == self._kind:
            self.reached.set()
            assert self._opened.wait(GATE_TIMEOUT_S)

    def open(self) -> None:
        self._opened.set()

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, GATE_TIMEOUT_S)
