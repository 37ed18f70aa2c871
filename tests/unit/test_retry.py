"""When the processor is asked again: bounded whatever it wishes, and no header of its can raise.

Without these a header of 86400 would put a run to sleep for a day, or a date where seconds were expected would end it.
"""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paykit_settle.retry import (
    BACK_OFF_FIRST_S,
    BACK_OFF_MAX_S,
    RetryPolicy,
    back_off_s,
    next_try_ms,
    parse_retry_after,
)

NOW = datetime(2025, 6, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("0", 0),
        ("86400", 86400),
        ("9" * 400, 999_999_999),
        ("Tue, 10 Jun 2025 12:00:07 GMT", 7),  # NET-01
        ("Tue, 10 Jun 2025 12:00:07 -0000", 7),
        ("Tue, 10 Jun 2025 14:00:07 +0200", 7),
        ("Tuesday, 10-Jun-25 12:00:07 GMT", 7),
        ("Tue Jun 10 12:00:07 2025", 7),
        ("Tue, 10 Jun 2025 11:59:00 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ],
)
def test_retry_after_is_read_in_every_form_of_the_rfc(value: str, seconds: int) -> None:
    assert parse_retry_after(value, NOW) == seconds


def test_part_of_a_second_is_waited_out() -> None:
    now = NOW.replace(microsecond=1)
    assert parse_retry_after("Tue, 10 Jun 2025 12:00:08 GMT", now) == 8
    assert parse_retry_after("Tue, 10 Jun 2025 11:00:00 GMT", now) == 0


@pytest.mark.parametrize(
    "value",
    [None, "", "soon", "-1", "+7", "1.5", "1e3", "0x10", "NaN", "²", "٣", "7s", "7, 8", "Tue, 99 Foo 2025", ",", "1 1",
     "Tue, 10 Jun 2025 25:61:61 GMT", "Tue, 10 Jun 99999 12:00:00 GMT", "Tue, 10 Jun 2025 12:00:00 +99999999"],
)  # fmt: skip
def test_header_in_no_known_form_is_no_wish(value: str | None) -> None:
    assert parse_retry_after(value, NOW) is None


@given(st.one_of(st.text(max_size=60), st.text("0123456789 ,:+-GMTueJan", max_size=40)))
def test_no_header_raises_or_gives_a_negative_wait(value: str) -> None:
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize("wish", [None, 0])
def test_without_a_wish_the_usual_back_off_is_taken(wish: int | None) -> None:
    assert RetryPolicy().wait(wish, elapsed_s=59) is True


@pytest.mark.parametrize(
    ("wish", "elapsed_s", "wait"),
    [(7, 0, 7), (30, 0, 30), (86400, 0, 30), (86400, 29.9, 30), (86400, 30, False), (7, 53, False), (7, 52, 7)],
)
def test_wish_is_capped_and_never_outlasts_the_deadline(wish: int, elapsed_s: float, wait: int | bool) -> None:
    """NET-03, with the default cap of 30 s and deadline of 60 s."""
    got = RetryPolicy().wait(wish, elapsed_s=elapsed_s)
    assert (got, type(got)) == (wait, type(wait))


# Runs that stay unfinished.


@pytest.mark.parametrize(
    ("tries", "seconds"), [(0, 60), (1, 60), (2, 120), (3, 240), (4, 480), (5, 900), (6, 900), (10**9, 900)]
)
def test_unfinished_run_waits_a_minute_then_twice_as_long_up_to_a_quarter_of_an_hour(tries: int, seconds: int) -> None:
    assert back_off_s(tries) == seconds


@given(tries=st.integers(0, 10**6), now_ms=st.integers(0, 2**45))
def test_run_is_due_after_its_back_off_where_nothing_is_known(tries: int, now_ms: int) -> None:
    wait_ms = next_try_ms(now_ms, tries, known_ms=None) - now_ms
    assert BACK_OFF_FIRST_S * 1000 <= wait_ms <= BACK_OFF_MAX_S * 1000


@given(tries=st.integers(0, 10**6), now_ms=st.integers(0, 2**45), known_ms=st.integers(0, 2**46))
def test_run_is_due_when_it_is_known_to_go_on_and_never_in_the_past(tries: int, now_ms: int, known_ms: int) -> None:
    assert next_try_ms(now_ms, tries, known_ms=known_ms) == max(known_ms, now_ms + 1000)


@given(tries=st.integers(0, 10**6))
def test_back_off_never_gets_shorter(tries: int) -> None:
    assert back_off_s(tries) <= back_off_s(tries + 1)
