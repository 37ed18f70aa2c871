"""The processor's list of a day's settlements, read strictly, and which of them is the one that we sent.

Without these a settlement of ours would be taken for another's, or another's for ours, and be sent or booked twice.
"""

import hashlib
import json
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from paykit_settle.found_settlements import SETTLEMENT_PAGES_MAX, FoundSettlement, SettlementList

SENT = b'{"account":"a","date":"2026-01-15","total_net":5}'


def test_found_settlement_is_ours_by_the_digest_of_its_bytes() -> None:
    digest = hashlib.sha256(SENT).hexdigest()
    settlements = SettlementList("a", date(2026, 1, 15))
    body = b'{"data":[{"id":"setl_1","status":"created","body_sha256":"%s"}],"has_more":false}' % digest.encode()
    assert settlements.read(body) is None
    (found,) = settlements.found
    assert (found.id, found.status, found.has_body(SENT), found.has_body(SENT + b" ")) == (
        "setl_1",
        "created",
        True,
        False,
    )


def test_found_settlement_without_a_digest_is_ours_by_its_members() -> None:
    members = {"id": "setl_1", "account": "a", "date": "2026-01-15", "total_net": 5, "more": 1}
    assert FoundSettlement(id="setl_1", status="created", members=members).has_body(SENT)
    assert not FoundSettlement(id="setl_1", status="created", members=members | {"total_net": 6}).has_body(SENT)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"data":{},"has_more":false}',
        b'{"data":[]}',
        b'{"data":[],"has_more":true}',
        b'{"data":[1],"has_more":false}',
        b'{"data":[{"id":1,"status":"created"}],"has_more":false}',
        b'{"data":[{"id":"setl_1"}],"has_more":false}',
        b'{"data":[{"id":"","status":"created"}],"has_more":false}',
        b'{"data":[{"id":"setl_1","status":"cre\\nated"}],"has_more":false}',
        b'{"data":[{"id":"%s","status":"created"}],"has_more":false}' % (b"x" * 256),
        b'{"data":[],"has_more":"no"}',
        b'{"data":[],"has_more":null}',
    ],
)
def test_list_of_settlements_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"object|settlement"):
        SettlementList("a", date(2026, 1, 15)).read(body)


def page_of(*entries: object, has_more: bool = False) -> bytes:
    return json.dumps({"data": entries, "has_more": has_more}).encode()


def entry(identity: str, **members: object) -> dict[str, object]:
    return {"id": identity, "status": "created", **members}


def test_settlements_of_all_pages_are_found_and_an_entry_that_comes_again_counts_once() -> None:
    settlements = SettlementList("a", date(2026, 1, 15))
    assert settlements.read(page_of(entry("s1"), entry("s2"), has_more=True)) == "s2"
    assert settlements.read(page_of(entry("s2"), entry("s3"), has_more=True)) == "s3"
    assert settlements.read(page_of()) is None
    assert [each.id for each in settlements.found] == ["s1", "s2", "s3"]


def test_list_of_settlements_that_leads_nowhere_is_refused() -> None:
    settlements = SettlementList("a", date(2026, 1, 15))
    settlements.read(page_of(entry("s1"), has_more=True))
    with pytest.raises(ValueError, match="none come"):
        settlements.read(page_of(entry("s1"), has_more=True))
    endless = SettlementList("a", date(2026, 1, 15))
    for number in range(SETTLEMENT_PAGES_MAX - 1):
        endless.read(page_of(entry(f"s{number}"), has_more=True))
    with pytest.raises(ValueError, match="more than 100 pages"):
        endless.read(page_of(entry("more"), has_more=True))
    assert endless.read(page_of(entry("last"))) is None


@pytest.mark.parametrize(
    ("members", "counts"),
    [
        ({"account": "a", "date": "2026-01-15"}, True),
        ({"account": "b", "date": "2026-01-15"}, False),
        ({"account": "a", "date": "2026-01-16"}, False),
        ({"account": "b"}, False),
        ({"date": "2026-01-14"}, False),
        ({}, True),  # it does not say: it may be this day's
        ({"account": None, "date": 5}, True),
        ({"account": {"id": "a"}, "date": "2026-01-15T00:00:00Z"}, True),
    ],
)
def test_settlement_of_another_account_or_day_is_dropped(members: dict[str, object], *, counts: bool) -> None:
    settlements = SettlementList("a", date(2026, 1, 15))
    settlements.read(page_of(entry("s1", **members)))
    assert [each.id for each in settlements.found] == ["s1"] * counts


