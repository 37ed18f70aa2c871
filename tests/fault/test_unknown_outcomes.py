"""What a run makes of a POST without a certain answer: look up, send again, or ask a person; it never guesses.

Without these, a time-out would be booked as a failure and settled again under a new key, or a refusal be repeated for
ever. Each test names what the processor did and holds the state, the error and the number of settlements to it.
"""

from collections.abc import AsyncIterator
from datetime import date as Date
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.absence import KEY_KEPT_MS
from paykit_settle.errors import (
    InvalidRequest,
    OutcomeUnknown,
    ProcessorRejected,
    ProcessorUnavailable,
    RunRefused,
    SettleError,
    SettlementConflict,
)
from paykit_settle.lifecycle import State
from paykit_settle.models import PostedSettlement
from paykit_settle.posting import ATTEMPTS_MAX
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import RunOptions
from tests.fault.silence import unanswered
from tests.fault.stage import (
    ACCOUNT,
    DAY,
    LIST,
    NO_LOOK_UP,
    SETTLEMENTS,
    TOTAL,
    Host,
    a_processor,
    check_truth,
    host,
    of_kind,
    posts,
    refuse,
    scripted,
    wire_row,
)

LOOK_UP = f"GET {SETTLEMENTS}"
POST = f"POST {SETTLEMENTS}"
ABSENCE_AGE_S = RunOptions().absence_age_s
ONE_TRY = RetryPolicy(attempts_max=1, wait_first_ms=1, request_timeout_s=30, deadline_s=60)


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as processor:
        yield processor


@pytest.fixture
async def here(fake: FakeProcessor, tmp_path: Path) -> AsyncIterator[Host]:
    async with host(tmp_path / "paykit.db", fake.url) as one:
        yield one


@pytest.fixture
async def once(fake: FakeProcessor, tmp_path: Path) -> AsyncIterator[Host]:
    """A host whose client does not retry, so that one fault is one failed request."""
    async with host(tmp_path / "once.db", fake.url, policy=ONE_TRY) as one:
        yield one


def received(fake: FakeProcessor) -> int:
    return len(fake.state.settlements(account=ACCOUNT))


async def check_posted(here: Host, fake: FakeProcessor, *, attempt: int = 1) -> None:
    run = await here.stored()
    assert (run.state, run.attempt, run.owner, run.error_code) == (State.POSTED, attempt, None, None)
    assert (received(fake), await here.balance()) == (1, TOTAL)
    await check_truth(here, fake)


async def check_stands(here: Host, state: State, code: str) -> None:
    run = await here.stored()
    assert (run.state, run.error_code, run.owner) == (state, code, None)


# The client's own retries, under the same key.


async def test_outgoing_key_is_stable_over_retries(fake: FakeProcessor, tmp_path: Path) -> None:
    """IDM-13: the processor stores the settlement and never answers; the second request is answered."""
    patient = RetryPolicy(attempts_max=2, wait_first_ms=1, request_timeout_s=60, deadline_s=600)
    async with host(tmp_path / "paykit.db", fake.url, policy=patient) as here:
        with unanswered(POST, nth=[1], patience_s=60) as left:
            await here.run()
        assert left == [1]
        assert len(posts(fake)) == 2
        assert len({request.idempotency_key for request in posts(fake)}) == 1
        assert len({request.body for request in posts(fake)}) == 1
        await check_posted(here, fake)


@pytest.mark.parametrize("fault", ["reset_before_headers", "reset_after_effect", "reset_mid_body"])
async def test_broken_connection_is_retried_with_the_same_key(fake: FakeProcessor, here: Host, fault: str) -> None:
    """NET-05: the server closes without a byte; GET and POST alike are sent again, and there is one settlement."""
    for route in (f"GET {LIST}", "GET /v1/fx/rates", LOOK_UP, POST):
        fake.fault(fault, route=route, nth=1)
    await here.run()
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1
    assert len(posts(fake)) == 2
    await check_posted(here, fake)


