"""The product, as `run` and `serve` use it: its settings, client and store; and the pull alone, storing nothing."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from paykit_settle.accumulator import Accumulator
from paykit_settle.client import ProcessorClient
from paykit_settle.config import Settings
from paykit_settle.day_reader import DayReader
from paykit_settle.lifecycle import State
from paykit_settle.models import PostedSettlement
from paykit_settle.run_request import make_run_request
from paykit_settle.runner import Runner
from paykit_settle.store.runs import Run
from paykit_settle.store.store import Store
from paykit_settle.window import day_window, load_zone

T = TypeVar("T")
DAY = date(2026, 1, 15)
WINDOW = day_window(DAY, load_zone("Etc/UTC"))
NOW = datetime(2026, 1, 17, tzinfo=UTC)


class Forgetful:
    """A store that takes nothing in: the pull without its evidence."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, work: Callable[[Any], T]) -> T:
        return await self._store.read(work)

    async def write(self, _work: Callable[[Any], T]) -> None:
        return None


def settings(url: str, **more: object) -> Settings:
    return Settings(processor_url=url, **more)  # type: ignore[arg-type]  # the caller's own names


@asynccontextmanager
async def open_store() -> AsyncIterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "paykit.db")
        try:
            yield store
        finally:
            await asyncio.to_thread(store.close)


@asynccontextmanager
async def open_runner(chosen: Settings) -> AsyncIterator[Runner]:
    async with open_store() as store, chosen.make_client() as client:
        runner = Runner(client, store, options=chosen.run_options(), now=lambda: NOW)
        try:
            yield runner
        finally:
            await runner.close()


async def settle(runner: Runner, account: str = "acct_1") -> PostedSettlement:
    return await runner.run(make_run_request(account, DAY, "usd"), requested_by="benchmark")


def settle_day(chosen: Settings) -> dict[str, int]:
    """A whole run, from claim to booking, with every page stored. The net of each currency."""

    async def work() -> dict[str, int]:
        async with open_runner(chosen) as runner:
            return {line.currency: line.net for line in (await settle(runner)).settlement.lines}

    return asyncio.run(work())


def pull_only(chosen: Settings, *, plain: bool = False) -> dict[str, int]:
    """The pull and the roll-up alone. `plain`: through httpx, as `ProcessorClient(url)` does it."""

    async def work() -> dict[str, int]:
        client = ProcessorClient(chosen.processor_url) if plain else chosen.make_client()
        async with open_store() as store, client:
            day = _run()
            reader = DayReader(
                client,
                cast(Store, Forgetful(store)),
                day,
                day,
                options=chosen.run_options(),
                at_step=lambda _step: None,
            )
            day_read = await reader.read(lambda: Accumulator(window=WINDOW))
            return {line.currency: line.net for line in day_read.sink.finish(lambda: ()).lines}

    return asyncio.run(work())


def _run() -> Run:
    return Run(
        number=1,
        account="acct_1",
        date=DAY,
        tenant="acct_1",
        state=State.PULLING,
        settlement_currency="usd",
        zone="Etc/UTC",
        window_start_s=WINDOW.start_unix_s,
        window_end_s=WINDOW.end_unix_s,
        attempt=1,
        pull=1,
        pull_started_at_ms=0,
        owner=None,
        requested_by="benchmark",
        settlement_id=None,
        error_code=None,
        error_detail=None,
        created_at_ms=0,
        changed_at_ms=0,
    )
