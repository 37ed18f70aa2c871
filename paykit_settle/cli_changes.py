"""The command that lists what was done by whom: every transition of a run and every act of a person."""

from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from paykit_settle.cli_options import AsJson, ConfigFile, Database, read_settings
from paykit_settle.cli_runs import print_json, with_store
from paykit_settle.errors import InvalidRequest
from paykit_settle.store.changes import NUMBER_MAX, Change
from paykit_settle.store.changes import changes as read_changes
from paykit_settle.store.store import Store

PAGE = 500
"""Changes that are read at once."""


def register(app: App) -> None:
    """Adds the command to the command line."""
    app.command(changes)


def changes(
    *,
    account: str | None = None,
    limit: Annotated[int, Parameter(help="The newest so many; 0 lists all.")] = 100,
    database: Database = None,
    config: ConfigFile = None,
    json_lines: AsJson = False,
) -> int:
    """List what was done by whom, newest first: how runs went on, and what people decided."""
    if limit < 0:
        raise InvalidRequest("--limit must not be negative")
    settings = read_settings(config, database=database)

    async def work(store: Store) -> int:
        left, before, count = limit or NUMBER_MAX, NUMBER_MAX, 0
        while left and (
            page := await store.read(partial(read_changes, account=account or "", before=before, limit=min(PAGE, left)))
        ):
            for each in page:
                _print(each, as_json=json_lines)
            left, before, count = left - len(page), page[-1].number, count + len(page)
        if not count and not json_lines:
            print("no changes")
        return 0

    return with_store(settings, work)


def _print(each: Change, *, as_json: bool) -> None:
    at = datetime.fromtimestamp(each.at_ms // 1000, UTC)
    if as_json:
        said = asdict(each)
        del said["at_ms"]
        print_json({"number": each.number, "at": f"{at:%Y-%m-%dT%H:%M:%SZ}"} | said)
        return
    who = f"{each.principal or 'unknown'} ({each.channel})"
    print(f"{at:%Y-%m-%d %H:%M:%S} UTC  {each.account}  {each.subject}  {each.what}")
    print(f"    {who}: {each.detail}" if each.detail else f"    {who}")