async def test_idle_connection_that_the_server_closed_is_no_failure(fake: FakeProcessor, tmp_path: Path) -> None:
    """NET-05: request 1 is answered, request 2 on the same connection gets no byte and is sent once more."""
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await here.client.find_settlements(ACCOUNT, Date.fromisoformat(DAY))
        fake.fault("reset_before_headers", nth=1)
        await here.run()
        await check_posted(here, fake)


# Sent, and no certain answer.


@pytest.mark.parametrize("fault", ["reset_after_effect", "reset_mid_body", "error_500_after_effect", "html"])
async def test_settlement_that_was_stored_without_an_answer_is_found_and_booked(
    fake: FakeProcessor, once: Host, fault: str
) -> None:
    fake.fault(fault, route=POST)
    await once.run()
    assert len(posts(fake)) == 1
    await check_posted(once, fake)


async def test_time_out_after_it_was_stored_is_found_and_booked(fake: FakeProcessor, tmp_path: Path) -> None:
    once = RetryPolicy(attempts_max=1, wait_first_ms=1, request_timeout_s=60, deadline_s=600)
    async with host(tmp_path / "paykit.db", fake.url, policy=once) as here:
        with unanswered(POST, patience_s=60) as left:
            await here.run()
        assert left == [1]
        assert len(posts(fake)) == 1
        await check_posted(here, fake)


@pytest.mark.parametrize("fault", ["error_502", "error_503", "reset_before_headers", "redirect"])
async def test_post_that_failed_before_it_was_stored_is_unknown_until_it_is_sent_again(
    fake: FakeProcessor, once: Host, fault: str
) -> None:
    fake.fault(fault, route=POST, nth=1)
    with pytest.raises(OutcomeUnknown):
        await once.run()
    await check_stands(once, State.UNKNOWN, "outcome_unknown")
    assert await once.balance() == 0
    assert [type(outcome) for _, outcome in await once.resume()] == [PostedSettlement]
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1
    await check_posted(once, fake)


async def test_500_that_is_only_ever_replayed_leads_to_the_next_attempt(fake: FakeProcessor, here: Host) -> None:
    fake.fault("error_500", route=POST, nth=1)
    assert isinstance(await here.attempt(), OutcomeUnknown)
    here.ticks.advance(ABSENCE_AGE_S)
    await here.resume()
    first, second, third = posts(fake)
    assert first.idempotency_key == second.idempotency_key != third.idempotency_key
    assert len({request.body for request in posts(fake)}) == 1
    assert [attempt.outcome for attempt in (await here.history()).attempts] == ["absent", "posted"]
    await check_posted(here, fake, attempt=2)


async def test_attempts_of_one_run_are_bounded(fake: FakeProcessor, here: Host) -> None:
    cue = scripted(fake)
    cue.instead = refuse(500, replayed=True)
    for _ in range(ATTEMPTS_MAX + 3):
        assert isinstance(await here.attempt(), OutcomeUnknown)
        here.ticks.advance(ABSENCE_AGE_S)
    assert len({request.idempotency_key for request in posts(fake)}) == ATTEMPTS_MAX
    await check_stands(here, State.UNKNOWN, "outcome_unknown")
    assert ((await here.stored()).needs_person, await here.balance()) == (1, 0)


async def test_500_after_the_effect_is_found_although_its_key_only_replays_the_500(
    fake: FakeProcessor, here: Host
) -> None:
    fake.fault("error_500_after_effect", route=POST, nth=1)
    await here.run()
    assert len({request.idempotency_key for request in posts(fake)}) == 1
    await check_posted(here, fake)


async def test_key_in_flight_elsewhere_is_tried_again_with_the_same_key(fake: FakeProcessor, here: Host) -> None:
    fake.fault("in_flight", route=POST, nth=1)
    await here.run()
    assert [request.status for request in posts(fake)] == [409, 200]
    assert len({request.idempotency_key for request in posts(fake)}) == 1
    await check_posted(here, fake)


