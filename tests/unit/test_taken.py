"""A settlement that is the processor's is read strictly: its lines are booked only where they prove its total.

Without it, lines that do not add up would be booked as if they did, an amount in another scale be off by a hundred, or
money at the processor be booked on a currency that nobody knows.
"""

import json
from datetime import date
from typing import Any

import pytest

from paykit_settle.booking import settlement_journal
from paykit_settle.journal import Journal
from paykit_settle.models import ITEMISED, TOTAL_ONLY, Settlement
from paykit_settle.money import ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.report import settlement_json
from paykit_settle.settlement import roll_up
from paykit_settle.strict_json import JsonNumber
from paykit_settle.taken import TakenSettlement, take_settlement
from tests.rows import DAY, row, settled

FROZEN = settled(roll_up([row("a", 100, 3), row("e", 92, currency="eur"), row("p", 5, status="pending")]),
                 Rates("usd", {"eur": "0.92"}))  # fmt: skip
ISO = ScaleProfile()
RANGE = 2**63 - 1


def line(currency: str = "usd", net: int = 97, converted: int | None = None, **members: object) -> dict[str, Any]:
    parts = {"charged": net + 3, "refunded": 0, "fees": 3, "net": net}
    return {"currency": currency, **parts, "net_settlement": net if converted is None else converted, **members}


def entry(*lines: object, total: object = 97, currency: object = "usd", **members: object) -> dict[str, object]:
    return {"id": "setl_9", "settlement_currency": currency, "lines": list(lines), "total_net": total, **members}


def take(members: dict[str, object], scale: ScaleProfile = ISO) -> TakenSettlement:
    return take_settlement(members, FROZEN, scale=scale)


def booked(settlement: Settlement) -> Journal:
    return settlement_journal(
        settlement, tenant="t", idempotency_key="", body_sha256="ab" * 32, settlement_id="setl_9", now_ms=1
    )


def sums(journal: Journal) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in journal.entries:
        found[each.currency] = found.get(each.currency, 0) + each.amount
    return found


def test_lines_that_prove_the_total_are_booked_as_usual_with_the_ratio_that_they_imply() -> None:
    taken = take(entry(line(), line("eur", 89, 96, period="2026-01-14"), total=193))
    assert (taken.why_not_itemised, taken.settlement.taken) == (None, ITEMISED)
    journal = booked(taken.settlement)
    assert [(each.account, each.currency, each.amount) for each in journal.entries] == [
        ("@processor.charged", "usd", -100),
        ("@processor.fees", "usd", 3),
        ("@processor.charged", "eur", -92),
        ("@processor.fees", "eur", 3),
        ("@fx", "eur", 89),
        ("@fx", "usd", -96),
        ("balance", "usd", 193),
    ]
    exchange = [json.loads(each.details) for each in journal.entries if each.details]
    assert exchange == [{"source": "processor", "ratio": "96/89", "period": "2026-01-14"}] * 2
    assert sums(journal) == {"usd": 0, "eur": 0}


def test_what_is_known_of_the_rows_stays_but_for_what_they_come_to() -> None:
    settlement = take(entry(line())).settlement
    assert (settlement.account, settlement.date, settlement.window) == (FROZEN.account, DAY, FROZEN.window)
    assert (settlement.roll_up.settled, settlement.rates, settlement.late) == ((), None, ())
    assert settlement.roll_up.pending == FROZEN.roll_up.pending
    shown = settlement_json(settlement)
    assert (shown["taken"], shown["rates"], shown["rows"]) == ("itemised", None, 3)
    assert "taken" not in settlement_json(FROZEN)


