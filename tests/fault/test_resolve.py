"""A run that cannot go on by itself has a way out: a person names the processor's settlement, and it is asked first.

Without these, money at the processor could never be booked after a conflict, or our lines would be booked under the
id of a settlement that says something else.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.checking import proof_text, verify_run
from paykit_settle.errors import (
    BalanceOutOfRange,
    InvalidRequest,
    InvariantViolated,
    OutcomeUnknown,
    ProcessorRejected,
    ProcessorUnavailable,
    ProtocolError,
    SettleError,
    SettlementConflict,
)
from paykit_settle.explain import explanation, explanation_text
from paykit_settle.lifecycle import State
from paykit_settle.money import ScaleProfile
from paykit_settle.report import posted_json
from paykit_settle.resolving import Resolver, Wish
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import RunOptions
from paykit_settle.run_shown import run_json
from paykit_settle.store.changes import changes
from paykit_settle.store.check import check_ledger
from paykit_settle.store.coverage import Covers
from paykit_settle.store.resolving import Decision, end_attention
from paykit_settle.store.runs import Run
from tests.fault.foreign import a_line, foreign
from tests.fault.stage import (
    ACCOUNT,
    ADA,
    DAY,
    NO_LOOK_UP,
    SETTLEMENTS,
    Host,
    a_processor,
    check_truth,
    check_verified,
    host,
    posts,
    refuse,
    scripted,
    wire_row,
)

NEXT = "2026-01-16"
OURS = 1400
"""What the day's rows come to here: 1000 in dollars, and 368 euros at 0.92."""
ONE_TRY = RetryPolicy(attempts_max=1, wait_first_ms=1, request_timeout_s=30, deadline_s=60)
NOTED = Decision(by=ADA, reason="the processor's support has explained it", now_ms=1)


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    rows = [
        wire_row("t1", 1030, fee=30),
        wire_row("e1", 368, currency="eur"),
        wire_row("p1", 77, status="pending"),
        wire_row("n1", 5, day=NEXT),
    ]
    async with a_processor(rows) as processor:
        yield processor


@pytest.fixture
async def here(fake: FakeProcessor, tmp_path: Path) -> AsyncIterator[Host]:
    async with host(tmp_path / "paykit.db", fake.url, policy=ONE_TRY) as one:
        yield one


async def conflict(here: Host, fake: FakeProcessor, total: int = 1500, *lines: dict[str, object]) -> str:
    """A day for which the processor has another settlement; its id."""
    named = foreign(fake, total, *lines)
    assert isinstance(await here.attempt(), SettlementConflict)
    assert (await here.stored()).state is State.REJECTED
    return named


async def unknown(here: Host, fake: FakeProcessor, fault: str = "error_502") -> None:
    """A day that was sent, and nobody knows what became of it."""
    fake.fault(fault, route=f"POST {SETTLEMENTS}")
    fake.fault("error_503", route=f"GET {SETTLEMENTS}", after=1, retry_after_s=0)
    assert isinstance(await here.attempt(), OutcomeUnknown)
    assert (await here.stored()).state is State.UNKNOWN
    fake.heal()


async def entries(here: Host, day: str = DAY) -> list[tuple[str, str, int]]:
    return [(each.account, each.currency, each.amount) for each in (await here.history(day)).entries]


async def check_balanced(here: Host) -> None:
    """Every journal sums to zero in each currency, and the file is whole."""
    assert list((await here.store.read(check_ledger)).faults) == []


async def check_refused(here: Host, before: Run) -> None:
    """Nothing at all has changed."""
    assert await here.stored() == before
    history = await here.history()
    assert (history.resolutions, history.entries, len(history.attempts)) == ([], [], before.attempt)


# The processor's settlement is taken.


