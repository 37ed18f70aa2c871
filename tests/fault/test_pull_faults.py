"""Reading a day from a processor that misbehaves: the right settlement, or an error that says why, never a wrong one.

Every fault here has been seen at some processor. A client that took one of them for a good answer would settle a day
without some of its rows, or with rows counted twice, and nobody would notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fake_processor import FAULTS, FakeProcessor
from fake_processor.fault_catalogue_odd import ODD_KINDS
from paykit_settle.errors import ProcessorRejected, ProcessorUnavailable, ProtocolError, RunRefused, SettlementConflict
from paykit_settle.retry import RetryPolicy
from tests.fault.settling import LIST, QUICK, at_processor, right, settle
from tests.fault.silence import unanswered
from tests.loop_clock import pass_time

PASSING = [
    "too_many_requests",
    "too_many_requests_date",
    "error_500",
    "error_502",
    "error_503",
    "reset_before_headers",
    "reset_after_effect",
    "reset_mid_body",
]
HARMLESS = ["latency", "latency_jittered", "drip", "gzip", "wrong_content_type", "overlapping_page"]
UNREADABLE = {
    "truncated_json": "page 2",
    "html": "page 2",
    "bom": "page 2",
    "invalid_utf8": "UTF-8",
    "duplicate_member": "object",
    "gzip_truncated": "gzip",
    "duplicated_page": "paging goes in circles",
    "repeated_cursor": "paging goes in circles",
    "no_rows_but_more": "has no rows, yet says that more follow",
    "missing_has_more": "has_more",
}
WRONG_ROWS = [
    "row_float",
    "row_exponent",
    "row_bool",
    "row_string",
    "row_null",
    "row_beyond_64_bits",
    "row_missing",
]


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as fake:
        yield fake


@pytest.mark.parametrize("name", PASSING)
async def test_fault_that_passes_is_retried_to_the_right_settlement(fake: FakeProcessor, name: str) -> None:
    rule = fake.fault(name, route=LIST, after=1, count=2)
    await settle(fake)
    assert rule.fired == 2
    assert at_processor(fake) == [right(fake)]


@pytest.mark.parametrize("name", PASSING)
async def test_fault_that_lasts_ends_as_unavailable_with_nothing_posted(fake: FakeProcessor, name: str) -> None:
    rule = fake.fault(name, route=LIST, after=1)
    with pytest.raises(ProcessorUnavailable) as caught:
        await settle(fake)
    assert rule.fired == QUICK.attempts_max
    assert caught.value.exchange is not None
    assert caught.value.exchange.attempt == QUICK.attempts_max
    assert at_processor(fake) == []


@pytest.mark.parametrize("name", PASSING)
async def test_run_again_after_the_fault_is_right(fake: FakeProcessor, name: str) -> None:
    fake.fault(name, route=LIST, after=2)
    with pytest.raises(ProcessorUnavailable):
        await settle(fake)
    fake.heal()
    await settle(fake)
    assert at_processor(fake) == [right(fake)]


@pytest.mark.parametrize("name", HARMLESS)
async def test_fault_that_changes_no_row_changes_no_number(fake: FakeProcessor, name: str) -> None:
    quick = {"latency": {"wait_ms": 2}, "latency_jittered": {"wait_max_ms": 5}, "drip": {"wait_ms": 0}}
    rule = fake.fault(name, route=LIST, **quick.get(name, {}))
    await settle(fake)
    assert rule.fired > 2
    assert at_processor(fake) == [right(fake)]


@pytest.mark.parametrize("name", sorted(UNREADABLE))
async def test_answer_that_is_none_stops_the_run_and_says_why(fake: FakeProcessor, name: str) -> None:
    fake.fault(name, route=LIST, nth=2)
    with pytest.raises(ProtocolError, match=UNREADABLE[name]):
        await settle(fake)
    assert at_processor(fake) == []


@pytest.mark.parametrize("name", WRONG_ROWS)
@pytest.mark.parametrize("field", ["amount", "fee"])
async def test_wrong_type_stops_the_run_and_names_page_row_and_field(
    fake: FakeProcessor, name: str, field: str
) -> None:
    fake.fault(name, nth=2, field=field)
    with pytest.raises(ProtocolError, match=rf"page 2 row \d \(txn_0\d\).*{field}"):
        await settle(fake)
    assert at_processor(fake) == []


@pytest.mark.parametrize("field", ["id", "type", "currency", "status"])
async def test_missing_text_stops_the_run_too(fake: FakeProcessor, field: str) -> None:
    fake.fault("row_null", nth=1, field=field)
    with pytest.raises(ProtocolError, match=field):
        await settle(fake)
    assert at_processor(fake) == []


async def test_optional_members_may_be_missing(fake: FakeProcessor) -> None:
    for field in ("net", "created", "description", "source", "fee_details"):
        fake.fault("row_missing", field=field)
    await settle(fake)
    assert at_processor(fake) == [right(fake)]


@pytest.mark.parametrize(
    ("name", "reason"), [("row_contradicts_itself", "is not amount"), ("row_changes", "came twice")]
)
async def test_rows_that_contradict_refuse_the_run_by_id(fake: FakeProcessor, name: str, reason: str) -> None:
    fake.fault(name, nth=2)
    with pytest.raises(RunRefused, match=reason) as caught:
        await settle(fake)
    assert [problem.kind for problem in caught.value.problems] == ["row"]
    assert at_processor(fake) == []


@pytest.mark.parametrize(("name", "status"), [("unauthorized", 401), ("forbidden", 403), ("deleted_cursor", 400)])
async def test_refusal_is_final_and_asked_for_once(fake: FakeProcessor, name: str, status: int) -> None:
    rule = fake.fault(name, route=LIST, after=1)
    with pytest.raises(ProcessorRejected) as caught:
        await settle(fake)
    assert (caught.value.status, rule.fired) == (status, 1)
    assert at_processor(fake) == []


async def test_redirect_is_not_followed(fake: FakeProcessor) -> None:
    fake.fault("redirect", route=LIST)
    with pytest.raises(ProtocolError, match="302"):
        await settle(fake)
    assert {record.path for record in fake.requests} == {"/v1/balance_transactions"}


async def test_rate_limit_slows_a_run_and_spoils_nothing(fake: FakeProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake's time stands still except for the client's waits, so that nothing but those refills the bucket."""
    waits: list[float] = []
    really_sleep = asyncio.sleep

    async def sleep(delay: float, result: object = None) -> object:
        waits.append(delay)
        fake.clock.advance(int(delay))
        return await really_sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    fake.clock.freeze()
    rule = fake.fault("rate_limit", per_second=1, burst=1)
    await settle(fake, policy=RetryPolicy(attempts_max=2))
    statuses = [record.status for record in fake.requests]
    assert statuses == [200, *[429, 200] * (len(statuses) // 2)]
    assert waits == [1] * statuses.count(429)  # as long as each Retry-After says, and never otherwise
    assert statuses.count(429) > 3
    assert rule.fired == len(fake.requests)
    assert at_processor(fake) == [right(fake)]


async def test_wait_longer_than_the_request_may_take_is_an_error_in_time(fake: FakeProcessor) -> None:
    hasty = RetryPolicy(attempts_max=2, wait_first_ms=1, request_timeout_s=60, deadline_s=600)
    with unanswered(LIST, patience_s=60) as left, pytest.raises(ProcessorUnavailable, match="ReadTimeout"):
        await settle(fake, policy=hasty)
    assert left == [1, 2]


async def test_body_that_drips_without_end_is_bounded_by_the_deadline(
    fake: FakeProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second passes with each byte, which is far less than the client would wait for the next one."""
    really_sleep = asyncio.sleep

    async def sleep(delay: float, result: object = None) -> object:
        if delay == 1:
            pass_time(1)
        return await really_sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    bounded = RetryPolicy(attempts_max=5, wait_first_ms=1, request_timeout_s=600, deadline_s=60)
    rule = fake.fault("drip", route=LIST, piece_bytes=1, wait_ms=1_000)
    with pytest.raises(ProcessorUnavailable, match="within 60 s"):
        await settle(fake, policy=bounded)
    assert rule.fired == 1


async def test_rows_inserted_meanwhile_do_not_shift_the_pages(fake: FakeProcessor) -> None:
    rule = fake.fault("rows_inserted", rows=3)
    before = right(fake)
    await settle(fake, page_size=2)
    assert rule.fired > 5
    assert at_processor(fake) == [before] == [right(fake)]


async def test_row_that_turns_available_meanwhile_counts_as_it_was_read(fake: FakeProcessor) -> None:
    before = right(fake)
    fake.fault("pending_turns_available", nth=3)  # txn_05 has been read by then, txn_12 has not
    posted = await settle(fake)
    lines = {line.currency: line for line in posted.settlement.lines}
    assert (lines["usd"].charged, lines["gbp"].refunded) == (25000, -700)
    assert before["total_net"] == 145199


async def test_late_row_makes_the_next_run_a_conflict_and_no_second_settlement(fake: FakeProcessor) -> None:
    fake.fault("late_rows", rows=1)
    await settle(fake)
    fake.heal()
    with pytest.raises(SettlementConflict):
        await settle(fake)
    assert len(at_processor(fake)) == 1


def test_every_fault_of_a_list_has_its_claim_here() -> None:
    named = {*PASSING, *HARMLESS, *UNREADABLE, *WRONG_ROWS, "row_contradicts_itself", "row_changes", "unauthorized"}
    named |= {"forbidden", "deleted_cursor", "redirect", "rate_limit", "rows_inserted", "pending_turns_available"}
    # No page betrays a false has_more; only a processor that can be asked for a count could.
    named |= {"late_rows", "false_has_more"}
    # Those of odd processors have theirs in `test_odd_lists.py` and `test_held_rows.py`.
    odd = {kind.name for kind in ODD_KINDS}
    assert {name for name, kind in FAULTS.items() if kind.route in ("*", LIST)} - odd == named
