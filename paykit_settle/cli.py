"""The command line: reads arguments, calls the story in `run.py`, prints, and turns an error into an exit code.

Exit codes: 0 done, 1 refused, 2 usage, 3 try again later, 4 the outcome is unknown (running it again is safe).
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from paykit_settle.cli_ledger import add_ledger_commands
from paykit_settle.cli_output import Output
from paykit_settle.client import ProcessorClient
from paykit_settle.config import DEFAULT_DATABASE, Settings, load_settings
from paykit_settle.days import resolve_days
from paykit_settle.errors import InvalidRequest, SettleError
from paykit_settle.rates import Rates
from paykit_settle.run import build_settlement, post_settlement, run_settlement
from paykit_settle.run_request import RunRequest
from paykit_settle.service import create_app, serve
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

ProcessorUrl = Annotated[str | None, Parameter(help="The processor's address [env: PAYKIT_PROCESSOR_URL].")]
ConfigFile = Annotated[Path | None, Parameter(help="A TOML file of settings [env: PAYKIT_CONFIG].")]
Database = Annotated[str | None, Parameter(help="The ledger's file [env: PAYKIT_DATABASE], paykit.db if not named.")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON, one object a line.")]


@app.command
def demo(*, json_lines: Json = False) -> int:
    """Settle the reference day against a fake processor on this machine. Needs nothing, changes nothing."""
    # The one place that imports the fake: everywhere else the two know each other over the wire alone.
    from fake_processor import FakeProcessor

    output = Output(as_json=json_lines)

    async def settle_reference_day() -> None:
        async with FakeProcessor() as fake, ProcessorClient(fake.url) as client:
            output.say(f"A fake processor listens on {fake.url} while this demo runs.\n")
            posted = await run_settlement(client, None, "acct_123", "2026-01-15", "usd")
            output.posted(posted)
        output.say(_DEMO_NEXT.rstrip())

    asyncio.run(settle_reference_day())
    return 0


_DEMO_NEXT = """
What next:
  python -m fake_processor                keep a fake processor running, and then
  paykit-settle run --account acct_123 --date 2026-01-15             settle a day
  paykit-settle run --account acct_123 --date 2026-01-15 --dry-run   look only
  paykit-settle serve                     the HTTP service
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
    zone: Annotated[str | None, Parameter(help="The account's IANA time zone [env: PAYKIT_ZONE].")] = None,
    rates: Annotated[Path | None, Parameter(help="A JSON rate table to use instead of the processor's.")] = None,
    config: ConfigFile = None,
    json_lines: Json = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Show the payload and post nothing.")] = False,
) -> int:
    """Settle an account's day, or several days in order; the first day that fails ends the run."""
    output = Output(as_json=json_lines)
    settings = _settings(config, processor_url=processor_url, zone=zone)
    days = resolve_days(date=date, first=from_, last=to, now=datetime.now(UTC), zone=load_zone(settings.zone))
    requests = [RunRequest(account=account, date=day, settlement_currency=currency) for day in days]
    table = _read_rates(rates) if rates is not None else None
    return asyncio.run(_run_days(requests, settings, table, output=output, dry_run=dry_run))


async def _run_days(
    requests: Sequence[RunRequest], settings: Settings, rates: Rates | None, *, output: Output, dry_run: bool
) -> int:
    options = settings.run_options()
    async with settings.make_client() as client:
        for done, wanted in enumerate(requests):
            try:
                settlement = await build_settlement(
                    client,
                    rates,
                    wanted.account,
                    wanted.date,
                    wanted.settlement_currency,
                    options=options,
                    allow_open=dry_run,
                )
                if dry_run:
                    output.dry_run(settlement, options.scale)
                else:
                    output.posted(await post_settlement(client, settlement, scale=options.scale))
            except SettleError as error:
                output.error(error, day=wanted.date)
                if left := len(requests) - done - 1:
                    output.warn(f"{left} later day(s) were not run")
                return error.exit_code
    return 0


@app.command(name="serve")
def serve_command(
    *,
    host: Annotated[str, Parameter(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="The port to listen on; 0 takes a free one.")] = 8080,
    processor_url: ProcessorUrl = None,
    zone: Annotated[str | None, Parameter(help="The account's IANA time zone [env: PAYKIT_ZONE].")] = None,
    database: Database = None,
    config: ConfigFile = None,
) -> int:
    """Serve settlement runs and the ledger over HTTP until SIGINT or SIGTERM."""
    settings = _settings(config, processor_url=processor_url, zone=zone, database=database)
    settings = replace(settings, database=settings.database or DEFAULT_DATABASE)

    def announce(url: str) -> None:
        print(f"paykit-settle listens on {url}, processor {settings.processor_url}", flush=True)

    settings.check_client()
    try:
        asyncio.run(serve(create_app(settings), host=host, port=port, on_ready=announce))
    except OSError as error:
        raise InvalidRequest(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return 0


def _settings(config: Path | None, **overrides: str | None) -> Settings:
    if config is None and (named := os.environ.get("PAYKIT_CONFIG")):
        config = Path(named)
    return load_settings(os.environ, config_file=config, overrides=overrides)


def _read_rates(path: Path) -> Rates:
    try:
        return rates_table(loads(path.read_bytes()))
    except OSError as error:
        raise InvalidRequest(f"rates file {path} cannot be read: {error.strerror}") from None
    except (ValueError, SettleError) as error:
        raise InvalidRequest(f"rates file {path}: {error}") from None


add_ledger_commands(app, _settings)


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
