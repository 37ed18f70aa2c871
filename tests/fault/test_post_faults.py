"""Posting a settlement to a processor that misbehaves: exactly one, the right one, or an error that does not lie.

Here money is lost or paid twice: an answer that never came is no refusal, and a second key would be a second
settlement. Each claim is checked by what the processor holds afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fake_processor import FAULTS, FakeProcessor
from fake_processor.keys import KEY_AGE_MAX_S
from paykit_settle.errors import OutcomeUnknown, ProcessorRejected, ProcessorUnavailable, RunRefused
from paykit_settle.retry import RetryPolicy
from tests.fault.settling import POST, QUICK, at_processor, right, settle
from tests.loop_clock import everybody_waits, pass_time

NO_EFFECT = [
    "too_many_requests",
    "too_many_requests_date",
    "error_502",
    "error_503",
    "in_flight",
    "reset_before_headers",
]
EFFECT = [
    "reset_after_effect",
    "reset_mid_body",
    "truncated_json",
    "html",
    "bom",
    "invalid_utf8",
    "duplicate_member",
    "gzip_truncated",
]
CERTAIN = {"too_many_requests", "too_many_requests_date"}


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as fake:
        yield fake


def posts(fake: FakeProcessor) -> list[tuple[str | None, bytes]]:
    """Key and body of every POST that came."""
    return [(record.idempotency_key, record.body) for record in fake.requests if record.method == "POST"]


@pytest.mark.parametrize("name", NO_EFFECT + EFFECT)
async def test_fault_that_passes_leaves_exactly_one_right_settlement(fake: FakeProcessor, name: str) -> None:
    fake.fault(name, route=POST, count=2)
    posted = await settle(fake)
    assert (posted.settlement_id, posted.total_net) == ("setl_0001", 145199)
    assert at_processor(fake) == [right(fake)]


@pytest.mark.parametrize("name", NO_EFFECT + EFFECT)
async def test_every_attempt_sends_the_same_bytes_under_the_same_key(fake: FakeProcessor, name: str) -> None:
    fake.fault(name, route=POST, count=2)
    await settle(fake)
    assert len(posts(fake)) == 3
    assert len(set(posts(fake))) == 1


@pytest.mark.parametrize("name", NO_EFFECT + EFFECT)
async def test_fault_that_lasts_is_called_unknown_unless_it_is_certain(fake: FakeProcessor, name: str) -> None:
    fake.fault(name, route=POST)
    with pytest.raises(ProcessorUnavailable if name in CERTAIN else OutcomeUnknown):
        await settle(fake)
    assert at_processor(fake) == ([right(fake)] if name in EFFECT else [])


@pytest.mark.parametrize("name", NO_EFFECT + EFFECT)
async def test_run_again_after_the_fault_settles_once(fake: FakeProcessor, name: str) -> None:
    fake.fault(name, route=POST)
    with pytest.raises((ProcessorUnavailable, OutcomeUnknown)):
        await settle(fake)
    fake.heal()
    posted = await settle(fake)
    assert posted.settlement_id == "setl_0001"
    assert at_processor(fake) == [right(fake)]


@pytest.mark.parametrize("name", ["latency", "latency_jittered", "drip", "gzip", "wrong_content_type"])
async def test_fault_that_changes_no_byte_changes_nothing(fake: FakeProcessor, name: str) -> None:
    quick = {"latency": {"wait_ms": 2}, "latency_jittered": {"wait_max_ms": 5}, "drip": {"wait_ms": 1}}
    fake.fault(name, route=POST, **quick.get(name, {}))
    await settle(fake)
    assert len(posts(fake)) == 1
    assert at_processor(fake) == [right(fake)]


async def test_timed_out_post_is_found_in_flight_and_then_replayed(
    fake: FakeProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first POST is worked on until its retry has been told that it is in flight."""
    hasty = RetryPolicy(attempts_max=30, wait_first_ms=10, retry_after_max_s=0, request_timeout_s=60, deadline_s=600)
    fake.fault("latency", route=POST, count=1, wait_ms=3_600_000)
    told, really_sleep = asyncio.Event(), asyncio.sleep

    async def sleep(delay: float, result: object = None) -> object:
        if delay == 3_600:
            await everybody_waits()
            pass_time(60)
            await told.wait()
            return result
        if 409 in {record.status for record in fake.requests}:
            told.set()
        return await really_sleep(delay, result)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    posted = await settle(fake, policy=hasty)
    statuses = [record.status for record in fake.requests if record.method == "POST"]
    assert (statuses[0], set(statuses)) == (409, {200, 409})
    assert posted.settlement_id == "setl_0001"
    assert at_processor(fake) == [right(fake)]