@pytest.mark.parametrize(
    ("lines", "total"),
    [
        ([], 0),
        ([line("EUR", -89, -96)], -96),
        ([line("jpy", 0, 0)], 0),
        ([line("jpy", 1, 0)], 0),
        ([line(period=None), line(period="2026-01-01")], 194),
        ([line(more="of something")], 97),
        ([line(net=RANGE - 3)], RANGE - 3),
        ([line("usd", 7, charged=-3, fees=-10)], 7),
    ],
)
def test_lines_in_any_shape_that_adds_up_are_itemised(lines: list[object], total: int) -> None:
    taken = take(entry(*lines, total=total))
    assert taken.why_not_itemised is None
    assert sum(each.net_settlement for each in taken.settlement.lines) == total == taken.settlement.total_net
    assert all(each.conversion.remainder == 0 or each.net_settlement == 0 for each in taken.settlement.lines)
    assert set(sums(booked(taken.settlement)).values()) <= {0}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([line(net=96)], "its lines come to 96 usd, and its total is 97"),
        ([], "its lines come to 0 usd"),
        ([{**line(), "fees": 4}], "its line 1: net 97 is not charged 100 + refunded 0 - fees 4"),
        ([line(), line(net=0, converted=1)], "its line 2: net 0 is in usd already"),
        ([line("eur", 0, 97)], "net 0 eur cannot be 97 usd at any rate"),
        ([line("eur", -97, 97)], "net -97 eur cannot be 97 usd at any rate"),
        ([line("xxx")], "its line 1: currency XXX has no exponent"),
        ([{**line(), "currency": 7}], "currency must be three ASCII letters"),
        ([{k: v for k, v in line().items() if k != "charged"}], "charged must be an integer of minor units, got null"),
        ([line(net_settlement=True)], "net_settlement must be an integer of minor units, got boolean"),
        ([line(fees="3")], "fees must be an integer of minor units, got text"),
        ([line(charged=JsonNumber("100.0"))], "charged must be an integer"),
        ([line(charged=RANGE + 1)], "charged is beyond"),
        ([line(period="2026-01-15")], "period 2026-01-15 is not before the settlement's day"),
        ([line(period="15.1.2026")], "its line 1: "),
        ([line(period=7)], "its line 1: "),
        (["97"], "its line 1: must be an object, got text"),
    ],
)
def test_lines_that_prove_nothing_leave_the_total_alone(lines: list[object], why: str) -> None:
    taken = take(entry(*lines))
    assert taken.why_not_itemised is not None
    assert why in taken.why_not_itemised
    assert (taken.settlement.taken, taken.settlement.lines) == (TOTAL_ONLY, ())
    journal = booked(taken.settlement)
    assert [(each.account, each.currency, each.amount) for each in journal.entries] == [
        ("@processor.unitemised", "usd", -97),
        ("balance", "usd", 97),
    ]


@pytest.mark.parametrize("lines", [None, 7, {"currency": "usd"}])
def test_entry_without_an_array_of_lines_has_its_total_alone(lines: object) -> None:
    taken = take({**entry(), "lines": lines})
    assert (taken.settlement.taken, taken.settlement.total_net) == (TOTAL_ONLY, 97)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        (entry(currency="xxx"), "XXX has no exponent"),
        (entry(currency=None), "three ASCII letters"),
        (entry(total="97"), "total_net must be an integer"),
        (entry(total=None), "total_net must be an integer"),
        (entry(total=False), "total_net must be an integer"),
        (entry(total=JsonNumber("9e1")), "total_net must be an integer"),
        (entry(total=-RANGE - 1), "total_net is beyond"),
    ],
)
def test_total_that_cannot_be_read_cannot_be_taken_at_all(members: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        take(members)


def test_amounts_are_read_in_the_scales_of_the_run() -> None:
    """Three decimals on the wire for US dollars, two for the yen."""
    scale = ScaleProfile(overrides={"usd": 3, "jpy": 2})
    lines = [{**line(net=970, fees=30, charged=1000)}, line("jpy", 9700, 650, charged=10000, fees=300)]
    taken = take(entry(*lines, total=1620), scale)
    assert taken.why_not_itemised is None
    assert [(each.net, each.net_settlement) for each in taken.settlement.lines] == [(97, 97), (97, 65)]
    assert taken.settlement.total_net == 162


def test_scale_that_gives_no_exact_value_refuses() -> None:
    scale = ScaleProfile(overrides={"usd": 3})
    with pytest.raises(ValueError, match="is not a multiple of 10"):
        take(entry(line(), total=97), scale)
    taken = take(entry(line(net=97, converted=100), total=100), scale)
    assert taken.why_not_itemised is not None
    assert "is not a multiple of 10" in taken.why_not_itemised
    assert taken.settlement.total_net == 10


def test_settlement_in_another_currency_than_ours_is_taken_in_its_own() -> None:
    taken = take(entry(line("usd", 97, 90), total=90, currency="EUR"))
    assert (taken.settlement.settlement_currency, taken.settlement.total_net) == ("eur", 90)
    assert sums(booked(taken.settlement)) == {"usd": 0, "eur": 0}
    assert taken.settlement.date == date(2026, 1, 15)
