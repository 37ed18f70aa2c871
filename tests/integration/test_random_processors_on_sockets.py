"""Some of the random processors of `tests/property/test_random_processors.py`, over real sockets.

Without it, what holds in memory could be lost on the wire: in cursors that are written into URLs, in answers that come
while their request is being discarded.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from paykit_settle.checking import verify_run
from paykit_settle.client import ProcessorClient
from paykit_settle.direct import DirectConnections
from paykit_settle.errors import RunRefused
from paykit_settle.models import PostedSettlement, Settlement
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import RunOptions, build_settlement
from paykit_settle.run_request import make_run_request
from paykit_settle.runner import Runner
from paykit_settle.store.history import list_runs, read_history
from paykit_settle.store.store import Store
from tests.random_processor import ACCOUNT, DAY, RandomProcessor

PATIENT = RetryPolicy(attempts_max=20, wait_first_ms=1)


@asynccontextmanager
async def served(processor: RandomProcessor) -> AsyncIterator[str]:
    """The processor on a socket; a connection that it breaks is closed without a byte."""

    async def answer(request: web.Request) -> web.Response:
        for _ in range(processor.delay(request.path_qs)):
            await asyncio.sleep(0)
        status, body = processor.answer(request.method, str(request.rel_url), await request.read())
        if not status and request.transport is not None:
            request.transport.close()
        return web.Response(status=status or 500, body=body, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        assert runner.addresses
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def total_of(work: Awaitable[PostedSettlement] | Awaitable[Settlement]) -> int | str:
    """The total, or why there is none."""
    try:
        return (await work).total_net
    except RunRefused as error:
        return str(error)


@pytest.mark.parametrize("seed", range(24))
async def test_settlement_equals_the_truth_or_the_run_was_refused_and_said_why(tmp_path: Path, seed: int) -> None:
    processor = RandomProcessor(seed)
    store = Store(tmp_path / "paykit.db")
    options = RunOptions(windows_max=processor.windows_max, page_size=processor.page_size)
    try:
        async with served(processor) as url:
            sender = DirectConnections(url, connections_max=64, timeout_s=10)
            async with ProcessorClient(url, policy=PATIENT, sender=sender) as client:
                runner = Runner(client, store, options=options)
                wanted = make_run_request(ACCOUNT, DAY, "usd")
                total = await total_of(runner.run(wanted, requested_by="test"))
                # Without a store the day is one list, and is judged by the same rules.
                looked_at = await total_of(build_settlement(client, None, ACCOUNT, DAY, options=options))
                await runner.close()
        for each in (total, looked_at):
            assert each == processor.truth or "outside the window" in str(each) or "does not filter" in str(each)
        if "sometimes" not in (processor.gte, processor.lt):
            assert (total == processor.truth) == (looked_at == processor.truth)
        runs, _ = await store.read(lambda connection: list_runs(connection, limit=10))
        if total == processor.truth:
            history = await store.read(lambda connection: read_history(connection, runs[0]))
            assert await verify_run(store, history) == []
        assert len(processor.settlements) == (total == processor.truth)
    finally:
        await asyncio.to_thread(store.close)
