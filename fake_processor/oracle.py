"""The right settlement of a day, computed in the plainest way there is, for tests to compare with.

One row after the other, exact fractions, one rounding per line. It shares nothing with the program under test nor with
the generator's sums; where it and another disagree, read both.
"""

from __future__ import annotations

import datetime as dt
from fractions import Fraction

from fake_processor.listing import PageQuery, Row
from fake_processor.query import read_date
from fake_processor.state import ProcessorState
from fake_processor.wire import invalid

NOT_SETTLED = ("payout", "payout_cancel", "payout_failure", "topup", "topup_reversal")
DECIMALS = {
    "aud": 2,
    "cad": 2,
    "chf": 2,
    "clp": 0,
    "eur": 2,
    "gbp": 2,
    "jpy": 0,
    "krw": 0,
    "kwd": 3,
    "mxn": 2,
    "sek": 2,
    "usd": 2,
}


def right_settlement(state: ProcessorState, *, account: str, date: str, currency: str = "usd") -> dict[str, object]:
    """The body that a right client posts for that UTC day: the members of `POST /v1/settlements`.

    Refusal: 404 for an unknown account, 400 for a date or currency that it cannot settle.
    """
    lines: dict[str, dict[str, int]] = {}
    for row in rows_of_day(state, account=account, date=date):
        if row["status"] != "available" or row["type"] in NOT_SETTLED:
            continue
        line = lines.setdefault(str(row["currency"]), {"charged": 0, "refunded": 0, "fees": 0})
        amount = _integer(row, "amount")
        line["charged" if amount >= 0 else "refunded"] += amount
        line["fees"] += _integer(row, "fee")
    posted: list[dict[str, object]] = []
    total = 0
    for code in sorted(lines):
        line = lines[code]
        net = line["charged"] + line["refunded"] - line["fees"]
        converted = net if code == currency or net == 0 else _convert(state, net, code, currency, date)
        posted.append({"currency": code, **line, "net": net, "net_settlement": converted})
        total += converted
    return {"account": account, "date": date, "settlement_currency": currency, "lines": posted, "total_net": total}


def rows_of_day(state: ProcessorState, *, account: str, date: str) -> list[Row]:
    """Every row of that UTC day, asked for page by page as a client does."""
    start = dt.datetime.combine(read_date(date, param="date"), dt.time(), tzinfo=dt.UTC)
    start_s = (start - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(seconds=1)
    rows: list[Row] = []
    cursor = None
    while True:
        page = state.page(account, PageQuery(limit=100, start_s=start_s, end_s=start_s + 86_400, starting_after=cursor))
        rows += page.rows
        if not page.has_more:
            return rows
        cursor = str(page.rows[-1]["id"])


def _convert(state: ProcessorState, amount: int, source: str, target: str, date: str) -> int:
    rates = state.rates("usd", day=date)["rates"]
    assert isinstance(rates, dict)  # noqa: S101 - the oracle is for data that is right
    rate = {"usd": Fraction(1), **{code: Fraction(text) for code, text in rates.items()}}
    for code in (source, target):
        if code not in DECIMALS or code not in rate:
            raise invalid(f"The oracle cannot convert {code}.", param="settlement_currency")
    major = Fraction(amount, 10 ** DECIMALS[source]) / rate[source] * rate[target]
    minor = major * 10 ** DECIMALS[target]
    whole, rest = divmod(abs(minor), 1)
    rounded = int(whole) + (1 if rest >= Fraction(1, 2) else 0)
    return rounded if minor >= 0 else -rounded


def _integer(row: Row, name: str) -> int:
    value = row[name]
    if type(value) is not int:
        raise invalid(f"{name} of {row.get('id')} is no integer.", param=name)
    return value