async def test_conflict_ends_with_the_settlement_that_the_processor_has(fake: FakeProcessor, here: Host) -> None:
    lines = a_line(1090, fees=30), a_line(368, "eur", 410, period="2026-01-14")
    named = await conflict(here, fake, 1500, *lines)
    run = await here.resolve(named, covers="all")
    assert (run.state, run.settlement_id, run.covers, run.attention) == (State.POSTED, named, "all", None)
    assert (run.error_code, run.owner, run.attempt, run.needs_person) == (None, None, 2, 0)
    assert await entries(here) == [
        ("@processor.charged", "usd", -1120),
        ("@processor.fees", "usd", 30),
        ("@processor.charged", "eur", -368),
        ("@fx", "eur", 368),
        ("@fx", "usd", -410),
        ("balance", "usd", 1500),
    ]
    details = [json.loads(each.details) for each in (await here.history()).entries if each.details]
    assert details == [{"source": "processor", "ratio": "410/368", "period": "2026-01-14"}] * 2
    await check_balanced(here)
    await check_truth(here, fake)


async def test_rows_of_a_settlement_that_covers_all_are_not_settled_again(fake: FakeProcessor, here: Host) -> None:
    await here.resolve(await conflict(here, fake), covers="all")
    assert (await here.run(NEXT)).total_net == 5
    assert await here.balance() == 1505
    fake.state.update_transaction(ACCOUNT, "p1", status="available")
    assert (await here.run("2026-01-17")).total_net == 77  # it was owed, and stayed so
    await check_truth(here, fake)


async def test_day_that_was_taken_is_answered_like_any_other(fake: FakeProcessor, here: Host) -> None:
    named = await conflict(here, fake)
    await here.resolve(named, covers="all")
    sent = len(posts(fake))
    again = await here.run()
    assert (again.replayed, again.settlement_id, again.total_net) == (True, named, 1500)
    assert posted_json(again)["taken"] == "itemised"
    assert len(posts(fake)) == sent


async def test_unknown_run_takes_the_settlement_that_turned_up_instead_of_ours(fake: FakeProcessor, here: Host) -> None:
    await unknown(here, fake)
    named = foreign(fake, 1399)
    run = await here.resolve(named, covers="all")
    assert (run.state, run.settlement_id) == (State.POSTED, named)
    assert await here.balance() == 1399
    assert run.attention == "what was sent as attempt 1 may still turn up at the processor beside it"
    assert (await here.run()).warnings == (run.attention,)
    assert [each.outcome for each in (await here.history()).attempts] == ["replaced", "posted"]
    await check_truth(here, fake)


async def test_what_was_taken_is_kept_byte_for_byte_as_a_further_attempt(fake: FakeProcessor, here: Host) -> None:
    named = await conflict(here, fake, 1500, a_line(1500, note="café"))
    body = f'{{"object":"list","has_more":false,"data":[ {json.dumps(fake.state.settlement(named), indent=2)} ]}}'
    answer = scripted(fake)
    made = refuse(200, method="GET")

    def spaced(request):  # type: ignore[no-untyped-def]  # a cue
        found = made(request)
        return None if found is None else replace(found, body=body.encode())

    answer.instead = spaced
    await here.resolve(named, covers="all")
    ours, theirs = (await here.history()).attempts
    assert theirs.body.decode() == json.dumps(fake.state.settlement(named), indent=2)
    assert (ours.taken, theirs.taken, theirs.sent_at_ms, theirs.rates_body) == (None, "itemised", None, None)
    assert (theirs.pull, theirs.evidence_sha256, theirs.scales) == (ours.pull, ours.evidence_sha256, ours.scales)
    answer.behave()
    await check_truth(here, fake)


async def test_negative_settlement_is_taken_and_lowers_the_balance(fake: FakeProcessor, here: Host) -> None:
    await here.resolve(await conflict(here, fake, -250), covers="all")
    assert await here.balance() == -250
    await check_truth(here, fake)


async def test_run_takes_on_the_currency_of_the_settlement_that_it_takes_in(fake: FakeProcessor, here: Host) -> None:
    named = foreign(fake, 1300, a_line(1000, "usd", 932), a_line(368, "eur"), currency="eur")
    assert isinstance(await here.attempt(), SettlementConflict)
    run = await here.resolve(named, covers="all")
    assert run.settlement_currency == "eur"
    assert isinstance(await here.attempt(), SettlementConflict)
    assert (await here.run(currency="eur")).replayed
    assert (await here.balance("eur"), await here.balance("usd")) == (1300, 0)
    await check_balanced(here)
    await check_truth(here, fake)


