"""A fake processor in a thread of its own whose reference day has two rows that cannot be settled."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fake_processor import FakeProcessor, load_fixtures


@contextmanager
def broken_processor() -> Iterator[str]:
    """Its URL, for as long as the block lasts."""
    state = load_fixtures()
    state.update_transaction("acct_123", "txn_01", status="failed")
    state.update_transaction("acct_123", "txn_04", currency="xqq")
    ready, loop, stop, urls = threading.Event(), asyncio.new_event_loop(), asyncio.Event(), []

    async def serve() -> None:
        async with FakeProcessor(state) as fake:
            urls.append(fake.url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait(timeout=30)
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=30)
        loop.close()
