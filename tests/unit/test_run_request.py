"""A run's three arguments, from JSON and from Python: both ways must refuse the same things and name them.

Without these, a wrong date or an odd account would reach the processor, or one wrong field would hide another.
"""

from datetime import UTC, date, datetime

import pytest

from paykit_settle.days import DAYS_MAX, resolve_days
from paykit_settle.errors import InvalidRequest, UnsupportedCurrency
from paykit_settle.run_request import (
    DAY_MIN,
    NAME_LENGTH_MAX,
    REASON_LENGTH_MAX,
    RunRequest,
    check_decision,
    make_run_request,
    read_posted_request,
    read_run_request,
)
from paykit_settle.window import load_zone


def test_request_is_read_with_its_default_currency() -> None:
    expected = RunRequest(account="acct_123", date=date(2026, 1, 15), settlement_currency="usd")
    assert read_run_request({"account": "acct_123", "date": "2026-01-15"}) == expected
    assert make_run_request("acct_123", date(2026, 1, 15), "USD") == expected
    assert make_run_request("acct_123", "2026-01-15", "usd") == expected


def test_every_wrong_field_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_run_request({"account": 5, "date": "yesterday", "settlement_currency": True, "retry": 1})
    assert [fault.field for fault in caught.value.fields] == ["account", "date", "settlement_currency", "retry"]


def test_missing_fields_are_named() -> None:
    with pytest.raises(InvalidRequest, match=r"account is missing; date is missing"):
        read_run_request({})


def test_unsupported_currency_has_its_own_code() -> None:
    with pytest.raises(UnsupportedCurrency):
        make_run_request("acct_123", "2026-01-15", "xqq")


@pytest.mark.parametrize(
    "account", ["", " ", "a\nb", "a\x00b", "a\x7f", "a\x85b", "\ud800", "x" * (NAME_LENGTH_MAX + 1), None]
)
def test_odd_account_is_refused(account: object) -> None:
    with pytest.raises(InvalidRequest, match="account"):
        make_run_request(account, "2026-01-15", "usd")  # type: ignore[arg-type]


@pytest.mark.parametrize("account", ["a&b=c", "été", "x" * NAME_LENGTH_MAX, "a/b?c#d"])
def test_unusual_account_is_accepted(account: str) -> None:
    assert make_run_request(account, "2026-01-15", "usd").account == account


NOW = datetime(2026, 1, 16, 1, 0, tzinfo=UTC)
ZONE = load_zone("Etc/UTC")


def _days(**words: str | None) -> list[str]:
    arguments = {"date": None, "first": None, "last": None} | words
    return [day.isoformat() for day in resolve_days(**arguments, now=NOW, zone=ZONE)]


def test_a_date_a_word_or_a_range_are_days_in_order() -> None:
    assert _days(date="2026-01-10") == ["2026-01-10"]
    assert _days(date="yesterday") == ["2026-01-15"]
    assert _days(first="2026-01-13", last="yesterday") == ["2026-01-13", "2026-01-14", "2026-01-15"]


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"first": "2026-01-13"},
        {"last": "2026-01-13"},
        {"date": "2026-01-13", "first": "2026-01-13", "last": "2026-01-13"},
        {"first": "2026-01-14", "last": "2026-01-13"},
        {"first": "2020-01-01", "last": "2026-01-13"},
        {"date": "tomorrow"},
    ],
)
def test_days_that_mean_nothing_are_refused(words: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="--"):
        _days(**words)


def test_longest_range_is_accepted() -> None:
    assert len(_days(first="2025-01-01", last="2026-01-01")) == DAYS_MAX


def test_posted_request_may_ask_for_a_new_attempt() -> None:
    body = {"account": "acct_123", "date": "2026-01-15"}
    expected = RunRequest(account="acct_123", date=date(2026, 1, 15))
    assert read_posted_request(body) == (expected, False)
    assert read_posted_request(body | {"retry_rejected": True}) == (expected, True)
    for wrong in (1, "true", None):
        with pytest.raises(InvalidRequest, match="retry_rejected must be true or false"):
            read_posted_request(body | {"retry_rejected": wrong})
    with pytest.raises(InvalidRequest, match="must be a JSON object"):
        read_posted_request([])


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\u00a0\u3000",
        "\u200b\ufeff",
        "a\x00",
        "a\nb",
        "a\x7f",
        "a\x9bb",
        "a\u2028b",
        "a\u202eb",
        "a\ud800",
        "a\u2066",
    ],
)
def test_who_and_why_are_text_that_can_be_read(text: str) -> None:
    with pytest.raises(InvalidRequest, match="who decides"):
        check_decision(by=text)
    with pytest.raises(InvalidRequest, match="the reason"):
        check_decision(by="ada", reason=text)


def test_who_and_why_may_be_in_any_script_and_have_bounds() -> None:
    for text in (
        "Zoë O'Neil",
        "می\u200cخواهم",
        "\u0e2d\u0e32\u0e14\u0e32",
        "\u5229\u7528\u3000\u8005",
        "\U0001f9d1\u200d\U0001f4bb",
    ):
        check_decision(by=text, reason=text)
    check_decision(by="ada")
    check_decision(by="a" * NAME_LENGTH_MAX, reason="r" * REASON_LENGTH_MAX)
    for by, reason in (("a" * (NAME_LENGTH_MAX + 1), "r"), ("a", "r" * (REASON_LENGTH_MAX + 1))):
        with pytest.raises(InvalidRequest, match="not all blank"):
            check_decision(by=by, reason=reason)


@pytest.mark.parametrize("day", ["1989-12-31", "0226-01-15"])
def test_day_before_1990_is_refused_as_a_mistype(day: str) -> None:
    with pytest.raises(InvalidRequest, match="must not be before 1990-01-01"):
        read_run_request({"account": "acct_123", "date": day})
    assert read_run_request({"account": "acct_123", "date": "1990-01-01"}).date == DAY_MIN
