"""The fake processor's state and fixtures, without a socket.

The fixtures carry the reference day that many other tests settle; if its totals moved, those tests
would be wrong for no visible reason. The state has to serve a test's broken rows untouched, and has
to share no code with the program it tests.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
from pathlib import Path

import pytest

import fake_processor
from fake_processor import ProcessorState, load_fixtures
from fake_processor.fixtures import data_directory
from fake_processor.listing import PageQuery
from fake_processor.routes import answer
from fake_processor.wire import Refusal, Request

DAY_START_S = 1768435200  # 2026-01-15T00:00:00Z
DAY = PageQuery(limit=100, start_s=DAY_START_S, end_s=DAY_START_S + 86_400)
ACCESS = {"authorization": "Bearer sk_test_unit"}
BALANCE_MOVES = {"payout", "payout_cancel", "payout_failure", "topup", "topup_reversal"}


def number(row: dict[str, object], name: str) -> int:
    value = row[name]
    assert type(value) is int
    return value


def test_reference_day_totals_what_it_must() -> None:
    totals: dict[object, list[int]] = {}
    for row in load_fixtures().page("acct_123", DAY).rows:
        if row["status"] != "available" or row["type"] in BALANCE_MOVES:
            continue
        amount, total = number(row, "amount"), totals.setdefault(row["currency"], [0, 0, 0])
        total[0 if amount >= 0 else 1] += amount
        total[2] += number(row, "fee")
    assert totals == {
        "eur": [14000, 0, 465],
        "gbp": [8000, 0, 280],
        "jpy": [150000, 0, 0],
        "usd": [25000, -3500, 785],
    }


def test_reference_day_has_rows_that_must_not_count() -> None:
    rows = load_fixtures().page("acct_123", DAY).rows
    assert [row["id"] for row in rows if row["status"] == "pending"] == ["txn_05", "txn_12"]
    assert [row["id"] for row in rows if row["type"] == "payout"] == ["txn_09"]


@pytest.mark.parametrize(
    ("transaction_id", "moment"),
    [
        ("txn_13", "2026-01-15T00:00:00+00:00"),
        ("txn_01", "2026-01-15T23:59:59+00:00"),
        ("txn_1401", "2026-01-14T23:59:59+00:00"),
        ("txn_1603", "2026-01-16T00:00:00+00:00"),
    ],
)
def test_fixture_has_rows_on_both_sides_of_midnight(transaction_id: str, moment: str) -> None:
    row = load_fixtures().transaction("acct_123", transaction_id)
    assert dt.datetime.fromtimestamp(number(row, "created"), dt.UTC).isoformat() == moment


def test_fixture_rows_agree_with_themselves_and_have_unique_ids() -> None:
    state = load_fixtures()
    rows = [*state.transactions("acct_123"), *state.transactions("acct_456")]
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert number(row, "net") == number(row, "amount") - number(row, "fee")
        assert row["object"] == "balance_transaction"
        assert number(row, "available_on") > number(row, "created")
        details = row["fee_details"]
        assert isinstance(details, list)
        assert sum(detail["amount"] for detail in details) == row["fee"]


def test_fixture_rows_can_be_converted_on_their_day() -> None:
    state = load_fixtures()
    for account in ("acct_123", "acct_456"):
        for row in state.transactions(account):
            day = dt.datetime.fromtimestamp(number(row, "created"), dt.UTC).date().isoformat()
            rates = state.rates("usd", day=day)["rates"]
            assert isinstance(rates, dict)
            assert row["currency"] == "usd" or row["currency"] in rates


def test_loaded_states_share_nothing() -> None:
    one, other = load_fixtures(), load_fixtures()
    one.update_transaction("acct_123", "txn_05", status="available")
    assert other.transaction("acct_123", "txn_05")["status"] == "pending"


@pytest.mark.parametrize("amount", ["1.0", "1e2", "NaN"])
def test_fixture_number_that_is_no_integer_is_refused(tmp_path: Path, amount: str) -> None:
    (tmp_path / "transactions.json").write_text(f'{{"acct_1": [{{"id": "txn_1", "amount": {amount}}}]}}')
    (tmp_path / "fx_rates.json").write_text("{}")
    with pytest.raises(ValueError, match=r"transactions\.json"):
        load_fixtures(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": [1]}', '{"a": [{"created": "2026-01-15T00:00:00"}]}'])
def test_fixture_file_of_another_shape_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "transactions.json").write_text(content)
    (tmp_path / "fx_rates.json").write_text("{}")
    with pytest.raises(ValueError, match=r"transactions\.json"):
        load_fixtures(tmp_path)


def test_own_fixture_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "transactions.json").write_text('{"acct_1": [{"id": "txn_1", "created": 7}]}')
    (tmp_path / "fx_rates.json").write_text('{"2026-01-15": {"base": "usd", "rates": {}}}')
    state = load_fixtures(tmp_path)
    assert state.transaction("acct_1", "txn_1")["created"] == 7
    assert state.rates("usd")["object"] == "fx_rates"


def test_fixture_files_lie_where_they_are_looked_for() -> None:
    assert {path.name for path in data_directory().iterdir()} >= {"transactions.json", "fx_rates.json"}


def test_rows_are_served_as_they_are_whatever_their_types() -> None:
    rows: list[dict[str, object]] = [
        {"id": "txn_1", "created": 9, "amount": "12", "fee": None},
        {"id": 7, "created": "yesterday"},
        {"amount": True},
    ]
    state = ProcessorState(accounts={"acct_1": rows})
    query = [("account", "acct_1"), ("created[gte]", "5")]
    reply = answer(state, Request(method="GET", path="/v1/balance_transactions", query=query, headers=ACCESS))
    assert sorted(json.loads(reply.body)["data"], key=str) == sorted(rows, key=str)


def test_row_without_a_time_lies_in_every_window_after_the_dated_ones() -> None:
    state = ProcessorState(accounts={"acct_1": [{"id": "b"}, {"id": "a", "created": 5}, {"id": "c", "created": 8}]})
    assert [row["id"] for row in state.page("acct_1", PageQuery(start_s=8)).rows] == ["c", "b"]
    assert [row["id"] for row in state.page("acct_1", PageQuery(end_s=6)).rows] == ["a", "b"]
    assert [row["id"] for row in state.page("acct_1", PageQuery(ending_before="b", limit=1)).rows] == ["a"]


def test_repeated_row_is_served_twice_and_paging_still_ends() -> None:
    rows = [{"id": name, "created": 5} for name in ("a", "b", "b", "c")]
    state = ProcessorState(accounts={"acct_1": rows})
    seen: list[object] = []
    page = state.page("acct_1", PageQuery(limit=3))
    seen.extend(row["id"] for row in page.rows)
    page = state.page("acct_1", PageQuery(limit=3, starting_after="b"))
    seen.extend(row["id"] for row in page.rows)
    assert (seen, page.has_more) == (["a", "b", "b", "c"], False)


def test_rows_can_be_added_changed_and_taken_away() -> None:
    state = ProcessorState()
    state.add_transactions("acct_new", [{"id": "txn_1", "created": 1}])
    state.add_transactions("acct_new", [{"id": "txn_2", "created": 2}])
    state.update_transaction("acct_new", "txn_1", created=3, account="any")
    assert state.transactions("acct_new") == [
        {"id": "txn_1", "created": 3, "account": "any"},
        {"id": "txn_2", "created": 2},
    ]
    state.remove_transaction("acct_new", "txn_1")
    assert [row["id"] for row in state.transactions("acct_new")] == ["txn_2"]


def test_change_of_a_row_that_is_not_there_is_a_mistake_of_the_test() -> None:
    state = load_fixtures()
    with pytest.raises(KeyError):
        state.update_transaction("acct_123", "txn_none", amount=1)
    with pytest.raises(KeyError):
        state.remove_transaction("acct_123", "txn_none")
    with pytest.raises(KeyError):
        state.remove_rates("2025-01-01")


def test_rows_handed_in_are_copied() -> None:
    row: dict[str, object] = {"id": "txn_1", "created": 1}
    state = ProcessorState(accounts={"acct_1": [row]})
    row["created"] = 2
    assert state.transaction("acct_1", "txn_1")["created"] == 1


def test_settlement_can_be_posted_without_a_socket() -> None:
    state = load_fixtures()
    body = {
        "account": "acct_123",
        "date": "2026-01-12",
        "settlement_currency": "usd",
        "lines": [],
        "total_net": 0,
    }
    content = json.dumps(body).encode()
    first = state.settle(content, idempotency_key="key-1")
    again = state.settle(content, idempotency_key="key-1")
    assert (first.replayed, again.replayed) == (False, True)
    assert first.settlement == again.settlement
    assert [row["idempotency_key"] for row in state.settlements()] == ["key-1"]
    with pytest.raises(Refusal) as refusal:
        state.settle(content.replace(b"usd", b"eur"), idempotency_key="key-1")
    assert refusal.value.error_type == "idempotency_error"


def test_state_without_tables_has_no_newest_one() -> None:
    with pytest.raises(Refusal) as refusal:
        ProcessorState().rates("usd")
    assert (refusal.value.status, refusal.value.param) == (404, "date")


def test_fake_shares_no_code_with_the_program_and_only_the_shell_knows_aiohttp() -> None:
    importers: dict[str, set[str]] = {}
    for path in Path(fake_processor.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            for name in names:
                importers.setdefault(name.partition(".")[0], set()).add(path.name)
    assert "paykit_settle" not in importers
    assert importers["aiohttp"] == {"delivery.py", "server.py"}
