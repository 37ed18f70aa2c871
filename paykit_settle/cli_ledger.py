"""Commands about the ledger's file: prove it, show its state, copy it while the service runs, put a copy back.

All but `db restore` open the file beside whoever uses it, read one committed state, and change nothing in it.
"""

import json
from pathlib import Path

import msgspec
from cyclopts import App

from paykit_settle.cli_options import AsJson, ConfigFile, Database, read_settings
from paykit_settle.store.files import back_up, check_file, file_status
from paykit_settle.store.restoring import restore as restore_file
from paykit_settle.store.store import clock_ms


def register(app: App) -> None:
    """Adds `ledger check`, `db status`, `db backup` and `db restore` to the program."""
    ledger = App(name="ledger", help="What the ledger holds.", result_action="return_value")
    files = App(name="db", help="The ledger's file.", result_action="return_value")
    app.command(ledger)
    app.command(files)

    def path(config: Path | None, database: str | None) -> str:
        return read_settings(config, database=database).database

    @ledger.command
    def check(*, database: Database = None, config: ConfigFile = None, json_lines: AsJson = False) -> int:
        """Prove from the entries that journals sum to zero, balances are sums, and no transfer broke a floor."""
        return _show_check(path(config, database), as_json=json_lines)

    @files.command
    def status(*, database: Database = None, config: ConfigFile = None, json_lines: AsJson = False) -> int:
        """Show the file's schema, size and journal mode."""
        return _show_status(path(config, database), as_json=json_lines)

    @files.command
    def backup(
        file: Path, /, *, database: Database = None, config: ConfigFile = None, json_lines: AsJson = False
    ) -> int:
        """Copy the file to FILE, also while the service writes; an existing FILE is never overwritten."""
        return _show_backup(path(config, database), file, as_json=json_lines)

    @files.command
    def restore(
        file: Path, /, *, database: Database = None, config: ConfigFile = None, json_lines: AsJson = False
    ) -> int:
        """Put the back-up FILE in the database's place, checked and as one step; the old database is kept beside it."""
        settings = read_settings(config, database=database)
        return _restore(file, settings.database, settings.busy_timeout_ms, as_json=json_lines)


def _show_check(path: str, *, as_json: bool) -> int:
    report = check_file(path)
    if as_json:
        print(json.dumps({"database": path, "sound": not report.faults, **msgspec.to_builtins(report)}))
    else:
        for fault in report.faults:
            print(f"FAULT {fault}")
        print(f"{path}: {report.accounts} accounts, {report.journals} journals, {report.entries} entries")
        print("broken: see the faults above" if report.faults else "sound: every journal, balance and floor holds")
    return 1 if report.faults else 0


def _show_status(path: str, *, as_json: bool) -> int:
    status = file_status(path)
    if as_json:
        print(json.dumps(msgspec.to_builtins(status)))
        return 0
    print(f"database   {status.path}, {status.size_bytes:,} bytes")
    print(f"schema     {', '.join(status.applied) or 'none yet'}")
    print(f"pending    {', '.join(status.pending) or 'nothing'}")
    print(f"SQLite     {status.sqlite_version}, journal mode {status.journal_mode}")
    return 0


def _show_backup(path: str, file: Path, *, as_json: bool) -> int:
    size_bytes = back_up(path, file)
    if as_json:
        print(json.dumps({"database": path, "backup": str(file), "size_bytes": size_bytes}))
    else:
        print(f"{path} copied to {file}, {size_bytes:,} bytes, checked")
    return 0


def _restore(file: Path, path: str, busy_timeout_ms: int, *, as_json: bool) -> int:
    done = restore_file(file, path, now_ms=clock_ms(), busy_timeout_ms=busy_timeout_ms)
    if as_json:
        print(json.dumps(msgspec.to_builtins(done)))
        return 0
    if done.is_continued:
        print("a restore of this back-up had been cut off: it is finished now")
    print(f"{done.database} restored from {done.restored_from}, {done.size_bytes:,} bytes, checked")
    if done.migrated:
        print(f"migrated: {', '.join(done.migrated)}")
    print(f"the database that was there is kept as {done.kept}" if done.kept else "no database was there before")
    print(_AFTER_RESTORE)
    return 0


_AFTER_RESTORE = """Next, for each account, settle the days since the back-up in order, the first missing day first:
  paykit-settle run --account ACCOUNT --from FIRST_DAY --to yesterday"""