async def test_key_that_stays_in_flight_is_unknown(fake: FakeProcessor, here: Host) -> None:
    fake.fault("in_flight", route=POST)
    with pytest.raises(OutcomeUnknown):
        await here.run()
    await check_stands(here, State.UNKNOWN, "outcome_unknown")
    fake.heal()
    await here.resume()
    await check_posted(here, fake)


async def test_key_used_for_something_that_is_not_there_is_for_a_person_and_never_a_new_key(
    fake: FakeProcessor, here: Host
) -> None:
    cue = scripted(fake)
    cue.instead = refuse(400, type="idempotency_error", code="idempotency_key_reused")
    for _ in range(3):
        assert isinstance(await here.attempt(), OutcomeUnknown)
        await check_stands(here, State.UNKNOWN, "outcome_unknown")
        assert (await here.stored()).needs_person == 1
        here.ticks.advance(2 * ABSENCE_AGE_S)
    assert len({request.idempotency_key for request in posts(fake)}) == 1


# Keys that the processor has forgotten.


async def lose(here: Host, fake: FakeProcessor, *, age_ms: int) -> None:
    """A run that is unknown since that long: sent, nothing stored, no certain answer."""
    fake.fault("error_502", route=POST)
    assert isinstance(await here.attempt(), OutcomeUnknown)
    fake.heal()
    await here.change("UPDATE attempts SET sent_at_ms = sent_at_ms - ?", age_ms)


async def test_key_that_the_processor_forgot_leads_to_the_next_attempt_when_nothing_is_there(
    fake: FakeProcessor, here: Host
) -> None:
    await lose(here, fake, age_ms=KEY_KEPT_MS + 1)
    sent = len(posts(fake))
    for _ in range(2):
        assert isinstance(await here.attempt(), OutcomeUnknown)
        assert len(posts(fake)) == sent  # it is only looked up
        here.ticks.advance(ABSENCE_AGE_S - 1)
    here.ticks.advance(2)
    await here.resume()
    keys = [request.idempotency_key for request in posts(fake)]
    assert keys[-1] not in keys[:-1]
    assert [attempt.outcome for attempt in (await here.history()).attempts] == ["absent", "posted"]
    await check_posted(here, fake, attempt=2)


async def test_younger_key_is_used_again(fake: FakeProcessor, here: Host) -> None:
    await lose(here, fake, age_ms=KEY_KEPT_MS - 3_600_000)
    await here.resume()
    assert len({request.idempotency_key for request in posts(fake)}) == 1
    await check_posted(here, fake)


async def test_forgotten_key_is_not_sent_again_where_nothing_can_be_looked_up(fake: FakeProcessor, once: Host) -> None:
    """The settlement is there, its key is not: a second send would be a second settlement."""
    cue = scripted(fake)
    cue.instead = NO_LOOK_UP
    fake.fault("reset_after_effect", route=POST)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    fake.heal()
    fake.clock.advance(25 * 3600)
    await once.change("UPDATE attempts SET sent_at_ms = sent_at_ms - ?", 25 * 3600 * 1000)
    ((_, outcome),) = await once.resume()
    assert isinstance(outcome, OutcomeUnknown)
    assert received(fake) == 1
    await check_stands(once, State.UNKNOWN, "outcome_unknown")
    cue.behave()
    assert await once.resume() == []  # it waits for a person
    await once.run()
    await check_posted(once, fake)


# Look-ups that are not offered, or fail.


async def test_processor_without_a_look_up_is_sent_the_same_bytes_again(fake: FakeProcessor, once: Host) -> None:
    cue = scripted(fake)
    cue.instead = NO_LOOK_UP
    fake.fault("reset_after_effect", route=POST, nth=1)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    await check_stands(once, State.UNKNOWN, "outcome_unknown")
    await once.run()
    cue.behave()
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1
    await check_posted(once, fake)


