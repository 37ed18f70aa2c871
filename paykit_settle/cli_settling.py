"""What `paykit-settle run` does with its days: settles them in order, or shows what that would do and sends nothing.

The account's own zone says which day `yesterday` is, so the database is opened first. The command and its options are
in `cli.py`.
"""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
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
from paykit_settle.dry_run import Clock, look
from paykit_settle.errors import Interrupted, InvalidRequest, RunRefused, SettleError
from paykit_settle.pull_display import PullDisplay
from paykit_settle.rates import Rates
from paykit_settle.run_request import RunRequest, make_run_request
from paykit_settle.runner import Runner
from paykit_settle.store.accounts import account_of
from paykit_settle.store.copying import working_copy
from paykit_settle.store.store import Store
from paykit_settle.strict_json import loads
from paykit_settle.window import DEFAULT_ZONE, NoSuchDay, load_zone
from paykit_settle.wire import rates_table

EXIT_TERMINATED = 143
MIB = 1024 * 1024
LARGE_BYTES = 256 * MIB
"""A database of which a dry run says that it is being copied."""


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


def look_at_days(wanted: Wanted, asked: Asked, settings: Settings, output: Output) -> int:
    """Show what `run_days` would do, by doing it on a copy of the database that nothing is sent from."""
    wanted.requests(DEFAULT_ZONE)
    settings.check_client()
    if (size := _size(settings.database)) >= LARGE_BYTES:
        output.warn(f"the dry run works on a copy of the database: copying {size // MIB:,} MiB")
    with _ended_by_sigterm(), working_copy(settings.database, busy_timeout_ms=settings.busy_timeout_ms) as copy:
        said = () if copy.exists() else (f"there is no database {settings.database} yet: no day was ever run",)
        return asyncio.run(_look_at_days(wanted, asked, replace(settings, database=str(copy)), output, said))


async def _look_at_days(wanted: Wanted, asked: Asked, settings: Settings, output: Output, said: tuple[str, ...]) -> int:
    options, clock = settings.run_options(), Clock()
    async with settings.make_client() as client:
        gets = client.send_only_gets()
        # Whoever breaks it off waits for nothing: no money is on its way.
        async with settling(client, settings, wanted.rates, now=clock.now, patience_s=0) as (runner, store):

            async def show(request: RunRequest) -> None:
                looked = await look(runner, store, gets, request, asked, clock=clock, options=options)
                output.looked(looked, said)

            return await _in_order(wanted.requests(await _zone(store, wanted.account, settings)), show, output)


def _size(database: str) -> int:
    try:
        return Path(database).stat().st_size
    except OSError:  # what that means is said by who opens it
        return 0


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as an exception would: what was made for it is taken away."""

    def end(*_: object) -> None:
        raise SystemExit(EXIT_TERMINATED)

    if threading.current_thread() is not threading.main_thread():  # signals are its alone
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _zone(store: Store, account: str, settings: Settings) -> str:
    """The zone in which the account's days are asked for: the one that is set, else its own."""
    if settings.zone is not None:
        return settings.zone
    known = await store.read(partial(account_of, account=account))
    return known.zone if known is not None else DEFAULT_ZONE


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
    client: ProcessorClient,
    settings: Settings,
    rates: Rates | None = None,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    patience_s: int | None = None,
) -> AsyncIterator[tuple[Runner, Store]]:
    """A runner on the database of the settings, and that database; both are closed in order at the end.

    A run that is still in flight then is waited for, at most `patience_s`.
    """
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
                now=now,
            )
            try:
                yield runner, store
            finally:
                await runner.close(timeout_s=patience_s)
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
