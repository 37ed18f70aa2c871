"""The command that lists past runs: what needs a person first, and the days and hours that no run is about."""

from collections.abc import Sequence
from datetime import date as Date
from datetime import timedelta
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from paykit_settle.cli_options import AsJson, ConfigFile, Database, read_settings
from paykit_settle.cli_runs import print_json, read_day, with_store
from paykit_settle.lifecycle import State
from paykit_settle.store.accounts import SettledAccount, disagreements
from paykit_settle.store.edges import empty_days
from paykit_settle.store.history import list_runs, missing_days, runs_with_attention
from paykit_settle.store.runs import Run
from paykit_settle.store.store import Store

LISTED_MAX = 1_000


def register(app: App) -> None:
    """Adds the command to the command line."""
    app.command(settlements)


def settlements(
    *,
    account: str | None = None,
    from_: Annotated[str | None, Parameter(name="--from", help="The first day.")] = None,
    to: Annotated[str | None, Parameter(help="The last day.")] = None,
    database: Database = None,
    config: ConfigFile = None,
    json_lines: AsJson = False,
) -> int:
    """List settlements: what needs somebody first, then by day, and the days of the span that are missing."""
    settings = read_settings(config, database=database)
    first, last = read_day(from_, "--from"), read_day(to, "--to")

    async def work(store: Store) -> int:
        span = {"account": account or "", "first": from_ or "", "last": to or ""}
        runs, has_more = await store.read(lambda connection: list_runs(connection, **span, limit=LISTED_MAX))
        missing = await _missing(store, runs, account, first, last, cut=has_more)
        gaps = _gaps(runs)
        asking = await store.read(lambda connection: runs_with_attention(connection, **span))
        runs = _in_order(runs, asking)
        said = await store.read(lambda connection: disagreements(connection, account or ""))
        if json_lines:
            _print_json(runs, missing, gaps, said)
        else:
            _print(runs, missing, gaps, said, has_more=has_more)
        return 0

    return with_store(settings, work)


def _in_order(runs: Sequence[Run], asking: Sequence[Run]) -> list[Run]:
    """The runs with those at which somebody should look first, however old, then what is not posted, then by day."""
    listed = {run.number for run in runs}
    found = [*runs, *(run for run in asking if run.number not in listed)]
    return sorted(found, key=lambda run: (not run.attention, run.state is State.POSTED, run.date, run.account))


def _print_json(
    runs: Sequence[Run],
    missing: Sequence[tuple[str, Date]],
    gaps: Sequence[tuple[Run, int]],
    said: Sequence[SettledAccount],
) -> None:
    for run in runs:
        print_json(
            {
                "run_id": run.id,
                "settlement_id": run.settlement_id,
                "state": str(run.state),
                "account": run.account,
                "date": run.date.isoformat(),
                "error": run.error_code,
                "attention": run.attention,
            }
        )
    for owner, day in missing:
        print_json({"state": "missing", "account": owner, "date": day.isoformat()})
    for after, seconds in gaps:
        print_json({"state": "gap", "account": after.account, "date": after.date.isoformat(), "seconds": seconds})
    for each in said:
        print_json({"state": "disagreement", "account": each.account, "detail": each.disagreement_text})


def _print(
    runs: Sequence[Run],
    missing: Sequence[tuple[str, Date]],
    gaps: Sequence[tuple[Run, int]],
    said: Sequence[SettledAccount],
    *,
    has_more: bool,
) -> None:
    for run in runs:
        why = f"  {run.error_code}" if run.error_code else ""
        print(f"{run.date}  {run.state:<9} {run.id}  {run.settlement_id or '-':<12} {run.account}{why}")
        if run.attention:
            print(f"{'':<12}attention: {run.attention}")
    for owner, day in missing:
        print(f"{day}  missing   {'':<23} {owner}")
    for after, seconds in gaps:
        print(f"{after.date}  gap       its window begins {seconds} s after the day before ends: {after.account}")
    for each in said:
        print(f"note: {each.disagreement_text}")
    if has_more:
        print(f"only the newest {LISTED_MAX} are listed: narrow it with --from and --to")
    if not runs and not missing:
        print("no settlements")


async def _missing(
    store: Store,
    runs: Sequence[Run],
    account: str | None,
    first: Date | None,
    last: Date | None,
    *,
    cut: bool,
) -> list[tuple[str, Date]]:
    """The days without a run, of each account: of the span that was asked for, else between its first and its last.

    `cut`: older runs are not listed, so nothing is said of the days before those that are.
    """
    accounts = sorted({run.account for run in runs} | ({account} if account else set()))
    missing = []
    for owner in accounts:
        own = [run for run in runs if run.account == owner]
        days = [run.date for run in own]
        start = min(days, default=first) if cut or first is None else first
        end = max(days, default=last) if last is None else last
        if start is not None and end is not None:
            empty = await store.read(partial(empty_days, account=owner, first=start, last=end))
            missing += [(owner, day) for day in missing_days(own, start, end, empty=empty)]
    return missing


def _gaps(runs: Sequence[Run]) -> list[tuple[Run, int]]:
    """The days whose window begins later than that of the day before ends, as after a change of zone; in seconds."""
    by_day = {(run.account, run.date): run for run in runs}
    found = []
    for run in sorted(runs, key=lambda run: (run.account, run.date)):
        before = by_day.get((run.account, run.date - timedelta(days=1)))
        if before is not None and before.window_end_s < run.window_start_s:
            found.append((run, run.window_start_s - before.window_end_s))
    return found
