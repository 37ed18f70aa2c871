"""The command line: reads arguments, calls the story in `run.py`, prints, and turns an error into an exit code.

Exit codes: 0 done, 1 refused, 2 usage, 3 try again later, 4 the outcome is unknown (running it again is safe).
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from paykit_settle import cli_differences, cli_ledger, cli_listing, cli_runs, cli_upkeep
from paykit_settle.cli_options import AsJson, ConfigFile, Database, ProcessorUrl, Zone, read_settings
from paykit_settle.cli_output import Output
from paykit_settle.client import ProcessorClient
from paykit_settle.config import Settings
from paykit_settle.days import resolve_days
from paykit_settle.errors import InvalidRequest, SettleError
from paykit_settle.pull_display import PullDisplay
from paykit_settle.rates import Rates
from paykit_settle.run import build_settlement
from paykit_settle.run_request import RunRequest, make_run_request
from paykit_settle.runner import Runner
from paykit_settle.service import create_app, serve
from paykit_settle.store.store import remove_database
from paykit_settle.strict_json import loads
from paykit_settle.version import __version__
from paykit_settle.window import load_zone
from paykit_settle.wire import rates_table

EXIT_INTERRUPTED = 130

app = App(
    name="paykit-settle",
    help="Daily settlement of a payment processor's account: exact, complete, exactly once, explained.",
    version=__version__,
    result_action="return_value",
)

cli_listing.register(app)
cli_runs.register(app)
cli_upkeep.register(app)
cli_differences.register(app)
cli_ledger.register(app)

DEMO_DATABASE = "paykit-demo.db"


@app.command
def demo(*, json_lines: AsJson = False) -> int:
    """Settle the reference day against a fake processor on this machine; makes paykit-demo.db anew. Needs nothing."""
    # The one place that imports the fake: everywhere else the two know each other over the wire alone.
    from fake_processor import FakeProcessor

    output = Output(as_json=json_lines)

    async def settle_reference_day() -> None:
        async with FakeProcessor() as fake, ProcessorClient(fake.url) as client:
            output.say(f"A fake processor listens on {fake.url} while this demo runs.\n")
            wanted = make_run_request("acct_123", "2026-01-15", "usd")
            async with _runner(client, Settings(database=DEMO_DATABASE)) as runner:
                output.posted(await runner.run(wanted, requested_by="demo"))
        output.say(_DEMO_NEXT.rstrip())

    remove_database(Path(DEMO_DATABASE))
    asyncio.run(settle_reference_day())
    return 0


_DEMO_NEXT = """
What next:
  paykit-settle explain setl_0001 --database paykit-demo.db   why these numbers?
  paykit-settle verify setl_0001 --database paykit-demo.db    do they follow?
  python -m fake_processor               keep a fake processor running, and then
  paykit-settle run --account acct_123 --date 2026-01-15      settle a day
  paykit-settle serve                                         the same over HTTP
"""


@app.command
def run(
    *,
    account: Annotated[str, Parameter(help="The account at the processor.")],
    date: Annotated[str | None, Parameter(help="The day: YYYY-MM-DD, or `yesterday` in the account's zone.")] = None,
    from_: Annotated[str | None, Parameter(name="--from", help="The first of several days, settled in order.")] = None,
    to: Annotated[str | None, Parameter(help="The last of several days.")] = None,
    currency: Annotated[str, Parameter(help="The settlement currency.")] = "usd",
    processor_url: ProcessorUrl = None,
    zone: Zone = None,
    rates: Annotated[Path | None, Parameter(help="A JSON rate table to use instead of the processor's.")] = None,
    database: Database = None,
    config: ConfigFile = None,
    json_lines: AsJson = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Show the payload and post nothing.")] = False,
    retry_rejected: Annotated[bool, Parameter(negative="", help="Try a rejected day anew.")] = False,
    after_restore_checked: Annotated[
        bool, Parameter(negative="", help="Take late rows in although the processor cannot be asked who settled them.")
    ] = False,
) -> int:
    """Settle an account's day, or several days in order; the first day that fails ends the run."""
    output = Output(as_json=json_lines)
    settings = read_settings(config, processor_url=processor_url, zone=zone, database=database)
    days = resolve_days(date=date, first=from_, last=to, now=datetime.now(UTC), zone=load_zone(settings.zone))
    requests = [make_run_request(account, day, currency) for day in days]
    table = _read_rates(rates) if rates is not None else None
    if dry_run:
        return asyncio.run(_look_at_days(requests, settings, table, output))
    asked = {"retry_rejected": retry_rejected, "after_restore_checked": after_restore_checked}
    return asyncio.run(_run_days(requests, settings, table, output, asked))


