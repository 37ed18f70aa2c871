"""Generated data: the same bytes everywhere, right in itself, and like an account that somebody has.

Benchmarks and soaks compare numbers over time and between machines: if a seed meant other rows tomorrow, every recorded
number would be void. The oracle's words are compared with sums made another way.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import tracemalloc
from collections import Counter

import pytest

from fake_processor import Plan, generated_state, load_fixtures
from fake_processor.currencies import CURRENCIES, rate_table
from fake_processor.generator import GeneratedRows
from fake_processor.listing import PageQuery, Row
from fake_processor.oracle import DECIMALS, right_settlement, rows_of_day
from fake_processor.wire import Refusal

SMALL = Plan(seed=3, transactions=1_500, days=5, currencies=("usd", "eur", "jpy", "kwd"))


def integer(row: Row, name: str) -> int:
    value = row[name]
    assert type(value) is int
    return value


def rows(plan: Plan) -> list[Row]:
    return generated_state(plan).transactions("acct_123")


def test_seed_gives_the_same_bytes_on_every_machine() -> None:
    generated = GeneratedRows(Plan(seed=1, transactions=1_000_000, days=30))
    text = b",".join(
        [*generated.texts(0, 300), *generated.texts(500_000, 500_300), *generated.texts(999_700, 1_000_000)]
    )
    assert hashlib.sha256(text).hexdigest() == RECORDED


RECORDED = "fd5947ec3d4303ed3cccc6772d02125389a273d164078eb6aafa29249f25650a"


def test_another_seed_gives_other_rows() -> None:
    first, second = (GeneratedRows(Plan(seed=seed)).texts(0, 100) for seed in (1, 2))
    assert first != second


def test_any_row_is_written_without_the_rows_before_it() -> None:
    generated = GeneratedRows(SMALL)
    whole = json.loads(b"[%b]" % b",".join(generated.texts(0, 1_500)))
    assert len(whole) == 1_500
    fresh = GeneratedRows(SMALL)
    for position in (1_499, 700, 299, 300, 296, 0):
        assert [json.loads(bytes(text)) for text in fresh.texts(position, position + 1)] == [whole[position]]
        assert fresh.row_id(position) == whole[position]["id"]
        assert fresh.created(position) == whole[position]["created"]
        assert fresh.position(whole[position]["id"]) == position


def test_rows_agree_with_themselves_and_stand_newest_first() -> None:
    listed = rows(SMALL)
    assert len({row["id"] for row in listed}) == len(listed) == 1_500
    places = [(-integer(row, "created"), str(row["id"])) for row in listed]
    assert places == sorted(places)
    for row in listed:
        assert integer(row, "net") == integer(row, "amount") - integer(row, "fee")
        details = row["fee_details"]
        assert isinstance(details, list)
        assert sum(detail["amount"] for detail in details) == row["fee"]
        assert integer(row, "available_on") > integer(row, "created")
        assert not any(isinstance(value, float) for value in row.values())


def test_days_hold_what_they_should_and_nothing_lies_outside() -> None:
    counts = Counter(dt.datetime.fromtimestamp(integer(row, "created"), dt.UTC).date() for row in rows(SMALL))
    assert counts == {dt.date(2026, 1, day): 300 for day in range(11, 16)}


def test_kinds_come_in_the_proportions_of_an_account() -> None:
    listed = rows(Plan(seed=1, transactions=16_000, days=8))
    kinds = Counter(str(row["reporting_category"]) for row in listed)
    per_mille = {kind: count * 1000 // len(listed) for kind, count in kinds.items()}
    assert 900 <= per_mille["charge"] <= 970
    assert 20 <= per_mille["refund"] <= 45
    assert 1 <= per_mille["dispute"] <= 8
    assert {"dispute_reversal", "other_adjustment", "fee", "refund_failure", "charge_failure", "payout"} <= set(kinds)
    pending = sum(row["status"] == "pending" for row in listed) * 1000 // len(listed)
    assert 8 <= pending <= 25
    assert any(row["type"] == "refund" and integer(row, "fee") < 0 for row in listed)
    assert {row["currency"] for row in listed} == {"usd", "eur", "gbp", "jpy"}


def test_payout_takes_what_the_day_before_made_available() -> None:
    state = generated_state(SMALL)
    payouts = [row for row in state.transactions("acct_123") if row["type"] == "payout"]
    assert len(payouts) >= 4
    for payout in payouts:
        query = PageQuery(limit=100, payout=str(payout["source"]))
        found: list[Row] = []
        page = state.page("acct_123", query)
        while True:
            found += page.rows
            if not page.has_more:
                break
            query = PageQuery(limit=100, payout=str(payout["source"]), starting_after=str(found[-1]["id"]))
            page = state.page("acct_123", query)
        assert found[0] == payout
        assert {row["currency"] for row in found} == {payout["currency"]}
        assert sum(integer(row, "net") for row in found) == 0


@pytest.mark.parametrize("released", [False, True])
def test_balance_is_the_sum_of_the_rows(released: bool) -> None:
    state = generated_state(SMALL)
    if released:
        state.release_pending("acct_123")
    listed = state.transactions("acct_123")
    state.remove_transaction("acct_123", str(listed[7]["id"]))
    state.update_transaction("acct_123", str(listed[10]["id"]), status="available")
    state.add_transactions("acct_123", [{"id": "txn_new", "net": 7, "currency": "chf", "status": "pending"}])
    sums: Counter[tuple[object, object]] = Counter()
    for row in state.transactions("acct_123"):
        sums[row["status"], row["currency"]] += integer(row, "net")
    balance = state.balance("acct_123")
    shown = {
        (status, entry["currency"]): entry["amount"]
        for status in ("available", "pending")
        for entry in balance[status]  # type: ignore[attr-defined]  # JSON
    }
    assert {key: amount for key, amount in shown.items() if amount} == {k: v for k, v in sums.items() if v}
    assert released is not any(row["status"] == "pending" for row in state.transactions("acct_123")[:-1])


def test_fixture_balance_is_the_sum_of_its_rows_too() -> None:
    state = load_fixtures()
    balance = state.balance("acct_456")
    assert balance["available"] == [
        {"amount": 0, "currency": "chf", "source_types": {"card": 0}},
        {"amount": 9583, "currency": "eur", "source_types": {"card": 9583}},
        {"amount": 75449, "currency": "usd", "source_types": {"card": 75449}},
    ]


def test_oracle_finds_the_reference_day_right() -> None:
    body = right_settlement(load_fixtures(), account="acct_123", date="2026-01-15")
    lines = body["lines"]
    assert isinstance(lines, list)
    assert [(line["currency"], line["net"], line["net_settlement"]) for line in lines] == [
        ("eur", 13535, 14712),
        ("gbp", 7720, 9772),
        ("jpy", 150000, 100000),
        ("usd", 20715, 20715),
    ]
    assert body["total_net"] == 145199


def test_oracle_sums_every_row_of_its_day() -> None:
    state = generated_state(SMALL)
    day = rows_of_day(state, account="acct_123", date="2026-01-13")
    assert [row["id"] for row in day] == [row["id"] for row in state.transactions("acct_123")[600:900]]
    body = right_settlement(state, account="acct_123", date="2026-01-13", currency="eur")
    lines = body["lines"]
    assert isinstance(lines, list)
    settled = [row for row in day if row["status"] == "available" and row["type"] != "payout"]
    assert {line["currency"]: line["net"] for line in lines} == {
        code: sum(integer(row, "net") for row in settled if row["currency"] == code)
        for code in ("eur", "jpy", "kwd", "usd")
    }
    assert body["total_net"] == sum(line["net_settlement"] for line in lines)


def test_rates_are_texts_near_their_level_and_follow_from_the_seed() -> None:
    codes = tuple(CURRENCIES)
    table = rate_table(1, dt.date(2026, 1, 15), codes)
    rates = table["rates"]
    assert isinstance(rates, dict)
    assert set(rates) == set(codes) - {"usd"}
    assert all(type(rate) is str and set(rate) <= set("0123456789.") for rate in rates.values())
    assert table == rate_table(1, dt.date(2026, 1, 15), codes)
    assert table != rate_table(1, dt.date(2026, 1, 14), codes)
    assert set(DECIMALS) == set(CURRENCIES)
    assert all(DECIMALS[code] == currency.exponent for code, currency in CURRENCIES.items())


def test_oracle_refuses_what_it_cannot_settle() -> None:
    state = load_fixtures()
    with pytest.raises(Refusal, match="cannot convert isk"):
        right_settlement(state, account="acct_123", date="2026-01-15", currency="isk")
    state.update_transaction("acct_123", "txn_01", amount="20000")
    with pytest.raises(Refusal, match="amount of txn_01 is no integer"):
        right_settlement(state, account="acct_123", date="2026-01-15")


def test_cursor_or_payout_that_is_none_is_refused() -> None:
    state = generated_state(SMALL)
    wrong = ("txn_100000000000", "txn_100000004128", "txn_100000900084", "txn_x", "ch_100000000084", "txn_10000000008٤")
    for cursor in wrong:
        for query in (PageQuery(starting_after=cursor), PageQuery(ending_before=cursor, currency="usd")):
            with pytest.raises(Refusal) as refusal:
                state.page("acct_123", query)
            assert (refusal.value.status, refusal.value.code) == (400, "resource_missing")
    for payout in ("po_100000000084", "po_none", "ch_100000003000"):
        with pytest.raises(Refusal, match="No such payout"):
            state.page("acct_123", PageQuery(payout=payout))
    assert state.page("acct_123", PageQuery(source="ch_999")).rows == []


def test_rows_put_in_are_changed_and_found_like_the_generated_ones() -> None:
    state = generated_state(SMALL)
    state.add_transactions("acct_123", [{"id": "txn_mine"}, {"id": "txn_dated", "created": 1768500000}])
    state.update_transaction("acct_123", "txn_mine", amount=5)
    assert state.transaction("acct_123", "txn_mine") == {"id": "txn_mine", "amount": 5}
    assert state.transactions("acct_123")[-1] == {"id": "txn_mine", "amount": 5}
    assert state.page("acct_123", PageQuery(starting_after="txn_mine")).rows == []
    assert (
        state.page("acct_123", PageQuery(ending_before="txn_mine", limit=1)).rows[0]
        == state.transactions("acct_123")[-2]
    )
    state.remove_transaction("acct_123", "txn_mine")
    with pytest.raises(KeyError):
        state.remove_transaction("acct_123", "txn_mine")


@pytest.mark.parametrize(
    "wrong",
    [
        {"transactions": -1},
        {"transactions": 100_000_001},
        {"days": 0},
        {"days": 3_661},
        {"last_day": dt.date(2011, 12, 31)},
        {"last_day": dt.date(2286, 1, 1)},
        {"currencies": ()},
        {"currencies": ("usd", "usd")},
        {"currencies": ("usd", "xyz")},
    ],
)
def test_plan_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each message names its field
        Plan(**wrong)  # type: ignore[arg-type]  # the claim is that this fails


@pytest.mark.parametrize("transactions", [0, 1, 7, 29, 30, 31, 100])
def test_few_rows_are_listed_whole(transactions: int) -> None:
    listed = rows(Plan(transactions=transactions, days=30))
    assert len({row["id"] for row in listed}) == transactions


def test_a_hundred_million_rows_take_no_memory() -> None:
    tracemalloc.start()
    try:
        state = generated_state(Plan(transactions=100_000_000, days=30))
        page = state.page("acct_123", PageQuery(limit=100, end_s=1767300000))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(page.rows) == 100
    assert peak_bytes < 20 * 1024 * 1024
