"""The processor's list of settlements is evidence, not gospel: it lags, filters badly, pages, fails, or is not there.

Without these a list that shows nothing yet would lead to a second settlement under the next key: twice the money; or a
list that shows too much would leave money at the processor that is never booked.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fake_processor import FakeProcessor
from fake_processor.wire import Answer, Request
from paykit_settle.absence import KEY_KEPT_MS
from paykit_settle.errors import (
    OutcomeUnknown,
    ProcessorRejected,
    ProcessorUnavailable,
    ProtocolError,
    SettleError,
    SettlementConflict,
)
from paykit_settle.found_settlements import LookUpMode
from paykit_settle.lifecycle import State
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import RunOptions
from paykit_settle.run_shown import run_json
from paykit_settle.store.runs import current_attempt
from tests.fault.stage import (
    ACCOUNT,
    DAY,
    SETTLEMENTS,
    TOTAL,
    Host,
    check_truth,
    host,
    of_kind,
    posts,
    refuse,
    scripted,
)

LOOK_UP = f"GET {SETTLEMENTS}"
POST = f"POST {SETTLEMENTS}"
ABSENCE_AGE_S = RunOptions().absence_age_s
ONE_TRY = RetryPolicy(attempts_max=1, wait_first_ms=1, request_timeout_s=30, deadline_s=60)
Find = Callable[[Request], Answer | None]


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


def received(fake: FakeProcessor) -> list[dict[str, object]]:
    return fake.state.settlements(account=ACCOUNT)


async def check_posted(here: Host, fake: FakeProcessor, *, attempt: int = 1) -> None:
    run = await here.stored()
    assert (run.state, run.attempt, run.owner, run.needs_person) == (State.POSTED, attempt, None, 0)
    assert (len(received(fake)), await here.balance()) == (1, TOTAL)
    await check_truth(here, fake)


async def check_waits(here: Host, state: State = State.UNKNOWN, *, for_person: bool) -> None:
    run = await here.stored()
    assert (run.state, run.owner, run.needs_person) == (state, None, int(for_person))


def keys(fake: FakeProcessor) -> set[str | None]:
    return {request.idempotency_key for request in posts(fake)}


def pass_time(here: Host, fake: FakeProcessor, seconds: int) -> None:
    here.ticks.advance(seconds)
    fake.clock.advance(seconds)


# Absence is not believed at once.


@pytest.mark.parametrize("lag_s", [1, 10, ABSENCE_AGE_S - 1])
async def test_list_that_lags_never_leads_to_a_second_settlement(fake: FakeProcessor, here: Host, lag_s: int) -> None:
    """Stored, answered 500, and its key replays the 500 for ever: only the list can tell, and it does so late."""
    fake.fault("error_500_after_effect", route=POST, nth=1)
    fake.fault("lookup_lags", route=LOOK_UP, lag_s=lag_s)
    assert isinstance(await here.attempt(), OutcomeUnknown)
    for _ in range(3):
        pass_time(here, fake, lag_s // 4)
        assert isinstance(await here.attempt(), OutcomeUnknown)
    assert (len(keys(fake)), len(received(fake))) == (1, 1)
    pass_time(here, fake, lag_s)
    await here.run()
    fake.heal()
    await check_posted(here, fake)


async def test_next_key_is_taken_only_after_the_list_stayed_empty_long_enough(fake: FakeProcessor, here: Host) -> None:
    fake.fault("error_500", route=POST, nth=1)
    first = await here.attempt()
    assert isinstance(first, OutcomeUnknown)
    run = await here.stored()
    assert run.retry_at_ms == first.retry_at_ms is not None
    assert "it can go on at " in str(first)
    pass_time(here, fake, ABSENCE_AGE_S - 5)
    assert isinstance(await here.attempt(), OutcomeUnknown)
    assert (await here.stored()).retry_at_ms == run.retry_at_ms  # it does not wait anew
    pass_time(here, fake, 10)
    await here.run()
    assert len(keys(fake)) == 2
    await check_posted(here, fake, attempt=2)


async def test_spent_key_is_never_sent_again(fake: FakeProcessor, here: Host) -> None:
    fake.fault("error_500", route=POST, nth=1)
    assert isinstance(await here.attempt(), OutcomeUnknown)
    sent = len(posts(fake))
    for _ in range(3):
        assert isinstance(await here.attempt(), OutcomeUnknown)
    assert len(posts(fake)) == sent


async def test_absence_in_the_future_counts_as_none(fake: FakeProcessor, here: Host) -> None:
    """A clock that was set back: the list was found empty at a time that has not come."""
    fake.fault("error_500", route=POST, nth=1)
    pass_time(here, fake, 10 * ABSENCE_AGE_S)
    assert isinstance(await here.attempt(), OutcomeUnknown)
    here.ticks.advance(-9 * ABSENCE_AGE_S)
    for _ in range(2):
        assert isinstance(await here.attempt(), OutcomeUnknown)
        here.ticks.advance(ABSENCE_AGE_S - 1)
    here.ticks.advance(2)
    await here.run()
    await check_posted(here, fake, attempt=2)


BROKEN_LOOK_UPS: list[Find] = [
    refuse(503, method="GET"),
    refuse(403, method="GET"),
    refuse(404, method="GET"),
    lambda request: Answer(status=200, body=b"[]") if request.path == SETTLEMENTS else None,
]


@pytest.mark.parametrize("broken", BROKEN_LOOK_UPS)
async def test_look_up_that_is_no_complete_list_begins_the_waiting_anew(
    fake: FakeProcessor, once: Host, broken: Find
) -> None:
    cue = scripted(fake)
    fake.fault("error_500", route=POST, nth=1)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    fake.heal()
    assert isinstance(await once.attempt(), OutcomeUnknown)  # the 500 is replayed: from now on its key is spent
    pass_time(once, fake, ABSENCE_AGE_S + 1)
    cue.instead = broken
    assert isinstance(await once.attempt(), OutcomeUnknown)
    cue.behave()
    for _ in range(2):
        assert isinstance(await once.attempt(), OutcomeUnknown)
        pass_time(once, fake, ABSENCE_AGE_S - 1)
    assert len(keys(fake)) == 1
    pass_time(once, fake, 2)
    await once.run()
    await check_posted(once, fake, attempt=2)


async def test_key_of_a_send_from_the_future_is_not_trusted(fake: FakeProcessor, once: Host) -> None:
    fake.fault("error_502", route=POST)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    fake.heal()
    sent = len(posts(fake))
    once.ticks.advance(-3600)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    assert len(posts(fake)) == sent
    once.ticks.advance(ABSENCE_AGE_S + 1)
    await once.run()
    await check_posted(once, fake, attempt=2)


# Processors without a list.


@pytest.mark.parametrize("status", [404, 405, 410, 501])
async def test_processor_that_has_listed_before_is_out_of_reach_when_it_has_no_list(
    fake: FakeProcessor, once: Host, status: int
) -> None:
    await once.run()
    cue = scripted(fake)
    cue.instead = refuse(status, method="GET", path=SETTLEMENTS)
    found = await once.attempt("2026-01-16")
    assert isinstance(found, ProcessorUnavailable)
    assert 'set lookup to "none"' in str(found)
    assert (await once.stored("2026-01-16")).state is State.FAILED
    assert posts(fake) == []
    cue.behave()
    await once.run("2026-01-16")


@pytest.mark.parametrize("status", [404, 405, 410, 501])
async def test_processor_that_has_never_listed_is_settled_without(fake: FakeProcessor, once: Host, status: int) -> None:
    cue = scripted(fake)
    cue.instead = refuse(status, method="GET", path=SETTLEMENTS)
    await once.run()
    cue.behave()
    await check_posted(once, fake)


async def test_look_up_that_is_turned_off_is_not_asked(fake: FakeProcessor, tmp_path: Path) -> None:
    mode: LookUpMode = "none"
    async with host(tmp_path / "paykit.db", fake.url, options=RunOptions(lookup=mode)) as here:
        await here.run()
        assert of_kind(fake, "GET", SETTLEMENTS) == []
        await check_posted(here, fake)


@pytest.mark.parametrize("status", [400, 403])
async def test_look_up_that_is_refused_says_what_to_configure(fake: FakeProcessor, once: Host, status: int) -> None:
    cue = scripted(fake)
    cue.instead = refuse(status, method="GET", path=SETTLEMENTS)
    found = await once.attempt()
    assert isinstance(found, ProcessorRejected)
    assert "let this key read settlements" in str(found)
    assert posts(fake) == []
    await check_waits(once, State.FAILED, for_person=False)
    cue.behave()
    await once.run()
    await check_posted(once, fake)


async def test_without_a_list_a_key_ages_from_the_freeze(fake: FakeProcessor, once: Host) -> None:
    """Frozen long ago, and sent only now as far as this database knows: which may be a back-up."""
    cue = scripted(fake)
    without = refuse(404, method="GET", path=SETTLEMENTS)
    refused = refuse(401, path=SETTLEMENTS)
    cue.instead = lambda request: without(request) or refused(request)
    assert isinstance(await once.attempt(), ProcessorRejected)
    cue.instead = without
    await once.change("UPDATE attempts SET frozen_at_ms = frozen_at_ms - ?", KEY_KEPT_MS + 60_000)
    sent = len(posts(fake))
    found = await once.attempt()
    assert isinstance(found, OutcomeUnknown)
    assert "a person has to find out" in str(found)
    await check_waits(once, for_person=True)
    assert len(posts(fake)) == sent


@pytest.mark.parametrize("status", [404, 501])
async def test_restored_database_posts_a_day_that_it_may_have_forgotten_on_a_persons_word_only(
    fake: FakeProcessor, once: Host, status: int
) -> None:
    cue = scripted(fake)
    cue.instead = refuse(status, method="GET", path=SETTLEMENTS)
    await once.change("UPDATE database_facts SET restored_at_ms = ?", 2_000_000_000_000)
    for _ in range(2):
        found = await once.attempt()
        assert isinstance(found, SettlementConflict)
        assert "--after-restore-checked" in str(found)
        await check_waits(once, for_person=True)
    assert posts(fake) == []
    await once.run(after_restore_checked=True)
    cue.behave()
    await check_posted(once, fake)


async def test_day_that_a_restored_database_has_forgotten_can_be_resolved_as_posted(
    fake: FakeProcessor, once: Host
) -> None:
    cue = scripted(fake)
    cue.instead = refuse(404, method="GET", path=SETTLEMENTS)
    await once.change("UPDATE database_facts SET restored_at_ms = ?", 2_000_000_000_000)
    assert isinstance(await once.attempt(), SettlementConflict)
    assert (await once.resolve("setl_0001", unseen=True)).state is State.POSTED
    assert (posts(fake), await once.balance()) == ([], TOTAL)


async def test_day_that_ended_after_the_restore_needs_no_word(fake: FakeProcessor, once: Host) -> None:
    cue = scripted(fake)
    cue.instead = refuse(404, method="GET", path=SETTLEMENTS)
    end_ms = 1_768_521_600_000  # of the 15th of January 2026
    await once.change("UPDATE database_facts SET restored_at_ms = ?", end_ms - 1)
    await once.run()
    cue.behave()
    await check_posted(once, fake)


# Lists that filter badly, page, or hold what no terminal should see.


@pytest.mark.parametrize("ignore", ["date", "account"])
async def test_list_that_ignores_what_was_asked_for_is_filtered_here(
    fake: FakeProcessor, here: Host, ignore: str
) -> None:
    fake.fault("lookup_unfiltered", route=LOOK_UP, ignore=ignore)
    fake.state.add_settlement("acct_456", DAY, total_net=1)
    for day in (DAY, "2026-01-16", "2026-01-17"):
        assert not (await here.run(day)).replayed
    fake.heal()
    await check_truth(here, fake)


@pytest.mark.parametrize("rows", [1, 2])
async def test_list_of_many_pages_is_read_to_its_end(fake: FakeProcessor, once: Host, rows: int) -> None:
    """Ours is on the last page of a list that does not filter."""
    fake.fault("lookup_unfiltered", route=LOOK_UP, ignore="account")
    fake.fault("lookup_paged", route=LOOK_UP, rows=rows)
    for number in range(5):
        fake.state.add_settlement(f"acct_{number}", DAY)
    fake.fault("reset_after_effect", route=POST, nth=1)
    await once.run()
    assert len(posts(fake)) == 1
    fake.heal()
    await check_posted(once, fake)


@pytest.mark.parametrize(
    "members",
    [{"id": "setl\x1b[31m"}, {"id": ""}, {"id": "s" * 3_000_000}, {"status": "\x1b]0;x\x07"}, {"id": 7}],
)
async def test_entry_whose_texts_are_no_ids_is_no_list(
    fake: FakeProcessor, once: Host, members: dict[str, Any]
) -> None:
    entry = {"id": "setl_1", "status": "created", "account": ACCOUNT, "date": DAY} | members
    body = msgspec.json.encode({"object": "list", "data": [entry], "has_more": False})
    cue = scripted(fake)
    cue.instead = lambda request: (
        Answer(status=200, body=body) if (request.method, request.path) == ("GET", SETTLEMENTS) else None
    )
    found = await once.attempt()
    assert isinstance(found, ProtocolError)
    assert (str(found).isprintable(), len(str(found)) < 1000, posts(fake)) == (True, True, [])
    cue.behave()
    await once.run()
    await check_posted(once, fake)


# Which is ours.


def copied(fake: FakeProcessor, **members: object) -> None:
    """Adds another settlement like the first one, which came by another way."""
    add(fake, received(fake)[0] | members)


def add(fake: FakeProcessor, entry: Mapping[str, object]) -> None:
    fake.state.add_settlement(ACCOUNT, DAY, **entry)


async def lost(once: Host, fake: FakeProcessor) -> None:
    """Stored, and nobody knows: neither an answer nor a list."""
    fake.fault("reset_after_effect", route=POST)
    fake.fault("error_503", route=LOOK_UP, after=1, retry_after_s=0)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    fake.heal()


async def test_ours_is_booked_although_there_are_others_and_they_are_named(fake: FakeProcessor, once: Host) -> None:
    await lost(once, fake)
    copied(fake, id="setl_by_hand", total_net=5, body_sha256=None, idempotency_key="by-hand")
    posted = await once.run()
    assert (posted.settlement_id, await once.balance()) == ("setl_0001", TOTAL)
    [said] = posted.warnings
    assert "setl_by_hand" in said
    again = await once.run()
    assert (again.replayed, list(again.warnings)) == (True, [said])
    assert (await once.stored()).attention == said


@pytest.mark.parametrize(("other", "booked"), [("setl_0000", "setl_0001"), ("setl_9999", "setl_0001")])
async def test_of_two_equal_ones_the_one_under_our_key_is_booked(
    fake: FakeProcessor, once: Host, other: str, booked: str
) -> None:
    await lost(once, fake)
    copied(fake, id=other, idempotency_key="by-hand")
    assert (await once.run()).settlement_id == booked


async def test_of_two_equal_ones_without_a_key_the_first_by_id_is_booked(fake: FakeProcessor, once: Host) -> None:
    await lost(once, fake)
    [ours] = received(fake)
    fake.state.remove_settlement(str(ours["id"]))
    for identity in ("setl_b", "setl_a", "setl_c"):
        add(fake, ours | {"id": identity, "idempotency_key": None})
    assert (await once.run()).settlement_id == "setl_a"


async def test_settlement_of_an_earlier_attempt_is_a_conflict_that_names_the_attempt(
    fake: FakeProcessor, once: Host
) -> None:
    """Rejected, pulled anew with other rows, and then the first attempt shows up after all."""
    cue = scripted(fake)
    cue.instead = refuse(422, code="amount_wrong")
    assert isinstance(await once.attempt(), ProcessorRejected)
    cue.behave()
    first = posts(fake)[0]
    fake.state.update_transaction(ACCOUNT, "txn_01", amount=20001, net=19391)
    shown = msgspec.json.decode(first.body) | {"id": "setl_late", "status": "created"}
    add(fake, shown | {"idempotency_key": first.idempotency_key, "body_sha256": None})
    found = await once.attempt(retry_rejected=True)
    assert isinstance(found, SettlementConflict)
    assert "setl_late, the one of attempt 1" in str(found)
    await check_waits(once, State.REJECTED, for_person=True)
    assert len(posts(fake)) == 1


# Refusals of the content.


@pytest.mark.parametrize("status", [400, 422])
async def test_refused_content_is_looked_up_before_the_run_is_rejected(
    fake: FakeProcessor, once: Host, status: int
) -> None:
    """The processor refuses what it has already: a second send of what a first one brought."""
    await lost(once, fake)
    cue = scripted(fake)
    cue.instead = refuse(status, code="duplicate")
    fake.fault("error_503", route=LOOK_UP, nth=1, retry_after_s=0)
    await once.run()
    cue.behave()
    await check_posted(once, fake)


@pytest.mark.parametrize("status", [400, 422])
async def test_refusal_after_an_uncertain_send_is_believed_only_when_nothing_stays_there(
    fake: FakeProcessor, once: Host, status: int
) -> None:
    cue = scripted(fake)
    fake.fault("reset_before_headers", route=POST, nth=1)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    cue.instead = refuse(status, code="amount_wrong")
    for _ in range(3):
        assert isinstance(await once.attempt(), OutcomeUnknown)
        await check_waits(once, for_person=False)
        pass_time(once, fake, ABSENCE_AGE_S // 3)
    assert len(posts(fake)) == 2  # from its refusal on the key is spent
    pass_time(once, fake, 10)
    found = await once.attempt()
    assert isinstance(found, ProcessorRejected)
    assert "amount_wrong" in str(found)
    await check_waits(once, State.REJECTED, for_person=False)
    cue.behave()
    await once.run(retry_rejected=True)
    assert len(keys(fake)) == 2
    await check_posted(once, fake, attempt=2)


async def test_refusal_after_an_uncertain_try_of_the_same_request_is_no_certain_one(
    fake: FakeProcessor, here: Host
) -> None:
    """The first try broke after its effect, the second is refused: both within one request, and the list lags."""
    cue = scripted(fake)
    fake.fault("reset_after_effect", route=POST, nth=1)
    fake.fault("lookup_lags", route=LOOK_UP, lag_s=30)
    refused = refuse(422, code="duplicate")
    cue.instead = lambda request: refused(request) if posts(fake) else None
    assert isinstance(await here.attempt(), OutcomeUnknown)
    pass_time(here, fake, 31)
    await here.run()
    cue.behave()
    fake.heal()
    await check_posted(here, fake)


async def test_refusal_that_nothing_uncertain_preceded_needs_one_look_and_its_retry_another(
    fake: FakeProcessor, once: Host
) -> None:
    cue = scripted(fake)
    cue.instead = refuse(422, code="amount_wrong")
    assert isinstance(await once.attempt(), ProcessorRejected)
    await check_waits(once, State.REJECTED, for_person=False)
    looked = len(of_kind(fake, "GET", SETTLEMENTS))
    assert looked == 2  # before the send, and after it was refused
    cue.behave()
    await once.run(retry_rejected=True)
    assert len(of_kind(fake, "GET", SETTLEMENTS)) == looked + 1
    await check_posted(once, fake, attempt=2)


async def test_refusal_after_an_uncertain_send_without_a_list_is_for_a_person(fake: FakeProcessor, once: Host) -> None:
    cue = scripted(fake)
    without = refuse(404, method="GET", path=SETTLEMENTS)
    cue.instead = without
    fake.fault("reset_before_headers", route=POST, nth=1)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    refused = refuse(422, code="amount_wrong")
    cue.instead = lambda request: without(request) or refused(request)
    assert isinstance(await once.attempt(), OutcomeUnknown)
    await check_waits(once, for_person=True)
    run = await once.stored()
    attempt = await once.store.read(lambda connection: current_attempt(connection, run))
    assert attempt.key_spent_at_ms is not None


async def test_error_of_an_open_outcome_says_so_to_whoever_asks(fake: FakeProcessor, here: Host) -> None:
    fake.fault("error_500", route=POST, nth=1)
    found = await here.attempt()
    assert isinstance(found, SettleError)
    assert found.needs_person is False
    assert found.retry_at_ms is not None


async def test_run_that_waits_is_shown_with_its_time_and_one_for_a_person_as_that(
    fake: FakeProcessor, here: Host
) -> None:
    fake.fault("error_500", route=POST, nth=1)
    assert isinstance(await here.attempt(), OutcomeUnknown)
    shown = run_json(await here.history())
    assert (shown["state"], "retry_at" in shown, "needs_person" in shown) == ("unknown", True, False)
    await here.change("UPDATE runs SET needs_person = 1, retry_at_ms = NULL")
    shown = run_json(await here.history())
    assert ("retry_at" in shown, shown["needs_person"]) == (False, True)
