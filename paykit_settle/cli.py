"""The command line: reads arguments, calls the story, prints, and turns an error into an exit code.

Exit codes: 0 done, 1 refused, 2 usage, 3 try again later, 4 the outcome is unknown (running it again is safe), 130
interrupted.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from paykit_settle import (
    cli_changes,
    cli_differences,
    cli_ledger,
    cli_listing,
    cli_resolve,
    cli_resuming,
    cli_runs,
    cli_upkeep,
)
from paykit_settle.claiming import Asked
from paykit_settle.cli_options import AsJson, ConfigFile, Database, ProcessorMoved, ProcessorUrl, Zone, read_settings
from paykit_settle.cli_output import Output
from paykit_settle.cli_settling import Wanted, look_at_days, read_rates, run_days, settling
from paykit_settle.client import ProcessorClient
from paykit_settle.config import Settings
from paykit_settle.errors import Interrupted, InvalidRequest, SettleError
from paykit_settle.run_request import make_run_request
from paykit_settle.service import create_app, serve
from paykit_settle.store.store import remove_database
from paykit_settle.version import __version__

app = App(
    name="paykit-settle",
    help="Daily settlement of a payment processor's account: exact, complete, exactly once, explained.",
    version=__version__,
    result_action="return_value",
)

cli_listing.register(app)
cli_changes.register(app)
cli_resuming.register(app)
cli_runs.register(app)
cli_upkeep.register(app)
cli_resolve.register(app)
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
            async with settling(client, Settings(database=DEMO_DATABASE)) as (runner, _):
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
    dry_run: Annotated[bool, Parameter(negative="", help="Show what would be done, and change nothing.")] = False,
    retry_rejected: Annotated[bool, Parameter(negative="", help="Try a rejected day anew.")] = False,
    after_restore_checked: Annotated[
        bool, Parameter(negative="", help="Take late rows in although the processor cannot be asked who settled them.")
    ] = False,
    zone_changed: Annotated[bool, Parameter(negative="", help="The account is settled in another zone now.")] = False,
    processor_moved: ProcessorMoved = False,
    new_terms: Annotated[
        bool, Parameter(negative="", help="Begin an unfrozen day anew with the settings of now.")
    ] = False,
) -> int:
    """Settle an account's day, or several days in order; the first day that fails ends the run."""
    output = Output(as_json=json_lines)
    settings = read_settings(config, processor_url=processor_url, zone=zone, database=database)
    wanted = Wanted(
        account=account,
        date=date,
        first=from_,
        last=to,
        currency=currency,
        rates=read_rates(rates) if rates is not None else None,
    )
    asked = Asked(
        by="cli",
        retry_rejected=retry_rejected,
        zone=zone,
        zone_changed=zone_changed,
        processor_moved=processor_moved,
        new_terms=new_terms,
        after_restore_checked=after_restore_checked,
    )
    if dry_run:
        return look_at_days(wanted, asked, settings, output)
    return asyncio.run(run_days(wanted, asked, settings, output))


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


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: ends the process with the exit code of what happened."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # That a request is tried again is no news: what comes of it is said.
    logging.getLogger("stamina").setLevel(logging.ERROR)
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
        code = Interrupted.exit_code
    sys.exit(code if isinstance(code, int) else 0)
