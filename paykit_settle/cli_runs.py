"""The commands that look at one past run: show, explain, verify, journal.

Each opens the database, does one thing and prints it. Settling itself is in `cli.py`, the list of runs in
`cli_listing.py`, finishing what a crash left in `cli_resuming.py`, setting right in `cli_upkeep.py`.
"""

import asyncio
import csv
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import date as Date
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import App, Parameter

from paykit_settle.checking import proof_text, verify_run
from paykit_settle.cli_options import AsJson, ConfigFile, Database, ProcessorUrl, read_settings
from paykit_settle.cli_output import Output
from paykit_settle.config import Settings
from paykit_settle.errors import InvalidRequest
from paykit_settle.explain import explanation, explanation_text
from paykit_settle.money import format_amount
from paykit_settle.run_shown import run_json
from paykit_settle.store.database import refuse_half_restored
from paykit_settle.store.history import (
    History,
    find_run,
    read_history,
)
from paykit_settle.store.store import Store
from paykit_settle.store.waiting import utc_text
from paykit_settle.terminal import settlement_table
from paykit_settle.window import parse_date

T = TypeVar("T")

Identity = Annotated[str, Parameter(help="A run's id (run_000001) or a settlement's (setl_0001).")]


def register(app: App) -> None:
    """Adds the commands to the command line."""
    for command in (show, explain, verify, journal):
        app.command(command)


def show(
    identity: Identity, /, *, database: Database = None, config: ConfigFile = None, json_lines: AsJson = False
) -> int:
    """Show one settlement, with totals per category."""
    return _tell(identity, database, config, json_lines, shape=run_json, text=_show)


def explain(
    identity: Identity, /, *, database: Database = None, config: ConfigFile = None, json_lines: AsJson = False
) -> int:
    """Walk a settlement down: lines, rate, fraction and rounding, rows by kind, pages, attempts, journal."""

    def text(history: History, _output: Output) -> None:
        print(explanation_text(history))

    return _tell(identity, database, config, json_lines, shape=explanation, text=text)


def verify(
    identity: Identity,
    /,
    *,
    remote: Annotated[bool, Parameter(negative="", help="Also ask the processor for its copy.")] = False,
    processor_url: ProcessorUrl = None,
    database: Database = None,
    config: ConfigFile = None,
    json_lines: AsJson = False,
) -> int:
    """Recompute a settlement from its evidence and compare lines, bytes, key, digests and journal."""
    settings = read_settings(config, processor_url=processor_url, database=database)

    async def work(store: Store) -> int:
        history = await _history(store, identity, with_late_rows=False)
        if remote:
            async with settings.make_client() as client:
                found = await verify_run(store, history, remote=client)
        else:
            found = await verify_run(store, history)
        proof = proof_text(history.attempt)
        if json_lines:
            said = {"run_id": history.run.id, "verified": not found, "differences": found}
            print_json(said if proof is None else said | {"taken": proof})
        elif found:
            print(f"{history.run.id} differs from its evidence:", *found, sep="\n  ")
        elif proof is not None:
            copies = ", and the processor's copy says the same" if remote else ""
            print(f"{history.run.id}: {proof}; bytes, digests and journal agree{copies}")
        else:
            copies = ", and so does the processor's copy" if remote else ""
            print(f"{history.run.id} follows from its evidence: lines, bytes, key, digests and journal agree{copies}")
        return 1 if found else 0

    return with_store(settings, work)


def journal(
    identity: Identity,
    /,
    *,
    as_csv: Annotated[bool, Parameter(name="--csv", negative="", help="As CSV, for an accounting system.")] = False,
    database: Database = None,
    config: ConfigFile = None,
) -> int:
    """Print the ledger entries of a settlement."""
    settings = read_settings(config, database=database)

    async def work(store: Store) -> int:
        history = await _history(store, identity)
        columns = ("date", "settlement_id", "account", "currency", "amount_minor", "balance_before", "balance_after")
        rows = [
            (
                history.run.date.isoformat(),
                history.run.settlement_id,
                entry.account,
                entry.currency.upper(),
                entry.amount,
                entry.balance_before,
                entry.balance_after,
            )
            for entry in history.entries
        ]
        if as_csv:
            csv.writer(sys.stdout, lineterminator="\n").writerows([columns, *rows])
        else:
            for row in rows:
                print(f"{row[2]:<22} {row[4]:>18} {row[3]}")
        return 0

    return with_store(settings, work)


def _show(history: History, output: Output) -> None:
    run, attempt = history.run, history.attempt
    print(f"{run.id}  {run.state}  {run.settlement_id or 'no settlement yet'}")
    if run.error_code:
        print(f"{run.error_code}: {run.error_detail}")
    if run.needs_person:
        print("waits for a person")
    elif run.retry_at_ms is not None:
        print(f"tried again by itself from {utc_text(run.retry_at_ms)} on")
    if run.attention:
        print(f"attention: {run.attention}")
    if attempt is None:
        return
    output.show(settlement_table(attempt.settlement))
    for group in attempt.settlement.roll_up.settled:
        category = group.reporting_category
        kind = group.type if category in (None, group.type) else f"{group.type}/{category}"
        print(f"{kind:<32} {group.count:>6} rows   net {format_amount(group.net, group.currency)}")


def _tell(
    identity: str,
    database: str | None,
    config: Path | None,
    json_lines: bool,
    *,
    shape: Callable[[History], object],
    text: Callable[[History, Output], None],
) -> int:
    async def work(store: Store) -> int:
        history = await _history(store, identity)
        if json_lines:
            print_json(shape(history))
        else:
            text(history, Output(as_json=False))
        return 0

    return with_store(read_settings(config, database=database), work)


async def _history(store: Store, identity: str, *, with_late_rows: bool = True) -> History:
    return await store.read(
        lambda connection: read_history(connection, find_run(connection, identity), with_late_rows=with_late_rows)
    )


def with_store(settings: Settings, work: Callable[[Store], Awaitable[T]]) -> T:
    """Opens the database for one command; it must exist, unlike for `run` and `serve`, which make it."""
    refuse_half_restored(settings.database)
    if not Path(settings.database).exists():
        raise InvalidRequest(f"there is no database {settings.database}: name it with --database")
    store = settings.open_store()
    try:
        return asyncio.run(_awaited(work(store)))
    finally:
        store.close()


async def _awaited(result: Awaitable[T]) -> T:
    return await result


def read_day(text: str | None, option: str) -> Date | None:
    """The date of an option, None where it was not given."""
    if text is None:
        return None
    try:
        return parse_date(text)
    except ValueError as error:
        raise InvalidRequest(f"{option} {error}") from None


def print_json(value: object) -> None:
    """One JSON value on a line of standard output."""
    print(json.dumps(value, allow_nan=False))