async def test_look_up_that_fails_before_the_first_send_leaves_the_run_failed(fake: FakeProcessor, once: Host) -> None:
    fake.fault("error_503", route=LOOK_UP, retry_after_s=0)
    with pytest.raises(ProcessorUnavailable):
        await once.run()
    assert posts(fake) == []
    await check_stands(once, State.FAILED, "processor_unavailable")
    fake.heal()
    fake.state.update_transaction(ACCOUNT, "txn_01", amount=1)  # what is frozen stays
    await once.run()
    await check_posted(once, fake)


async def test_what_was_sent_is_sent_again_under_its_key_although_nobody_can_look(
    fake: FakeProcessor, once: Host
) -> None:
    fake.fault("reset_after_effect", route=POST, nth=1)
    fake.fault("error_503", route=LOOK_UP, after=1, retry_after_s=0)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    await check_stands(once, State.UNKNOWN, "outcome_unknown")
    await once.run()
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1
    assert len(posts(fake)) == 2
    fake.heal()
    await check_posted(once, fake)


async def test_crash_after_a_send_and_then_a_look_up_that_fails_is_unknown_and_not_failed(
    fake: FakeProcessor, once: Host
) -> None:
    """Frozen and sent, then the process died: that nothing was taken is more than anybody knows."""
    fake.fault("reset_after_effect", route=POST)
    assert isinstance(await once.attempt(), PostedSettlement | OutcomeUnknown)
    await once.change("UPDATE runs SET state = 'frozen', owner = 'dead', settlement_id = NULL")
    await once.change("UPDATE attempts SET outcome = NULL, ended_at_ms = NULL, settlement_id = NULL")
    for table in ("entries", "journals", "accounts"):
        await once.change(f"DELETE FROM {table}")  # noqa: S608
    fake.heal()
    fake.fault("error_503", route=LOOK_UP, retry_after_s=0)
    fake.fault("error_503", route=POST, retry_after_s=0)
    ((_, outcome),) = await once.resume()
    assert isinstance(outcome, OutcomeUnknown)
    await check_stands(once, State.UNKNOWN, "outcome_unknown")
    fake.heal()
    await once.resume()
    await check_posted(once, fake)


@pytest.mark.parametrize("status", [401, 403, 404, 429])
async def test_refusal_of_a_later_send_says_nothing_of_an_earlier_one(
    fake: FakeProcessor, once: Host, status: int
) -> None:
    """Sent and stored unseen; no look-up; then the key is revoked: the run stays unknown, it is not failed."""
    cue = scripted(fake)
    cue.instead = NO_LOOK_UP
    fake.fault("reset_after_effect", route=POST)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    await once.change("UPDATE runs SET state = 'frozen', owner = 'dead'")
    refused = refuse(status)
    cue.instead = lambda request: NO_LOOK_UP(request) or refused(request)
    assert isinstance(await once.attempt(), SettleError)
    assert (await once.stored()).state is State.UNKNOWN
    cue.behave()
    fake.heal()
    await once.run()
    await check_posted(once, fake)


async def test_refusal_that_was_certain_leaves_no_doubt_about_the_next_send(fake: FakeProcessor, once: Host) -> None:
    """Refused twice, with a day between: failed and not unknown, and the key that nobody took is used at last."""
    cue = scripted(fake)
    refused = refuse(401)
    cue.instead = lambda request: NO_LOOK_UP(request) or refused(request)
    for _ in range(2):
        assert isinstance(await once.attempt(), ProcessorRejected)
        await check_stands(once, State.FAILED, "processor_rejected")
        await once.change("UPDATE attempts SET sent_at_ms = sent_at_ms - ?", 25 * 3600 * 1000)
    cue.behave()
    await once.run()
    await check_posted(once, fake)


# Refusals.


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_refusal_that_is_not_about_the_content_is_failed_and_simply_run_again(
    fake: FakeProcessor, here: Host, status: int
) -> None:
    cue = scripted(fake)
    cue.instead = refuse(status, code="nope")
    with pytest.raises(ProcessorRejected) as caught:
        await here.run()
    assert caught.value.status == status
    await check_stands(here, State.FAILED, "processor_rejected")
    assert await here.resume() == []
    cue.behave()
    fake.state.update_transaction(ACCOUNT, "txn_01", amount=1)  # what is frozen stays
    await here.run()
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1
    await check_posted(here, fake)