async def test_conflict_that_was_tried_anew_is_taken_with_what_its_last_pull_read(
    fake: FakeProcessor, here: Host
) -> None:
    named = await conflict(here, fake)
    fake.state.add_transactions(ACCOUNT, [wire_row("t2", 9)])
    assert isinstance(await here.attempt(retry_rejected=True), SettlementConflict)
    run = await here.resolve(named, covers="all")
    assert (run.attempt, run.pull) == (3, 2)
    assert (await here.run(NEXT)).total_net == 5
    await check_truth(here, fake)


# Ours.


@pytest.mark.parametrize("covers", [None, "all", "none"])
async def test_settlement_that_is_what_we_froze_is_booked_as_ours(
    fake: FakeProcessor, here: Host, covers: str | None
) -> None:
    await unknown(here, fake, "reset_after_effect")
    run = await here.resolve("setl_0001", covers=covers)
    assert (run.state, run.covers, run.attempt, run.attention) == (State.POSTED, None, 1, None)
    (attempt,) = (await here.history()).attempts
    assert (attempt.taken, attempt.status, attempt.outcome) == (None, "created", "posted")
    assert await here.balance() == OURS
    assert (await here.run(NEXT)).total_net == 5
    await check_truth(here, fake)


async def test_ours_beside_another_is_booked_and_the_other_is_named(fake: FakeProcessor, here: Host) -> None:
    await unknown(here, fake, "reset_after_effect")
    other = foreign(fake, 7)
    run = await here.resolve("setl_0001")
    assert run.attention == f"the processor has other settlements for this day beside it: {other}"
    assert await here.balance() == OURS


async def test_settlement_that_was_taken_beside_another_names_the_other(fake: FakeProcessor, here: Host) -> None:
    foreign(fake, 7)
    named = await conflict(here, fake)
    run = await here.resolve(named, covers="all")
    assert run.attention == "the processor has other settlements for this day beside it: setl_0001"


# What has to be said along.


@pytest.mark.parametrize("state", ["conflict", "unknown"])
async def test_settlement_that_is_not_ours_needs_to_be_told_what_it_covers(
    fake: FakeProcessor, here: Host, state: str
) -> None:
    if state == "conflict":
        named = await conflict(here, fake)
    else:
        await unknown(here, fake)
        named = foreign(fake, 1500)
    before = await here.stored()
    with pytest.raises(
        InvalidRequest, match=r"\(\$15\.00\) is not what run_000001 froze \(\$14\.00\): say with --covers"
    ):
        await here.resolve(named)
    await check_refused(here, before)


UNPROVED = {
    "no lines": {"lines": None},
    "other sum": {"lines": [a_line(1499)]},
    "unknown currency": {"lines": [{**a_line(1500), "currency": "xxx"}]},
    "text": {"lines": [{**a_line(1500), "fees": "0"}]},
    "later period": {"lines": [a_line(1500, period=DAY)]},
}


@pytest.mark.parametrize("lines", UNPROVED.values(), ids=UNPROVED)
async def test_lines_that_prove_nothing_are_taken_by_their_total_only_on_request(
    fake: FakeProcessor, here: Host, lines: dict[str, object]
) -> None:
    named = fake.state.add_settlement(ACCOUNT, DAY, total_net=1500, **lines)
    assert isinstance(await here.attempt(), SettlementConflict)
    before = await here.stored()
    with pytest.raises(InvalidRequest, match="--total-only takes it by its total"):
        await here.resolve(named, covers="all")
    await check_refused(here, before)
    run = await here.resolve(named, covers="all", total_only=True)
    assert run.attention is not None
    assert f"{named} was taken by its total only: its line" in run.attention
    assert await entries(here) == [("@processor.unitemised", "usd", -1500), ("balance", "usd", 1500)]
    history = await here.history()
    assert proof_text(history.attempt) == "it was taken from the processor by its total only: its lines are not proved"
    await check_balanced(here)
    await check_truth(here, fake)


