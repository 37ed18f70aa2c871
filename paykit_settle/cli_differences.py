"""The commands about what no longer is as it was settled: list and end differences, list past days again."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from paykit_settle.cli_options import AsJson, ConfigFile, Database, ProcessorUrl, Zone, read_settings
from paykit_settle.cli_runs import print_json, with_store
from paykit_settle.cli_upkeep import By, decider
from paykit_settle.days import resolve_days
from paykit_settle.difference_report import difference_json, difference_lines
from paykit_settle.errors import InvalidRequest
from paykit_settle.recheck import recheck_and_register
from paykit_settle.recheck_report import recheck_json, recheck_lines
from paykit_settle.store.decisions import dismiss_difference, list_differences, settle_difference
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.window import DEFAULT_ZONE, load_zone

PAGE = 1_000
"""Differences that are read at once; all are shown."""

Account = Annotated[str, Parameter(help="The account at the processor.")]


def register(app: App) -> None:
    """Adds the commands to the command line."""
    for command in (differences, recheck):
        app.command(command)


def differences(
    *,
    account: Account,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Also those that have ended.")] = False,
    settle: Annotated[str | None, Parameter(help="Settle this row as it is now, less what was settled of it.")] = None,
    dismiss: Annotated[str | None, Parameter(help="Let this row be, as long as it stays as it is now.")] = None,
    reason: Annotated[str | None, Parameter(help="Why; needed to dismiss one.")] = None,
    by: By = None,
    database: Database = None,
    config: ConfigFile = None,
    json_lines: AsJson = False,
) -> int:
    """List rows that changed, vanished or went wrong after their day was settled, and end them one by one."""
    settings = read_settings(config, database=database)
    if settle is not None and dismiss is not None:
        raise InvalidRequest("give either --settle or --dismiss")
    if settle is None and dismiss is None and (reason, by) != (None, None):
        raise InvalidRequest("--reason and --by go with --settle or --dismiss")
    if dismiss is not None and reason is None:
        raise InvalidRequest("--dismiss needs --reason")
    scale = settings.run_options().scale

    async def work(store: Store) -> int:
        at_ms = clock_ms()
        if settle is not None:
            row = partial(settle_difference, account=account, transaction_id=settle, scale=scale)
            await store.write(partial(row, by=decider(by), reason=reason, now_ms=at_ms))
        elif dismiss is not None and reason is not None:
            row = partial(dismiss_difference, account=account, transaction_id=dismiss)
            await store.write(partial(row, by=decider(by), reason=reason, now_ms=at_ms))
        page = partial(list_differences, account=account, with_ended=every, limit=PAGE)
        found, has_more = await store.read(page)
        if not found and not json_lines:
            print("no differences" if every else "no open differences")
        while True:
            for difference in found:
                if json_lines:
                    print_json(difference_json(difference))
                else:
                    print(*difference_lines(difference, scale), sep="\n")
            if not has_more:
                return 0
            found, has_more = await store.read(partial(page, after=found[-1].id))

    return with_store(settings, work)


def recheck(
    *,
    account: Account,
    from_: Annotated[str, Parameter(name="--from", help="The first day.")],
    to: Annotated[str, Parameter(help="The last day.")],
    processor_url: ProcessorUrl = None,
    zone: Zone = None,
    database: Database = None,
    config: ConfigFile = None,
    json_lines: AsJson = False,
) -> int:
    """List settled days again and report what is not as it was settled; settles nothing. Exit code 1: look at it."""
    settings = read_settings(config, processor_url=processor_url, zone=zone, database=database)
    days = resolve_days(
        date=None, first=from_, last=to, now=datetime.now(UTC), zone=load_zone(settings.zone or DEFAULT_ZONE)
    )
    options = settings.run_options()

    async def work(store: Store) -> int:
        async with settings.make_client() as client:
            found = await recheck_and_register(client, store, account, days[0], days[-1], options, now_ms=clock_ms())
        for day in found:
            if json_lines:
                print_json(recheck_json(account, day))
            else:
                print(*recheck_lines(day), sep="\n")
        return int(any(day.has_something_to_see for day in found))

    return with_store(settings, work)
