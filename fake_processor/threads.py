"""Runs a server in a thread of its own, so that a client without an event loop can be tested against it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager


class ServerThread:
    """One thread with one event loop that holds a server open from `start` to `stop`."""

    def __init__(self, server: AbstractAsyncContextManager[object]) -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="fake processor", daemon=True)

    def start(self) -> None:
        """Returns once the server answers; raises what kept it from starting."""
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Returns once the server is closed."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self._server:
                self._started.set_result(None)
                await self._stop.wait()
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
