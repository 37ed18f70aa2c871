"""The faults that spoil a page of transactions or a table of rates: good JSON that says something wrong.

Nothing here changes the data; the next honest answer is right again. Numbers that Python would have to make a float of
are put into the text of the JSON, never into a value.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from fake_processor.faults import Fired
from fake_processor.listing import PageQuery, Row
from fake_processor.query import LIMIT_DEFAULT
from fake_processor.state import ProcessorState
from fake_processor.wire import Answer, Request, json_answer

Body = dict[str, object]

_RAW = "\u0001"
"""Marks a text that stands in the JSON without its quotes."""

_WRITTEN: Mapping[str, Callable[[object], object]] = {
    "row_float": lambda value: f"{_RAW}{value}.0{_RAW}",
    "row_exponent": lambda _: f"{_RAW}1e2{_RAW}",
    "row_bool": lambda _: True,
    "row_string": str,
    "row_null": lambda _: None,
    "row_beyond_64_bits": lambda _: 2**63,
}


def spoiled_page(answer: Answer, fault: Fired, *, state: ProcessorState, request: Request, query: PageQuery) -> Answer:
    """A page of transactions as the fault leaves it; the answer itself when there is nothing to spoil."""
    body: Body = json.loads(answer.body)
    rows = body["data"]
    if not isinstance(rows, list):
        return answer
    match fault.name:
        case "missing_has_more":
            del body["has_more"]
        case "false_has_more":
            body["has_more"] = False
        case "no_rows_but_more":
            body |= {"data": [], "has_more": True}
        case "late_rows":
            _hide(body, rows, state=state, account=account_of(request), query=query, count=fault.number("rows"))
        case "duplicated_page" | "overlapping_page" | "repeated_cursor":
            if query.starting_after is None:
                return answer
            _repeat(body, rows, fault.name, state=state, account=account_of(request), query=query)
        case _:
            if not rows:
                return answer
            _spoil_row(rows, fault)
    return _encoded(answer, body)


def spoiled_rates(answer: Answer, fault: Fired) -> Answer:
    """A table of rates as the fault leaves it."""
    table: Body = json.loads(answer.body)
    rates = table.get("rates")
    if not isinstance(rates, dict):
        return answer
    if fault.name == "rate_stale":
        as_of = dt.datetime.fromisoformat(str(table["as_of"])) - dt.timedelta(days=fault.number("days"))
        table["as_of"] = as_of.isoformat().replace("+00:00", "Z")
        return _encoded(answer, table)
    currency = fault.text("currency")
    for code in [code for code in rates if currency in ("", code)]:
        match fault.name:
            case "rate_missing":
                del rates[code]
            case "rate_zero":
                rates[code] = "0"
            case "rate_negative":
                rates[code] = f"-{rates[code]}"
            case _:
                rates[code] = "NaN"
    return _encoded(answer, table)


def account_of(request: Request) -> str:
    """The account that a good request to list transactions is about."""
    named = dict(request.query).get("account") or request.headers.get("stripe-account")
    return named or "acct_123"


def _repeat(body: Body, rows: list[Row], name: str, *, state: ProcessorState, account: str, query: PageQuery) -> None:
    assert query.starting_after is not None  # noqa: S101 - the caller asked; this tells the type checker
    cursor_row = state.transaction(account, query.starting_after)
    limit = query.limit or LIMIT_DEFAULT
    if name == "overlapping_page":
        body["has_more"] = bool(body["has_more"]) or len(rows) == limit
        body["data"] = [cursor_row, *rows][:limit]
    elif name == "repeated_cursor":
        body |= {"data": [*rows[: limit - 1], cursor_row], "has_more": True}
    else:
        newer: list[Row] = []
        if limit > 1:
            before = query._replace(starting_after=None, ending_before=query.starting_after, limit=limit - 1)
            newer = state.page(account, before).rows
        body |= {"data": [*newer, cursor_row], "has_more": True}


def _hide(body: Body, rows: list[Row], *, state: ProcessorState, account: str, query: PageQuery, count: int) -> None:
    newest = query._replace(starting_after=None, ending_before=None, limit=max(1, count))
    hidden = {row.get("id") for row in state.page(account, newest).rows}
    shown = [row for row in rows if row.get("id") not in hidden]
    # A page that promises more must have a row to go on from.
    body["data"] = shown or (rows[-1:] if body["has_more"] else [])


def _spoil_row(rows: list[Row], fault: Fired) -> None:
    row = rows[fault.dice.below(len(rows))]
    if fault.name == "row_contradicts_itself":
        row["net"] = _plus_one(row.get("net"))
    elif fault.name == "row_changes":
        rows.append({**row, "amount": _plus_one(row.get("amount")), "net": _plus_one(row.get("net"))})
        rows.append(rows[-2])
    elif fault.name == "row_missing":
        row.pop(fault.text("field"), None)
    else:
        field = fault.text("field")
        row[field] = _WRITTEN[fault.name](row.get(field))


def _plus_one(value: object) -> object:
    return value + 1 if type(value) is int else value


def _encoded(answer: Answer, body: Body) -> Answer:
    marked = json_answer(body).body
    mark = json.dumps(_RAW).strip('"').encode("ascii")
    return replace(answer, body=marked.replace(b'"' + mark, b"").replace(mark + b'"', b""))
