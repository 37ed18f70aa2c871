"""The commands by which a person sets things right: what is owed, and old pages. Who and why are kept."""

from datetime import UTC, datetime
from datetime import date as Date
from functools import partial
from itertools import groupby
from typing import Annotated

from cyclopts import App, Parameter

from paykit_settle.cli_options import AsJson, ConfigFile, Database, read_settings
from paykit_settle.cli_runs import print_json, read_day, with_store
from paykit_settle.errors import InvalidRequest
from paykit_settle.money import EXPONENTS, format_amount
from paykit_settle.person import Person, this_user
from paykit_settle.run_request import check_decision
from paykit_settle.store.history import OutstandingRow, outstanding_rows
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.store.upkeep import prune as prune_pages
from paykit_settle.store.write_offs import WrittenOff, find_row, written_off_rows
from paykit_settle.store.write_offs import write_off as write_off_row

By = Annotated[str | None, Parameter(help="Who decides: a remark beside the name of this machine's user.")]


def register(app: App) -> None:
    """Adds the commands to the command line."""
    for command in (outstanding, prune):
        app.command(command)


def outstanding(
    *,
    account: str | None = None,
    as_of: Annotated[str | None, Parameter(help="As it stood at the end of that day.")] = None,
    write_off: Annotated[str | None, Parameter(help="Take this row of a posted day out, for good.")] = None,
    day: Annotated[str | None, Parameter(help="The day whose row is written off; the newest that has it.")] = None,
    reason: Annotated[str | None, Parameter(help="Why it is written off.")] = None,
    by: By = None,
    written_off: Annotated[bool, Parameter(negative="", help="List what was written off instead.")] = False,
    database: Database = None,
    config: ConfigFile = None,
    json_lines: AsJson = False,
) -> int:
    """List the rows that are owed, by currency and age: pending when their day was settled, and not settled since."""
    settings = read_settings(config, database=database)
    until, of_day = read_day(as_of, "--as-of") or datetime.now(UTC).date(), read_day(day, "--day")
    if write_off is None and (day, reason, by) != (None, None, None):
        raise InvalidRequest("--day, --reason and --by go with --write-off")

    async def work(store: Store) -> int:
        if write_off is not None:
            if account is None or reason is None:
                raise InvalidRequest("--write-off needs --account and --reason")
            await _write_off(store, account, write_off, of_day, reason=reason, by=decider(by))
        if written_off:
            gone = await store.read(lambda connection: written_off_rows(connection, account=account or ""))
            _print_written_off(gone, as_json=json_lines)
            return 0
        rows = await store.read(lambda connection: outstanding_rows(connection, account=account or "", as_of=until))
        if json_lines:
            for row in rows:
                print_json(_row_json(row, until))
        else:
            _print_rows(rows, until)
        return 0

    return with_store(settings, work)


async def _write_off(
    store: Store, account: str, transaction_id: str, day: Date | None, *, reason: str, by: Person
) -> None:
    check_decision(by=by.name, reason=reason)  # before the pages are searched
    found = await store.read(partial(find_row, account=account, transaction_id=transaction_id, day=day))
    await store.write(
        partial(
            write_off_row,
            account=account,
            transaction_id=transaction_id,
            found=found,
            day=day,
            reason=reason,
            by=by,
            now_ms=clock_ms(),
        )
    )


def decider(by: str | None) -> Person:
    """Return who decides: the user of this machine, with what they call themselves."""
    if by is not None:
        check_decision(by=by)
    return Person(principal=this_user(), remark=by)


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
            lambda connection: prune_pages(
                connection,
                today=today,
                older_than_days=older_than,
                look_back_days=settings.look_back_days,
                look_back_listings=settings.look_back_listings,
            )
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


def _print_written_off(rows: list[WrittenOff], *, as_json: bool) -> None:
    for row in rows:
        at = datetime.fromtimestamp(row.written_off_ms // 1000, UTC)
        seen = None if row.available_run is None else f"run_{row.available_run:06d}"
        if as_json:
            print_json(
                {
                    "account": row.account,
                    "id": row.transaction_id,
                    "period": row.period.isoformat(),
                    "type": row.type,
                    "currency": row.currency,
                    "amount": row.amount,
                    "fee": row.fee,
                    "net": row.amount - row.fee,
                    "written_off_at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
                    "written_off_by": row.written_off_by,
                    "reason": row.reason,
                    "available_in_run": seen,
                    "available_on": row.available_date.isoformat() if row.available_date else None,
                }
            )
            continue
        net = row.amount - row.fee
        # A row that was wrong may have been so for its currency.
        amount = format_amount(net, row.currency) if row.currency in EXPONENTS else f"{net} {row.currency}"
        print(f"{row.period}  {row.transaction_id:<20} {row.type:<12} {amount:>13}  {row.account}")
        print(f"    {at:%Y-%m-%d %H:%M} UTC, {row.written_off_by}: {row.reason}")
        if seen is not None:
            print(f"    became available after all: {seen} of {row.available_date} saw it")
    if not rows and not as_json:
        print("nothing was written off")