async def test_what_proves_its_total_is_itemised_although_its_total_alone_would_do(
    fake: FakeProcessor, here: Host
) -> None:
    run = await here.resolve(await conflict(here, fake), covers="all", total_only=True)
    assert run.attention is None
    assert len((await here.history()).attempts[-1].settlement.lines) == 1


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"settlement_currency": "xxx"}, "XXX has no exponent"),
        ({"settlement_currency": None}, "three ASCII letters"),
        ({"total_net": 2**63}, "total_net is beyond"),
        ({"total_net": "1500"}, "total_net must be an integer"),
        ({"total_net": 15.5}, "total_net must be an integer"),
    ],
)
async def test_total_that_cannot_be_read_is_refused_in_any_case(
    fake: FakeProcessor, here: Host, members: dict[str, object], why: str
) -> None:
    named = fake.state.add_settlement(ACCOUNT, DAY, **{"total_net": 1500, "lines": [a_line(1500)], **members})
    assert isinstance(await here.attempt(), SettlementConflict)
    before = await here.stored()
    with pytest.raises(ProtocolError, match=why):
        await here.resolve(named, covers="all", total_only=True)
    await check_refused(here, before)


async def test_own_scale_that_cannot_express_the_processors_amounts_refuses(tmp_path: Path) -> None:
    options = RunOptions(scale=ScaleProfile(overrides={"usd": 3}))
    async with (
        a_processor([wire_row("t1", 1000)]) as fake,
        host(tmp_path / "paykit.db", fake.url, options=options) as here,
    ):
        named = foreign(fake, 1501)
        assert isinstance(await here.attempt(), SettlementConflict)
        before = await here.stored()
        with pytest.raises(ProtocolError, match="1501 usd is not a multiple of 10"):
            await here.resolve(named, covers="all", total_only=True)
        await check_refused(here, before)


async def test_amounts_are_booked_in_the_scale_that_the_run_was_begun_on(fake: FakeProcessor, tmp_path: Path) -> None:
    options = RunOptions(scale=ScaleProfile(overrides={"eur": 0}))
    named = foreign(fake, 2000, a_line(1000), a_line(9, "eur", 1000))
    async with host(tmp_path / "paykit.db", fake.url, options=options) as here:
        assert isinstance(await here.attempt(), SettlementConflict)
    async with host(tmp_path / "paykit.db", fake.url) as here:  # the setting is gone, the terms of the run are not
        await here.resolve(named, covers="all")
        assert ("@fx", "eur", 900) in await entries(here)
        await check_verified(here, await here.stored())


async def test_balance_beyond_its_range_books_nothing(fake: FakeProcessor, here: Host) -> None:
    await here.run(NEXT)
    named = await conflict(here, fake, 2**63 - 1)
    before = await here.stored()
    with pytest.raises(BalanceOutOfRange):
        await here.resolve(named, covers="all")
    await check_refused(here, before)
    assert await here.balance() == 5


# The processor is asked first.


async def test_settlement_that_the_processor_does_not_have_is_refused(fake: FakeProcessor, here: Host) -> None:
    await unknown(here, fake)
    before = await here.stored()
    with pytest.raises(SettlementConflict, match="has no settlement setl_0009"):
        await here.resolve("setl_0009", covers="all")
    await check_refused(here, before)


async def test_settlement_of_another_day_is_not_found(fake: FakeProcessor, here: Host) -> None:
    await unknown(here, fake)
    named = foreign(fake, 1500, day=NEXT)
    with pytest.raises(SettlementConflict, match="has no settlement"):
        await here.resolve(named, covers="all")


async def test_settlement_that_is_booked_with_another_day_is_refused(fake: FakeProcessor, here: Host) -> None:
    """As where a list does not say which day an entry is of."""
    await unknown(here, fake)
    await here.run(NEXT)
    named = foreign(fake, 1500)
    await here.change("UPDATE runs SET settlement_id = ? WHERE date = ?", named, NEXT)
    with pytest.raises(InvalidRequest, match=f"{named} is booked with run_000002 of {NEXT} already"):
        await here.resolve(named, covers="all", total_only=True)


