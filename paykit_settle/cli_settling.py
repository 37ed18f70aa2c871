"""What `paykit-settle run` does with its days: settles them in order, or looks at them and posts nothing.

The account's own zone says which day `yesterday` is, so the database is opened first. The command and its options are
in `cli.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from paykit_settle.claiming import Asked
from paykit_settle.cli_output import Output
from paykit_settle.cli_signals import minding_signals
from paykit_settle.client import ProcessorClient
from paykit_settle.config import Settings
from paykit_settle.days import resolve_days
from paykit_settle.errors import Interrupted, InvalidRequest, RunRefused, SettleError
from paykit_settle.pull_display import PullDisplay
from paykit_settle.rates import Rates
from paykit_settle.run import build_settlement
from paykit_settle.run_request import RunRequest, make_run_request
from paykit_settle.runner import Runner
from paykit_settle.store.accounts import account_of
from paykit_settle.store.edges import planned_window
from paykit_settle.store.store import Store
from paykit_settle.strict_json import loads
from paykit_settle.window import DEFAULT_ZONE, NoSuchDay, Window, load_zone
from paykit_settle.wire import rates_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was typed: an account, one day or a first and a last one, a currency, and a rate table if one was given."""

    account: str
    date: str | None
    first: str | None
    last: str | None
    currency: str
    rates: Rates | None

    def requests(self, zone: str) -> list[RunRequest]:
        """Return a request for each day, in order; `yesterday` is the zone's. `InvalidRequest` for what is none."""
        days = resolve_days(
            date=self.date, first=self.first, last=self.last, now=datetime.now(UTC), zone=load_zone(zone)
        )
        return [make_run_request(self.account, day, self.currency) for day in days]


async def run_days(wanted: Wanted, asked: Asked, settings: Settings, output: Output) -> int:
    """Settle the days in order, and return the exit code."""
    wanted.requests(DEFAULT_ZONE)  # what is wrong with them is said before a database is made
    async with settings.make_client() as client, settling(client, settings, wanted.rates) as (runner, store):

        async def settle(request: RunRequest) -> None:
            output.posted(await runner.run_as(request, asked))

        with minding_signals(runner, output):
            requests = wanted.requests(await _zone(store, wanted.account, settings))
            return await _in_order(requests, settle, output, is_interrupted=lambda: runner.is_interrupted)


async def look_at_days(wanted: Wanted, settings: Settings, output: Output) -> int:
    """Show what would be settled, in the account's own windows where its database exists; posts nothing."""
    options = settings.run_options()
    wanted.requests(DEFAULT_ZONE)
    store = _existing_store(settings)
    try:
        zone = await _zone(store, wanted.account, settings)

        async def look(request: RunRequest) -> None:
            window = await _window(store, request, zone)
            settlement = await build_settlement(
                client,
                wanted.rates,
                request.account,
                request.date,
                request.settlement_currency,
                options=replace(options, zone=zone),
                allow_open=True,
                window=window,
            )
            output.dry_run(settlement, options.scale)

        async with settings.make_client() as client:
            return await _in_order(wanted.requests(zone), look, output)
    finally:
        if store is not None:
            await asyncio.to_thread(store.close)


def _existing_store(settings: Settings) -> Store | None:
    # Looking makes no database.
    return settings.open_store() if Path(settings.database).exists() else None


async def _zone(store: Store | None, account: str, settings: Settings) -> str:
    """The zone in which the account's days are asked for: the one that is set, else its own."""
    if settings.zone is not None or store is None:
        return settings.zone or DEFAULT_ZONE
    known = await store.read(partial(account_of, account=account))
    return known.zone if known is not None else DEFAULT_ZONE


async def _window(store: Store | None, request: RunRequest, zone: str) -> Window | None:
    if store is None:
        return None
    return await store.read(partial(planned_window, account=request.account, day=request.date, zone=zone))


async def _in_order(
    requests: Sequence[RunRequest],
    work: Callable[[RunRequest], Awaitable[None]],
    output: Output,
    *,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> int:
    """Does one day after another; the exit code of the first that fails, which ends it.

    A day of several that does not exist is passed over. An interruption ends it too, with its own code where further
    days were asked for.
    """
    for done, wanted in enumerate(requests):
        left = len(requests) - done - 1
        try:
            await work(wanted)
        except NoSuchDay as error:
            if len(requests) == 1:
                output.error(error, day=wanted.date)
                return error.exit_code
            output.passed_over(wanted.date, str(error))
        except SettleError as error:
            output.error(error, day=wanted.date)
            if left:
                output.warn(f"{left} later day(s) were not run")
            return Interrupted.exit_code if left and is_interrupted() else error.exit_code
        if left and is_interrupted():
            output.warn(f"{left} later day(s) were not run")
            return Interrupted.exit_code
    return 0


@asynccontextmanager
async def settling(
    client: ProcessorClient, settings: Settings, rates: Rates | None = None
) -> AsyncIterator[tuple[Runner, Store]]:
    """A runner on the database of the settings, and that database; both are closed in order at the end."""
    store = settings.open_store()
    try:
        with PullDisplay() as display:
            runner = Runner(
                client,
                store,
                options=settings.run_options(),
                rates=rates,
                tenants=settings.tenants,
                on_progress=display,
            )
            try:
                yield runner, store
            finally:
                await runner.close()
    finally:
        await asyncio.to_thread(store.close)


def read_rates(path: Path) -> Rates:
    """Return the rate table of a file, checked whole; `InvalidRequest` for one that could not be used for some line."""
    try:
        content = path.read_bytes()
        table = rates_table(loads(content), received=content)
        table.check()
    except OSError as error:
        raise InvalidRequest(f"rates file {path} cannot be read: {error.strerror}") from None
    except RunRefused as error:
        raise InvalidRequest(f"rates file {path}: {'; '.join(problem.detail for problem in error.problems)}") from None
    except (ValueError, SettleError) as error:
        raise InvalidRequest(f"rates file {path}: {error}") from None
    return table