async def test_processor_that_is_not_there_is_failed_and_simply_run_again(fake: FakeProcessor, once: Host) -> None:
    fake.fault("too_many_requests", route=POST, nth=1, retry_after_s=0)
    with pytest.raises(ProcessorUnavailable):
        await once.run()
    await check_stands(once, State.FAILED, "processor_unavailable")
    await once.run()
    await check_posted(once, fake)


@pytest.mark.parametrize("status", [400, 422])
async def test_rejected_content_is_tried_anew_on_request_only(fake: FakeProcessor, here: Host, status: int) -> None:
    cue = scripted(fake)
    cue.instead = refuse(status, code="amount_wrong")
    with pytest.raises(ProcessorRejected, match="amount_wrong"):
        await here.run()
    await check_stands(here, State.REJECTED, "processor_rejected")
    cue.behave()
    asked = len(fake.requests)
    with pytest.raises(ProcessorRejected, match="on request only"):
        await here.run()
    assert await here.resume() == []
    assert len(fake.requests) == asked
    fake.state.update_transaction(ACCOUNT, "txn_01", amount=20001, net=19391)
    posted = await here.run(retry_rejected=True)
    first, second = posts(fake)[0], posts(fake)[-1]
    assert first.idempotency_key != second.idempotency_key
    assert first.body != second.body
    assert posted.total_net == TOTAL + 1
    history = await here.history()
    assert [(each.number, each.outcome) for each in history.attempts] == [(1, "rejected"), (2, "posted")]
    assert history.run.pull == 2
    await check_truth(here, fake)


async def test_retrying_a_rejected_day_waits_for_a_fresh_pull_that_may_be_cut_off_too(
    fake: FakeProcessor, here: Host
) -> None:
    cue = scripted(fake)
    cue.instead = refuse(400)
    assert isinstance(await here.attempt(), ProcessorRejected)
    cue.behave()
    fake.fault("unauthorized", route=f"GET {LIST}", nth=1)
    assert isinstance(await here.attempt(retry_rejected=True), ProcessorRejected)
    await check_stands(here, State.FAILED, "processor_rejected")
    await here.run()
    await check_posted(here, fake, attempt=2)


async def test_run_that_is_refused_by_its_rows_reads_them_again_next_time(fake: FakeProcessor, here: Host) -> None:
    fake.state.update_transaction(ACCOUNT, "txn_01", status="failed")
    assert isinstance(await here.attempt(), RunRefused)
    await check_stands(here, State.FAILED, "run_refused")
    fake.state.update_transaction(ACCOUNT, "txn_01", status="available")
    await here.run()
    await check_posted(here, fake)


async def test_cursor_that_the_processor_no_longer_knows_starts_the_pull_anew(tmp_path: Path) -> None:
    rows = [wire_row(f"t{number}", 100 * number, second=number) for number in range(1, 5)]
    async with (
        a_processor(rows) as fake,
        host(tmp_path / "paykit.db", fake.url, options=RunOptions(page_size=2)) as here,
    ):
        fake.fault("error_500", route=f"GET {LIST}", after=1)
        assert isinstance(await here.attempt(), ProcessorUnavailable)
        fake.heal()
        fake.state.remove_transaction(ACCOUNT, "t3")
        assert isinstance(await here.attempt(), ProcessorRejected)
        assert (await here.run()).total_net == 700
        await check_truth(here, fake)