async def test_person_may_vouch_for_ours_where_the_processor_cannot_be_asked(fake: FakeProcessor, here: Host) -> None:
    await unknown(here, fake)
    before = await here.stored()
    fake.fault("error_503", route=f"GET {SETTLEMENTS}", retry_after_s=0)
    with pytest.raises(ProcessorUnavailable, match="--unseen"):
        await here.resolve("setl_0001")
    await check_refused(here, before)
    run = await here.resolve("setl_0001", unseen=True)
    assert (run.state, run.settlement_id, await here.balance()) == (State.POSTED, "setl_0001", OURS)


async def test_look_up_that_is_not_allowed_says_so_and_changes_nothing(fake: FakeProcessor, here: Host) -> None:
    await unknown(here, fake)
    before = await here.stored()
    cue = scripted(fake)
    cue.instead = refuse(403, method="GET")
    with pytest.raises(ProcessorRejected, match="let this key read settlements"):
        await here.resolve("setl_0001")
    await check_refused(here, before)


async def test_person_may_vouch_for_ours_where_the_processor_lists_nothing(fake: FakeProcessor, here: Host) -> None:
    cue = scripted(fake)
    cue.instead = NO_LOOK_UP
    fake.fault("reset_after_effect", route=f"POST {SETTLEMENTS}")
    assert isinstance(await here.attempt(), OutcomeUnknown)
    with pytest.raises(InvalidRequest, match="--unseen"):
        await here.resolve("setl_0001")
    assert (await here.resolve("setl_0001", unseen=True)).state is State.POSTED


async def test_absence_is_a_persons_word_where_the_processor_lists_nothing(fake: FakeProcessor, here: Host) -> None:
    cue = scripted(fake)
    cue.instead = NO_LOOK_UP
    fake.fault("error_502", route=f"POST {SETTLEMENTS}")
    assert isinstance(await here.attempt(), OutcomeUnknown)
    fake.heal()
    assert (await here.resolve(None)).state is State.FAILED
    await here.run()
    assert len({request.idempotency_key for request in posts(fake)}) == 2


async def test_processor_that_is_known_to_list_nothing_is_not_asked(fake: FakeProcessor, here: Host) -> None:
    await unknown(here, fake, "reset_after_effect")
    asked = len(fake.requests)
    resolver = Resolver(here.client, here.store, is_alive=lambda _name: False, lookup="none")
    run = await resolver.posted("run_000001", "setl_0001", Wish(unseen=True), NOTED)
    assert (run.state, len(fake.requests)) == (State.POSTED, asked)


async def test_person_may_vouch_for_what_is_not_listed_and_what_is_there_is_named(
    fake: FakeProcessor, here: Host
) -> None:
    named = await conflict(here, fake)
    run = await here.resolve("setl_0077", unseen=True)
    assert (run.state, run.settlement_id) == (State.POSTED, "setl_0077")
    assert run.attention == f"the processor has other settlements for this day beside it: {named}"


async def test_nobody_can_vouch_for_a_settlement_that_is_seen_to_be_another(fake: FakeProcessor, here: Host) -> None:
    named = await conflict(here, fake)
    before = await here.stored()
    with pytest.raises(InvalidRequest, match="leave --unseen out"):
        await here.resolve(named, covers="all", unseen=True)
    await check_refused(here, before)


async def test_absence_is_refused_while_the_processor_has_any_settlement_of_the_day(
    fake: FakeProcessor, here: Host
) -> None:
    await unknown(here, fake)
    named = foreign(fake, 7)
    before = await here.stored()
    with pytest.raises(SettlementConflict, match=named):
        await here.resolve(None)
    with pytest.raises(SettlementConflict, match=named):
        await here.resolve(None, unseen=True)
    await check_refused(here, before)


async def test_absence_takes_the_next_key_at_once(fake: FakeProcessor, here: Host) -> None:
    await unknown(here, fake)
    fake.fault("error_503", route=f"GET {SETTLEMENTS}", nth=1, retry_after_s=0)
    with pytest.raises(ProcessorUnavailable):
        await here.resolve(None)
    run = await here.resolve(None)
    assert (run.state, run.attempt) == (State.FAILED, 2)
    await here.run()
    first, second = posts(fake)
    assert (first.body, first.idempotency_key != second.idempotency_key) == (second.body, True)
    await check_truth(here, fake)