def test_entry_keeps_its_bytes_as_they_came() -> None:
    settlements = SettlementList("a", date(2026, 1, 15))
    first, second = b'{"id": "s1",  "status":"created","x":[1, 2]}', b'{"status":"created","id":"s2"}'
    settlements.read(b'{"has_more":false, "data":[' + first + b" , " + second + b"]}")
    assert [each.received for each in settlements.found] == [first, second]


# Which is ours.

LINES: list[dict[str, Any]] = [
    {"currency": "usd", "charged": 10, "refunded": -1, "fees": 2, "net": 7, "net_settlement": 7},
    {"currency": "eur", "charged": 5, "refunded": 0, "fees": 0, "net": 5, "net_settlement": 6},
    {"currency": "usd", "charged": 1, "refunded": 0, "fees": 0, "net": 1, "net_settlement": 1, "period": "2026-01-14"},
]
WHOLE: dict[str, Any] = {
    "account": "a", "date": "2026-01-15", "settlement_currency": "usd", "lines": LINES, "total_net": 14
}  # fmt: skip
BODY = json.dumps(WHOLE).encode()
KEY = "settlement_1"


def found(members: dict[str, Any]) -> FoundSettlement:
    return FoundSettlement(id="s1", status="created", members=members)


def line(number: int, **members: object) -> dict[str, Any]:
    """What we sent, with one line changed."""
    return WHOLE | {"lines": [each | members if index == number else each for index, each in enumerate(LINES)]}


@pytest.mark.parametrize(
    "members",
    [
        WHOLE,
        WHOLE | {"id": "s1", "status": "paid", "livemode": False},
        WHOLE | {"lines": list(reversed(LINES))},
        line(0, object="settlement_line", payout=None),
        {"account": "a", "body_sha256": hashlib.sha256(BODY).hexdigest()},
        WHOLE | {"body_sha256": "of an earlier program's bytes"},
    ],
)
def test_settlement_that_shows_everything_that_was_sent_is_ours(members: dict[str, Any]) -> None:
    assert found(members).has_body(BODY)


DIFFERENT: list[Callable[[], dict[str, Any]]] = [
    lambda: WHOLE | {"total_net": 15},
    lambda: WHOLE | {"total_net": "14"},
    lambda: WHOLE | {"total_net": True},
    lambda: WHOLE | {"date": "2026-01-16"},
    lambda: WHOLE | {"lines": LINES[:2]},
    lambda: WHOLE | {"lines": [*LINES, LINES[0] | {"currency": "gbp"}]},
    lambda: WHOLE | {"lines": [LINES[0], LINES[0], LINES[2]]},
    lambda: WHOLE | {"lines": [*LINES[:2], "line"]},
    lambda: WHOLE | {"lines": {}},
    lambda: line(0, charged=11),
    lambda: line(2, period="2026-01-13"),
    lambda: {name: value for name, value in WHOLE.items() if name != "lines"},
    dict,
]


@pytest.mark.parametrize("make", DIFFERENT)
def test_settlement_of_which_a_member_is_missing_or_other_is_not_ours(make: Callable[[], dict[str, Any]]) -> None:
    assert not found(make()).has_body(BODY)
    assert not found(make()).is_of(BODY, KEY)


def test_settlement_under_our_key_is_ours_by_its_amounts() -> None:
    shown = WHOLE | {"date": "20260115", "account": {"id": "a"}, "idempotency_key": KEY}
    assert not found(shown).has_body(BODY)
    assert found(shown).is_of(BODY, KEY)
    assert not found(shown).is_of(BODY, "settlement_2")
    assert not found(shown | {"total_net": 15}).is_of(BODY, KEY)
    assert not found(line(1, fees=True) | {"date": "x", "idempotency_key": KEY}).is_of(BODY, KEY)
    assert not found(shown | {"lines": None}).is_of(BODY, KEY)
    assert found(shown | {"idempotency_key": 5}).idempotency_key is None
