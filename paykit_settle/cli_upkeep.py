"""The commands by which a person sets things right: what is owed, an unknown run, old pages. Who and why are kept."""

import getpass
from datetime import UTC, datetime
from datetime import date as Date
from functools import partial
from itertools import groupby
from typing import Annotated

from cyclopts import App, Parameter

from paykit_settle.cli_options import AsJson, ConfigFile, Database, read_settings
from paykit_settle.cli_runs import Identity, print_json, read_day, with_store
from paykit_settle.errors import InvalidRequest
from paykit_settle.money import format_amount
from paykit_settle.store.history import OutstandingRow, find_run, outstanding_rows
from paykit_settle.store.owner import is_alive
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.store.upkeep import prune as prune_pages
from paykit_settle.store.upkeep import resolve as resolve_run
from paykit_settle.store.upkeep import write_off as write_off_row

By = Annotated[str | None, Parameter(help="Who decides; the user's name by default.")]


def register(app: App) -> None:
    """Adds the commands to the command line."""
    for command in (outstanding, resolve, prune):
        app.command(command)


def outstanding(
    *,
    account: str | None = None,
    as_of: Annotated[str | None, Parameter(help="As it stood at the end of that day.")] = None,
    write_off: Annotated[str | None, Parameter(help="Take this row of the account out of the list, for good.")] = None,
    reason: Annotated[str | None, Parameter(help="Why it is written off.")] = None,
    by: By = None,
    database: Database = None,
    config: ConfigFile = None,
    json_lines: AsJson = False,
) -> int:
    """List the rows that are owed, by currency and age: pending when their day was settled, and not settled since."""
    settings = read_settings(config, database=database)
    day = read_day(as_of, "--as-of") or datetime.now(UTC).date()

    async def work(store: Store) -> int:
        if write_off is not None:
            if account is None or not reason:
                raise InvalidRequest("--write-off needs --account and --reason")
            who, why = by or getpass.getuser(), reason
            await store.write(
                lambda connection: write_off_row(connection, account, write_off, reason=why, by=who, now_ms=clock_ms())
            )
        rows = await store.read(lambda connection: outstanding_rows(connection, account=account or "", as_of=day))
        if json_lines:
            for row in rows:
                print_json(_row_json(row, day))
        else:
            _print_rows(rows, day)
        return 0

    return with_store(settings, work)


def resolve(
    identity: Identity,
    /,
    *,
    posted: Annotated[str | None, Parameter(help="The processor has it, as this settlement.")] = None,
    absent: Annotated[bool, Parameter(negative="", help="The processor does not have it.")] = False,
    reason: Annotated[str, Parameter(help="Why: how this was found out.")],
    by: By = None,
    database: Database = None,
    config: ConfigFile = None,
) -> int:
    """End a run whose outcome is unknown, as a person found it out; an absent one can then be run again."""
    if (posted is None) == (not absent):
        raise InvalidRequest("give either --posted SETL_ID or --absent")
    settings = read_settings(config, database=database)

    async def work(store: Store) -> int:
        who = by or getpass.getuser()
        run = await store.write(
            lambda connection: resolve_run(
                connection,
                find_run(connection, identity),
                settlement_id=posted,
                reason=reason,
                decided_by=who,
                now_ms=clock_ms(),
                is_alive=partial(is_alive, store.path),
            )
        )
        print(f"{run.id} is {run.state} now" + (f" as {run.settlement_id}" if posted else ": run it again to post it"))
        return 0

    return with_store(settings, work)


def prune(
    *,
    older_than: Annotated[int, Parameter(name="--older-than", help="Days; more than the look-back.")],
    database: Database = None,
    config: ConfigFile = None,
) -> int:
    """Drop the bytes of old pages; their ids and digests stay, and days that still owe a row keep all."""
    settings = read_settings(config, database=database)
    if older_than <= settings.look_back_days:
        raise InvalidRequest(f"--older-than must be more than the look-back of {settings.look_back_days} days")

    async def work(store: Store) -> int:
        today, total = datetime.now(UTC).date(), 0
        while count := await store.write(
            lambda connection: prune_pages(connection, today=today, older_than_days=older_than)
        ):
            total += count
        print(f"{total} page{'s' * (total != 1)} pruned")
        return 0

    return with_store(settings, work)


def _print_rows(rows: list[OutstandingRow], day: Date) -> None:
    for currency, of_currency in groupby(rows, key=lambda row: row.currency):
        owed = list(of_currency)
        total = sum(row.amount - row.fee for row in owed)
        print(f"{currency}  {len(owed)} row{'s' * (len(owed) != 1)}, net {total} ({format_amount(total, currency)})")
        for row in owed:
            age = (day - row.period).days
            print(f"  {row.period}  {age:>4} d  {row.transaction_id:<20} {row.type:<12} "
                  f"{format_amount(row.amount - row.fee, currency):>13}  {row.account}")  # fmt: skip
    if not rows:
        print("nothing is outstanding")


def _row_json(row: OutstandingRow, day: Date) -> dict[str, object]:
    return {
        "account": row.account,
        "id": row.transaction_id,
        "period": row.period.isoformat(),
        "age_days": (day - row.period).days,
        "type": row.type,
        "currency": row.currency,
        "amount": row.amount,
        "fee": row.fee,
        "net": row.amount - row.fee,
    }