async def test_absence_of_a_settlement_that_nobody_can_look_up_is_a_persons_word(
    fake: FakeProcessor, here: Host
) -> None:
    await unknown(here, fake)
    fake.fault("error_503", route=f"GET {SETTLEMENTS}", retry_after_s=0)
    assert (await here.resolve(None, unseen=True)).state is State.FAILED


async def test_conflict_cannot_be_declared_absent(fake: FakeProcessor, here: Host) -> None:
    await conflict(here, fake)
    with pytest.raises(InvalidRequest, match="only an unknown run"):
        await here.resolve(None)


@pytest.mark.parametrize("how", ["posted", "failed", "refused"])
async def test_run_in_any_other_state_cannot_be_resolved(fake: FakeProcessor, here: Host, how: str) -> None:
    if how == "posted":
        await here.run()
    elif how == "failed":
        fake.fault("unauthorized")
        assert isinstance(await here.attempt(), SettleError)
        fake.heal()
    else:
        cue = scripted(fake)
        cue.instead = refuse(422)
        assert isinstance(await here.attempt(), SettleError)
        cue.behave()
    before = await here.stored()
    with pytest.raises(InvalidRequest, match="run_000001 is"):
        await here.resolve("setl_0001", covers="all")
    assert await here.stored() == before


async def test_another_processor_is_not_asked(fake: FakeProcessor, here: Host, tmp_path: Path) -> None:
    named = await conflict(here, fake)
    async with FakeProcessor() as other, host(tmp_path / "paykit.db", other.url) as there:
        with pytest.raises(SettlementConflict, match="is settled at"):
            await there.resolve(named, covers="all", unseen=True)
        assert list(other.requests) == []


# Who comes first, and crashes.


async def test_of_two_who_resolve_at_once_one_wins_and_the_other_is_refused(fake: FakeProcessor, here: Host) -> None:
    named = await conflict(here, fake)
    both = await asyncio.gather(
        here.resolve(named, covers="all"), here.resolve(named, covers="none"), return_exceptions=True
    )
    (run,) = [each for each in both if isinstance(each, Run)]
    (error,) = [each for each in both if isinstance(each, InvalidRequest)]
    assert "run_000001 is posted" in str(error)
    assert (run.state, len((await here.history()).attempts)) == (State.POSTED, 2)
    assert await here.balance() == 1500


async def test_run_that_somebody_has_taken_up_since_the_processor_was_asked_is_left_alone(
    fake: FakeProcessor, here: Host
) -> None:
    named = await conflict(here, fake)
    cue = scripted(fake)
    cue.after = lambda request: asked.set() if request.method == "GET" else None
    asked = asyncio.Event()

    async def decide() -> Run:
        return await here.resolve(named, covers="all", alive=lambda name: name == "somebody")

    await here.change("UPDATE runs SET owner = 'nobody'")
    task = asyncio.create_task(decide())
    await asked.wait()
    await here.change("UPDATE runs SET owner = 'somebody'")
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    run = await here.stored()
    if run.state is State.REJECTED:  # it was taken up first
        assert isinstance(outcome, InvalidRequest)
        assert await here.balance() == 0
    else:
        assert (run.state, await here.balance()) == (State.POSTED, 1500)


async def test_crash_between_asking_and_booking_changes_nothing(fake: FakeProcessor, here: Host) -> None:
    named = await conflict(here, fake)
    await here.change("UPDATE runs SET owner = 'dead'")
    before = await here.stored()
    calls = iter([False])

    def dies(_name: str) -> bool:
        return next(calls)  # the second time, in the unit of work that books, there is no answer

    with pytest.raises(InvariantViolated):
        await here.resolve(named, covers="all", alive=dies)
    await check_refused(here, before)
    assert (await here.resolve(named, covers="all")).state is State.POSTED
    await check_truth(here, fake)


# What is kept and shown.


