"""Commands about the ledger's file: prove it, show its state, copy it while the service runs.

They open the file beside whoever uses it, read one committed state, and change nothing in it.
"""

import json
from pathlib import Path

import msgspec
from cyclopts import App

from paykit_settle.cli_options import AsJson, ConfigFile, Database, read_settings
from paykit_settle.store.files import back_up, check_file, file_status


def register(app: App) -> None:
    """Adds `ledger check`, `db status` and `db backup` to the program."""
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