async def _run_days(
    requests: Sequence[RunRequest],
    settings: Settings,
    rates: Rates | None,
    output: Output,
    asked: Mapping[str, bool],
) -> int:
    async with settings.make_client() as client, _runner(client, settings, rates) as runner:

        async def settle(wanted: RunRequest) -> None:
            output.posted(await runner.run(wanted, requested_by="cli", **asked))

        return await _in_order(requests, settle, output)


async def _look_at_days(requests: Sequence[RunRequest], settings: Settings, rates: Rates | None, output: Output) -> int:
    options = settings.run_options()
    async with settings.make_client() as client:

        async def look(wanted: RunRequest) -> None:
            settlement = await build_settlement(
                client,
                rates,
                wanted.account,
                wanted.date,
                wanted.settlement_currency,
                options=options,
                allow_open=True,
            )
            output.dry_run(settlement, options.scale)

        return await _in_order(requests, look, output)


async def _in_order(
    requests: Sequence[RunRequest], work: Callable[[RunRequest], Awaitable[None]], output: Output
) -> int:
    """Does one day after another; the exit code of the first that fails, which ends it."""
    for done, wanted in enumerate(requests):
        try:
            await work(wanted)
        except SettleError as error:
            output.error(error, day=wanted.date)
            if left := len(requests) - done - 1:
                output.warn(f"{left} later day(s) were not run")
            return error.exit_code
    return 0


@asynccontextmanager
async def _runner(client: ProcessorClient, settings: Settings, rates: Rates | None = None) -> AsyncIterator[Runner]:
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
                yield runner
            finally:
                await runner.close()
    finally:
        await asyncio.to_thread(store.close)


@app.command(name="serve")
def serve_command(
    *,
    host: Annotated[str, Parameter(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="The port to listen on; 0 takes a free one.")] = 8080,
    processor_url: ProcessorUrl = None,
    zone: Zone = None,
    database: Database = None,
    config: ConfigFile = None,
) -> int:
    """Serve settlements and the ledger over HTTP until SIGINT or SIGTERM."""
    settings = read_settings(config, processor_url=processor_url, zone=zone, database=database)

    def announce(url: str) -> None:
        print(f"paykit-settle listens on {url}, processor {settings.processor_url}", flush=True)

    settings.check_client()
    try:
        asyncio.run(serve(create_app(settings), host=host, port=port, on_ready=announce))
    except OSError as error:
        raise InvalidRequest(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return 0


def _read_rates(path: Path) -> Rates:
    try:
        return rates_table(loads(path.read_bytes()))
    except OSError as error:
        raise InvalidRequest(f"rates file {path} cannot be read: {error.strerror}") from None
    except (ValueError, SettleError) as error:
        raise InvalidRequest(f"rates file {path}: {error}") from None


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: ends the process with the exit code of what happened."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for stream in (sys.stdout, sys.stderr):
        # A currency sign that the terminal cannot show must not end a settlement half printed.
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # absent when replaced by a test
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(words or ["--help"], exit_on_error=False)
    except CycloptsError:
        code = InvalidRequest.exit_code  # cyclopts has printed what is wrong
    except SettleError as error:
        Output(as_json="--json" in words).error(error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)