async def test_every_decision_stands_in_the_table_of_changes(fake: FakeProcessor, here: Host) -> None:
    named = fake.state.add_settlement(ACCOUNT, DAY, total_net=1500)
    assert isinstance(await here.attempt(), SettlementConflict)
    await here.resolve(named, covers="none", total_only=True)
    (resolution,) = (await here.history()).resolutions
    assert (resolution.decided_by, resolution.settlement_id, resolution.attempt) == ("ada", named, 1)
    run = await here.store.write(lambda connection: end_attention(connection, "run_000001", decision=NOTED))
    assert run.attention is None
    with pytest.raises(InvalidRequest, match="nothing about it to be noted"):
        await here.store.write(lambda connection: end_attention(connection, "run_000001", decision=NOTED))
    found = await here.store.read(lambda connection: changes(connection, limit=3))
    assert [(each.what, each.principal, each.subject) for each in found] == [
        ("resolve noted", "ada", "run_000001"),
        ("state", "ada", "run_000001"),
        ("resolve posted", "ada", "run_000001"),
    ]
    assert found[2].detail == "a look at the books; it covers none"
    assert "was taken by its total only" in found[0].detail


@pytest.mark.parametrize("total_only", [False, True])
async def test_taken_settlement_is_shown_everywhere(fake: FakeProcessor, here: Host, *, total_only: bool) -> None:
    lines = [] if total_only else [a_line(1090, fees=30), a_line(368, "eur", 410)]
    named = fake.state.add_settlement(ACCOUNT, DAY, total_net=1500, lines=lines)
    assert isinstance(await here.attempt(), SettlementConflict)
    await here.resolve(named, covers="all", total_only=total_only)
    history = await here.history()
    shown = run_json(history)
    assert (shown["settlement_id"], shown["total_net"], shown["covers"]) == (named, 1500, "all")
    assert (shown["taken"], len(shown["lines"])) == (("total only", 0) if total_only else ("itemised", 2))
    assert ("attention" in shown) is total_only
    assert json.loads(json.dumps(explanation(history)))["taken"] == shown["taken"]
    text = explanation_text(history)
    assert "taken      the processor's settlement, not computed here" in text
    assert ("× 410/368 = 410 usd, source: processor" in text) is not total_only


async def test_verify_finds_what_was_changed_about_a_taken_settlement(fake: FakeProcessor, here: Host) -> None:
    named = await conflict(here, fake)
    await here.resolve(named, covers="all")
    history = await here.history()
    assert proof_text(history.attempt) == "its lines were taken from the processor, not recomputed"
    assert await verify_run(here.store, history, remote=here.client) == []
    fake.state.remove_settlement(named)
    fake.state.add_settlement(ACCOUNT, DAY, id=named, total_net=1501, lines=[a_line(1501)])
    assert await verify_run(here.store, history) == []
    assert await verify_run(here.store, history, remote=here.client) == [
        f"the processor's copy of {named} is missing or differs"
    ]
    await here.change(
        "UPDATE attempts SET body = CAST(replace(CAST(body AS TEXT), '1500', '1502') AS BLOB) WHERE taken IS NOT NULL"
    )
    found = await verify_run(here.store, await here.history())
    assert any("digest" in each for each in found)
    assert any("booked" in each for each in found)


async def test_settlement_that_goes_on_at_the_processor_stays_the_one_that_was_taken(
    fake: FakeProcessor, here: Host
) -> None:
    named = await conflict(here, fake)
    await here.resolve(named, covers="all")
    entry = fake.state.settlement(named)
    fake.state.remove_settlement(named)
    members = {name: entry[name] for name in ("id", "lines", "total_net", "settlement_currency")}
    fake.state.add_settlement(ACCOUNT, DAY, **members, status="paid")
    assert await verify_run(here.store, await here.history(), remote=here.client) == []


async def test_reason_and_id_are_checked_before_anybody_is_asked(fake: FakeProcessor, here: Host) -> None:
    await conflict(here, fake)
    asked = len(fake.requests)
    resolver = Resolver(here.client, here.store, is_alive=lambda _name: False)
    wish = Wish(covers=Covers(kind="all"))
    for settlement_id, reason in (("setl_0001", " "), ("a\u0007b", "x"), ("", "x")):
        with pytest.raises(InvalidRequest):
            await resolver.posted("run_000001", settlement_id, wish, replace(NOTED, reason=reason))
    with pytest.raises(InvalidRequest):
        await resolver.absent("run_000001", unseen=False, decision=replace(NOTED, reason=""))
    assert len(fake.requests) == asked
