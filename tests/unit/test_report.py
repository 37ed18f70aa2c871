"""The two forms of a settlement: what machines parse and what people read.

Without these, an amount could be formatted for a machine, cut for a person, or a left-out row go unmentioned.
"""

import json
from io import StringIO

from rich.console import Console

from paykit_settle.models import PostedSettlement, Settlement
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.rates import Rates
from paykit_settle.report import posted_json, settlement_json, warnings_of
from paykit_settle.settlement import roll_up
from paykit_settle.terminal import settlement_table
from tests.rows import row, settled


def everything() -> Settlement:
    """A settlement with one of everything that can be said about a row."""
    rows = [
        row("a", 13535, currency="eur"),
        row("b", AMOUNT_MAX - 20000),
        row("c", 99900, 2927, status="pending"),
        row("d", -41000, kind="payout"),
        row("e", -7, kind="quantum_fee", category="fee"),
    ]
    return settled(roll_up(rows), Rates("usd", {"eur": "0.92"}, source="by hand"))


def shown(settlement: Settlement, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(settlement_table(settlement))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_json_holds_integers_the_fraction_and_what_rounding_left() -> None:
    answer = settlement_json(everything())
    line = json.loads(json.dumps(answer))["lines"][0]
    assert line == {
        "currency": "eur", "period": None, "charged": 13535, "refunded": 0, "fees": 0, "net": 13535,
        "net_settlement": 14712, "rates": {"eur": "0.92"}, "fraction": "100/92", "remainder": "-4/92",
    }  # fmt: skip
    assert answer["rates"] == {"base": "usd", "as_of": "", "source": "by hand"}


def test_json_names_the_rows_that_are_not_settled() -> None:
    answer = settlement_json(everything())
    assert answer["pending"] == [
        {"currency": "usd", "type": "charge", "reporting_category": None, "count": 1, "net": 96973}
    ]
    assert answer["left_out"] == [
        {"currency": "usd", "type": "payout", "reporting_category": None, "count": 1, "net": -41000}
    ]
    assert (answer["unknown_types"], answer["rows"], answer["repeats"]) == (["quantum_fee"], 5, 0)


def test_posted_json_has_the_contracts_members() -> None:
    posted = PostedSettlement(
        settlement_id="setl_0001", status="created", total_net=5, currency="usd", idempotency_key="k",
        settlement=everything(),
    )  # fmt: skip
    answer = posted_json(posted)
    assert (answer["settlement_id"], answer["status"], answer["currency"]) == ("setl_0001", "created", "usd")


def test_statement_names_rates_pending_left_out_and_unknown() -> None:
    settlement = everything()
    text = shown(settlement, width=200)
    for part in ("1 usd = 0.92 eur", "by hand", "1 charge, net $969.73", "1 payout, net -$410.00", "quantum_fee"):
        assert part in text
    assert settlement.total_net == AMOUNT_MAX - 20000 - 7 + 14712
    assert "$92,233,720,368,547,705.12" in text


def test_statement_without_rates_or_rows_is_short() -> None:
    text = shown(settled(roll_up([])))
    assert "rates" not in text
    assert "pending" not in text
    assert "rows     0 in the window, 0 of them settled" in text


def test_undated_unnamed_table_is_shown_as_such() -> None:
    text = shown(settled(roll_up([row("a", 92, currency="eur")]), Rates("usd", {"eur": "0.92"})))
    assert "source not named" in text


def test_what_there_is_to_say_goes_along_with_an_answer_and_with_an_error() -> None:
    posted = PostedSettlement(
        settlement_id="setl_1", status="created", total_net=1, currency="usd", idempotency_key="key",
        settlement=everything(), warnings=("first", "second"),
    )  # fmt: skip
    assert posted_json(posted)["warnings"] == ["first", "second"]
    error = ValueError("wrong")
    assert warnings_of(error) == []
    error.add_note("first")
    assert warnings_of(error) == ["first"]