async def test_replayed_500_without_effect_stays_unknown(fake: FakeProcessor) -> None:
    fake.fault("error_500", route=POST, count=1)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="500"):
            await settle(fake)
    assert at_processor(fake) == []


async def test_replayed_500_with_effect_stays_unknown_and_is_never_settled_twice(fake: FakeProcessor) -> None:
    fake.fault("error_500_after_effect", count=1)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="500"):
            await settle(fake)
    assert at_processor(fake) == [right(fake)]


async def test_500_whose_key_was_forgotten_can_be_settled_anew(fake: FakeProcessor) -> None:
    fake.fault("error_500", route=POST, count=1)
    with pytest.raises(OutcomeUnknown):
        await settle(fake)
    fake.clock.advance(KEY_AGE_MAX_S)
    await settle(fake)
    assert at_processor(fake) == [right(fake)]


@pytest.mark.parametrize(("name", "status"), [("unauthorized", 401), ("forbidden", 403)])
async def test_refusal_at_the_door_is_final_and_settles_nothing(fake: FakeProcessor, name: str, status: int) -> None:
    fake.fault(name, route=POST)
    with pytest.raises(ProcessorRejected) as caught:
        await settle(fake)
    assert (caught.value.status, len(posts(fake))) == (status, 1)
    assert at_processor(fake) == []


async def test_refusal_after_an_unanswered_attempt_says_nothing_of_that_attempt(fake: FakeProcessor) -> None:
    fake.fault("reset_after_effect", route=POST, nth=1)
    fake.fault("unauthorized", route=POST, nth=2)
    with pytest.raises(OutcomeUnknown):
        await settle(fake)
    assert at_processor(fake) == [right(fake)]


async def test_redirect_carries_the_settlement_nowhere(fake: FakeProcessor) -> None:
    fake.fault("redirect", route=POST)
    with pytest.raises(OutcomeUnknown, match="302"):
        await settle(fake)
    assert [record.path for record in fake.requests if "elsewhere" in record.path] == []
    assert at_processor(fake) == []


async def test_rate_limit_on_posts_is_certain_to_have_no_effect(fake: FakeProcessor) -> None:
    fake.clock.freeze()
    fake.fault("rate_limit", route=POST, per_second=1)
    await settle(fake)
    with pytest.raises(ProcessorUnavailable):
        await settle(fake)
    fake.clock.advance(1)
    await settle(fake)
    assert at_processor(fake) == [right(fake)]
    assert len(posts(fake)) == 1 + QUICK.attempts_max + 1


RATES = ["rate_missing", "rate_zero", "rate_negative", "rate_nan"]


@pytest.mark.parametrize("name", RATES)
async def test_rate_that_is_none_refuses_the_run_and_names_the_currency(fake: FakeProcessor, name: str) -> None:
    fake.fault(name, currency="gbp")
    with pytest.raises(RunRefused) as caught:
        await settle(fake)
    assert [(problem.kind, problem.subject) for problem in caught.value.problems] == [("rate", "gbp")]
    assert posts(fake) == []


@pytest.mark.parametrize("name", RATES)
async def test_wrong_rate_of_a_currency_that_is_not_needed_is_no_matter(fake: FakeProcessor, name: str) -> None:
    fake.fault(name, currency="isk")
    await settle(fake)
    assert at_processor(fake) == [right(fake)]


async def test_stale_table_refuses_the_run_and_names_its_age(fake: FakeProcessor) -> None:
    fake.fault("rate_stale", days=30)
    with pytest.raises(RunRefused, match=r"is 728 h older than the window's end"):
        await settle(fake)
    assert posts(fake) == []


def test_every_fault_of_a_post_or_a_rate_has_its_claim_here() -> None:
    named = {*NO_EFFECT, *EFFECT, *RATES, "rate_stale", "error_500", "error_500_after_effect", "redirect"}
    named |= {"latency", "latency_jittered", "drip", "gzip", "wrong_content_type", "rate_limit"}
    named |= {"unauthorized", "forbidden"}
    routes = ("*", POST, "GET /v1/fx/rates")
    assert {name for name, kind in FAULTS.items() if kind.route in routes} == named
