"""Reads the fixture files in `data/` into a ProcessorState.

The files are written for people: times as ISO text, one row per line. What every row has in common
is filled in here. It must never let a binary float through, nor change an amount.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import NoReturn

from fake_processor.state import ProcessorState

TIME_MEMBERS = ("created", "available_on")


def load_fixtures(directory: Path | None = None) -> ProcessorState:
    """A fresh state with the accounts and rate tables of `data/`, or of another directory.

    Raises ValueError naming the file when one is not what it should be, FileNotFoundError when it
    is missing.
    """
    source = data_directory() if directory is None else directory
    accounts = _read(source / "transactions.json")
    rates = _read(source / "fx_rates.json")
    return ProcessorState(
        accounts={account: [_row(row) for row in _rows(account, rows)] for account, rows in accounts.items()},
        rates={day: {"object": "fx_rates", **_table(day, table)} for day, table in rates.items()},
    )


def data_directory() -> Path:
    """Where the fixtures lie: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "_data"
    return installed if installed.is_dir() else package.parent / "data"


def _read(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text("utf-8"), parse_float=_refuse_number, parse_constant=_refuse_number)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name}: a JSON object is expected")
    return content


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no integer: amounts are integers and rates are strings")


def _rows(account: str, rows: object) -> list[dict[str, object]]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"transactions.json: {account} must be an array of objects")
    return rows


def _table(day: str, table: object) -> dict[str, object]:
    if not isinstance(table, dict):
        raise ValueError(f"fx_rates.json: {day} must be an object")
    return table


def _row(written: dict[str, object]) -> dict[str, object]:
    """A row as the wire has it: unix seconds, and the members that are the same in every row."""
    times = {name: _unix_s(written[name]) for name in TIME_MEMBERS if name in written}
    fee = written.get("fee")
    fee_detail = {
        "amount": fee,
        "application": None,
        "currency": written.get("currency"),
        "description": "Processing fees",
        "type": "stripe_fee",
    }
    common = {
        "object": "balance_transaction",
        "exchange_rate": None,
        "fee_details": [] if fee in (0, None) else [fee_detail],
    }
    return {"id": written.get("id"), **common, **written, **times}


def _unix_s(value: object) -> object:
    if not isinstance(value, str):
        return value
    moment = dt.datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError(f"transactions.json: {value} names no zone; write it with a Z")
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(seconds=1)