async def test_failure_in_the_middle_of_paging_settles_nothing_and_goes_on_from_there(tmp_path: Path) -> None:
    """PAG-14."""
    rows = [wire_row(f"t{number}", 100 * number, second=number) for number in range(1, 5)]
    async with (
        a_processor(rows) as fake,
        host(tmp_path / "paykit.db", fake.url, options=RunOptions(page_size=2)) as here,
    ):
        fake.fault("error_500", route=f"GET {LIST}", after=1)
        assert isinstance(await here.attempt(), ProcessorUnavailable)
        await check_stands(here, State.FAILED, "processor_unavailable")
        assert (posts(fake), await here.balance()) == ([], 0)
        fake.heal()
        asked = len(of_kind(fake, "GET", LIST))
        assert (await here.run()).total_net == 1000
        (again,) = of_kind(fake, "GET", LIST)[asked:]
        assert ("starting_after", "t3") in again.query
        await check_truth(here, fake)


async def test_negative_settlement_takes_the_balance_down(tmp_path: Path) -> None:
    """ROW-13: the balance falls by 4059, a debit, never a credit of 4059 and never 0."""
    rows = [wire_row("c1", 1000, fee=59), wire_row("r1", -5000, kind="refund")]
    async with a_processor(rows) as fake, host(tmp_path / "paykit.db", fake.url) as here:
        assert (await here.run()).total_net == -4059
        assert await here.balance() == -4059
        await check_truth(here, fake)


# A person decides.


async def unknown(here: Host, fake: FakeProcessor, fault: str) -> None:
    fake.fault(fault, route=POST)
    fake.fault("error_503", route=LOOK_UP, after=1, retry_after_s=0)
    assert isinstance(await here.attempt(), OutcomeUnknown)
    fake.heal()


async def test_unknown_run_resolved_as_posted_is_booked_once(fake: FakeProcessor, once: Host) -> None:
    await unknown(once, fake, "reset_after_effect")
    assert (await once.resolve("setl_0001")).state is State.POSTED
    (resolution,) = (await once.history()).resolutions
    assert (resolution.decided_by, resolution.reason, resolution.decision) == ("ada", "a look at the books", "posted")
    assert (await once.run()).replayed
    await check_posted(once, fake)
    with pytest.raises(InvalidRequest):
        await once.resolve("setl_0001")


async def test_unknown_run_resolved_as_absent_is_sent_under_the_next_key(fake: FakeProcessor, once: Host) -> None:
    await unknown(once, fake, "error_502")
    assert (await once.resolve(None)).state is State.FAILED
    assert await once.resume() == []
    await once.run()
    first, second = posts(fake)
    assert (first.body, first.idempotency_key != second.idempotency_key) == (second.body, True)
    await check_posted(once, fake, attempt=2)


async def test_person_who_is_wrong_about_absence_does_not_settle_twice(fake: FakeProcessor, once: Host) -> None:
    """The processor shows it and absence is refused; where it cannot be asked, the next run finds it."""
    await unknown(once, fake, "reset_after_effect")
    with pytest.raises(SettlementConflict, match="setl_0001"):
        await once.resolve(None)
    cue = scripted(fake)
    cue.instead = NO_LOOK_UP
    assert (await once.resolve(None, unseen=True)).state is State.FAILED
    cue.behave()
    await once.run()
    assert posts(fake) == []  # since the cue
    await check_posted(once, fake, attempt=2)


async def test_only_an_unknown_run_can_be_resolved(fake: FakeProcessor, here: Host) -> None:
    await here.run()
    with pytest.raises(InvalidRequest, match="only an unknown run"):
        await here.resolve("setl_0009")
    await check_posted(here, fake)


async def test_other_settlement_at_the_processor_is_a_conflict_for_a_person(fake: FakeProcessor, here: Host) -> None:
    body = f'{{"account":"{ACCOUNT}","date":"{DAY}","settlement_currency":"usd","lines":[],"total_net":0}}'
    await here.client.post(SETTLEMENTS, body.encode(), idempotency_key="by-hand")
    for retry in (False, False, True):
        assert isinstance(await here.attempt(retry_rejected=retry), SettlementConflict)
        await check_stands(here, State.REJECTED, "settlement_conflict")
    assert received(fake) == 1
    assert len(posts(fake)) == 1
