"""Before late rows are taken in, the processor is asked for the later days that this database does not know.

Without it a database that was restored would settle a late row again that a forgotten run had taken in. The rule is
tried here by itself, against a fake over a real socket that holds settlements; `test_restored_backup` has whole runs.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from fake_processor.wire import Answer, Request
from paykit_settle.errors import ProcessorError, ProtocolError
from paykit_settle.looking_up import LookUp
from paykit_settle.lookups import blocked_periods
from paykit_settle.missing_days import LOOKUPS_MAX, missing_days
from paykit_settle.store.files import back_up
from paykit_settle.store.restoring import restore
from paykit_settle.store.runs import Run
from paykit_settle.window import load_zone
from tests.fault.stage import ACCOUNT, SETTLEMENTS, Host, a_processor, host, of_kind, refuse, scripted

FIRST = date(2026, 1, 1)
NOON = timedelta(hours=12)


def day(number: int) -> date:
    """The n-th day of January 2026; later ones go on into February."""
    return FIRST + timedelta(days=number - 1)


def noon_after(number: int) -> datetime:
    """Noon of the next day: day `number` is the newest that has ended."""
    return datetime.combine(day(number + 1), datetime.min.time(), UTC) + NOON


@pytest.fixture
def fake() -> Iterator[FakeProcessor]:
    with a_processor(days=140) as processor:
        yield processor


@asynccontextmanager
async def settled(database: Path, fake: FakeProcessor, *days: int) -> AsyncIterator[Host]:
    """A host that has settled those days, with nothing asked of the processor since."""
    async with host(database, fake.url) as here:
        for number in days:
            await here.run(day(number).isoformat())
        fake.requests.clear()
        yield here


def at_processor(fake: FakeProcessor, number: int) -> str:
    """Puts a settlement that nobody here knows at the processor, and gives its id."""
    body = {"account": ACCOUNT, "date": day(number).isoformat(), "settlement_currency": "usd", "lines": [],
            "total_net": 0}  # fmt: skip
    made = fake.state.settle(
        json.dumps(body).encode(), idempotency_key=f"elsewhere {number}", content_type="application/json"
    )
    return str(made.settlement["id"])


def asked(fake: FakeProcessor) -> list[int]:
    """The days that the processor was asked for since, in the order of the requests."""
    days = [dict(request.query)["date"] for request in of_kind(fake, "GET", SETTLEMENTS)]
    fake.requests.clear()
    return [(date.fromisoformat(each) - FIRST).days + 1 for each in days]


async def blocked(
    here: Host, run: int, *periods: int, newest: int, checked: bool = False, zone: str | None = None
) -> dict[int, str]:
    """The periods that may not be taken in by the run of a day, by their numbers."""
    stored = await here.stored(day(run).isoformat())
    if zone is not None:
        stored = Run(**{name: getattr(stored, name) for name in Run.__dataclass_fields__} | {"zone": zone})
    found = await blocked_periods(
        LookUp(here.client, here.store),
        here.store,
        stored,
        [day(number) for number in periods],
        now=noon_after(newest),
        checked=checked,
    )
    return {(period - FIRST).days + 1: reason for period, reason in found.items()}


async def test_run_without_late_rows_asks_nothing(fake: FakeProcessor, tmp_path: Path) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1) as here:
        assert await blocked(here, 1, newest=30) == {}
    assert asked(fake) == []


async def test_every_later_day_without_a_run_that_holds_rows_is_asked_for_once(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 2, 4, 5, 6, 7, 8, 9) as here:
        for number, state in {4: "frozen", 5: "unknown", 6: "pulling", 7: "failed", 8: "rejected"}.items():
            await here.change("UPDATE runs SET state = ? WHERE date = ?", state, day(number).isoformat())
        cue = scripted(fake)
        cue.instead = listing([])
        # The run's own day is looked up before the send; day 1 is the row's own, day 12 has not ended.
        assert await blocked(here, 9, 1, newest=11) == {}
        assert asked(fake) == [11, 10, 8, 7, 6, 3]
        assert await blocked(here, 9, 1, 6, newest=11) == {}
        assert asked(fake) == [11, 10, 8, 7, 6]  # once for both periods; the answer for day 3 was kept


async def test_run_of_another_account_makes_no_day_known(fake: FakeProcessor, tmp_path: Path) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 2, 3) as here:
        await here.change("UPDATE runs SET account = 'acct_other' WHERE date = ?", day(2).isoformat())
        cue = scripted(fake)
        cue.instead = listing([])
        assert await blocked(here, 3, 1, newest=3) == {}
        assert asked(fake) == [2]


async def test_settlement_of_a_later_day_keeps_the_rows_of_days_before_it_owed(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 2, 3, 4, 9) as here:
        named = at_processor(fake, 4 + 1)
        found = await blocked(here, 9, 1, 2, 4, newest=9)
        assert set(found) == {1, 2, 4}
        assert set(found.values()) == {
            f"the processor has a settlement of 2026-01-05, which is not settled here: {named}"
        }
        assert asked(fake) == [8, 7, 6, 5]
        # Of that day itself, and of later ones, rows may be taken in: that settlement could not take them.
        assert await blocked(here, 9, 5, 6, newest=9) == {}
        assert set(await blocked(here, 9, 4, 5, 6, newest=9, checked=True)) == {
            4
        }  # a person's word moves no settlement


async def test_settlement_of_a_day_after_the_run_counts_too(fake: FakeProcessor, tmp_path: Path) -> None:
    """A day in between is settled again after a restore: what came after it may have taken the row in."""
    async with settled(tmp_path / "paykit.db", fake, 1, 2) as here:
        at_processor(fake, 4)
        assert set(await blocked(here, 2, 1, newest=5)) == {1}
        assert asked(fake) == [5, 4]


async def test_several_settlements_of_a_day_are_named_and_counted(fake: FakeProcessor, tmp_path: Path) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 3) as here:
        cue = scripted(fake)
        cue.instead = listing([{"id": f"s{number}", "status": "created"} for number in range(5)])
        (reason,) = (await blocked(here, 3, 1, newest=3)).values()
        assert reason.endswith("2026-01-02, which is not settled here: s0, s1, s2 and 2 more")


def listing(*pages: list[dict[str, str]], has_more_after: bool = False) -> Callable[[Request], Answer | None]:
    """A cue that answers every look-up with those pages, one after another by their cursors."""

    def instead(request: Request) -> Answer | None:
        if (request.method, request.path) != ("GET", SETTLEMENTS):
            return None
        after = dict(request.query).get("starting_after")
        index = next((at + 1 for at, page in enumerate(pages) if page[-1:] and page[-1]["id"] == after), 0)
        has_more = has_more_after or index + 1 < len(pages)
        page = pages[min(index, len(pages) - 1)]
        return Answer(status=200, body=json.dumps({"data": page, "has_more": has_more}).encode())

    return instead


async def test_settlements_that_a_processor_lists_beside_the_day_do_not_count(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 3) as here:
        others = [
            {"id": "s1", "status": "created", "account": ACCOUNT, "date": "2026-01-01"},
            {"id": "s2", "status": "created", "account": "acct_other", "date": "2026-01-02"},
            {"id": "s3", "status": "created", "account": ACCOUNT, "date": "2026-01-03"},
        ]
        cue = scripted(fake)
        cue.instead = listing(others)
        assert await blocked(here, 3, 1, newest=3) == {}
        own = {"id": "s4", "status": "created", "account": ACCOUNT, "date": "2026-01-02"}
        cue.instead = listing(others[:2], others[2:], [own])
        fake.requests.clear()
        assert await blocked(here, 3, 1, newest=3) == {
            1: "the processor has a settlement of 2026-01-02, which is not settled here: s4"
        }
        assert [dict(request.query).get("starting_after") for request in fake.requests] == [None, "s2", "s3"]
        cue.instead = listing([own], has_more_after=True)
        with pytest.raises(ProtocolError, match="more are promised, and none come"):
            await here.client.find_settlements(ACCOUNT, day(2))


async def test_more_days_than_one_run_asks_for_leave_late_rows_owed_unless_a_person_has_looked(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 2, 3) as here:
        newest = 3 + LOOKUPS_MAX
        assert await blocked(here, 3, 1, 2, newest=newest) == {}
        assert len(asked(fake)) == LOOKUPS_MAX
        await here.change("DELETE FROM empty_lookups")
        found = await blocked(here, 3, 1, 2, newest=newest + 1)
        assert found == dict.fromkeys(
            [1, 2], "63 later days have no run here, and a run asks the processor for at most 62"
        )
        assert asked(fake) == []  # asking some of them would not help
        assert await blocked(here, 3, 1, 2, newest=newest + 1, checked=True) == {}
        assert len(asked(fake)) == LOOKUPS_MAX
        # A later period needs fewer answers: it is not held up by an earlier one.
        await here.change("DELETE FROM empty_lookups")
        assert set(await blocked(here, 3, 1, 4, newest=newest + 1)) == {1}
        assert len(asked(fake)) == LOOKUPS_MAX
        at_processor(fake, newest)
        assert set(await blocked(here, 3, 1, 2, newest=newest + 1, checked=True)) == {1, 2}


@pytest.mark.parametrize("status", [404, 405, 410, 501])
async def test_processor_without_a_look_up_leaves_late_rows_owed_unless_a_person_has_looked(
    fake: FakeProcessor, tmp_path: Path, status: int
) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 2, 4) as here:
        await here.change("DELETE FROM processors")  # as if it had never answered one
        cue = scripted(fake)
        cue.instead = refuse(status, method="GET")
        found = await blocked(here, 4, 1, 2, newest=4)
        assert found == dict.fromkeys(
            [1, 2], "the processor has no look-up of settlements, so whether 2026-01-03 is settled is not known"
        )
        assert await blocked(here, 4, 1, 2, newest=4, checked=True) == {}
        assert await here.client.find_settlements(ACCOUNT, day(3)) is None


@pytest.mark.parametrize("status", [400, 401, 403, 422, 500, 503])
@pytest.mark.parametrize("checked", [False, True])
async def test_look_up_that_fails_keeps_late_rows_owed_and_fails_no_run(
    fake: FakeProcessor, tmp_path: Path, status: int, *, checked: bool
) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 2, 4) as here:
        cue = scripted(fake)
        cue.instead = refuse(status, method="GET")
        with pytest.raises(ProcessorError):
            await here.client.find_settlements(ACCOUNT, day(3))
        found = await blocked(here, 4, 1, 2, 3, newest=4, checked=checked)
        assert set(found) == {1, 2}
        assert all("could not be asked whether 2026-01-03 is settled" in reason for reason in found.values())
        assert all(str(status) in reason for reason in found.values())


@pytest.mark.parametrize("body", [b"[]", b'{"data":[{"id":"s\\n","status":"x"}],"has_more":false}', b'{"data":[]}'])
async def test_answer_that_is_no_list_keeps_late_rows_owed(fake: FakeProcessor, tmp_path: Path, body: bytes) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 3) as here:
        cue = scripted(fake)
        cue.instead = lambda request: Answer(status=200, body=body) if request.path == SETTLEMENTS else None
        assert set(await blocked(here, 3, 1, newest=3)) == {1}


async def test_failure_of_one_day_holds_up_only_what_lies_before_it(fake: FakeProcessor, tmp_path: Path) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 9) as here:
        cue = scripted(fake)
        failing = refuse(500, method="GET")
        cue.instead = lambda request: failing(request) if ("date", "2026-01-05") in request.query else None
        assert set(await blocked(here, 9, 1, 4, 5, 8, newest=9)) == {1, 4}


async def test_empty_answer_for_a_day_of_long_ago_is_kept_for_a_day(fake: FakeProcessor, tmp_path: Path) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 2) as here:
        stored = await here.stored(day(2).isoformat())

        async def ask(now: datetime) -> list[int]:
            assert (
                await blocked_periods(
                    LookUp(here.client, here.store), here.store, stored, [day(1)], now=now, checked=False
                )
                == {}
            )
            return asked(fake)

        now = noon_after(12)
        assert await ask(now) == [12, 11, 10, 9, 8, 7, 6, 5, 4, 3]
        # Day 5 ended seven days and a half ago: a day that ended a week ago is not settled by itself any more.
        recent = [12, 11, 10, 9, 8, 7, 6]
        assert await ask(now) == recent
        assert await ask(now + timedelta(hours=11)) == recent
        assert await ask(now + timedelta(hours=24)) == [13, *recent, 5, 4, 3]
        # A clock that was set back does not believe an answer from its future.
        assert set(await ask(now)) >= {5, 4, 3}


async def test_restore_forgets_the_empty_answers(fake: FakeProcessor, tmp_path: Path) -> None:
    database, copy = tmp_path / "paykit.db", tmp_path / "copy.db"
    async with settled(database, fake, 1, 2) as here:
        assert await blocked(here, 2, 1, newest=12) == {}
        back_up(database, copy)
        at_processor(fake, 3)
        assert await blocked(here, 2, 1, newest=12) == {}  # believed for a day, where nobody restores
    restore(copy, database, now_ms=1)
    fake.requests.clear()
    async with host(database, fake.url) as here:
        assert set(await blocked(here, 2, 1, newest=12)) == {1}
        assert asked(fake)[-1] == 3


@pytest.mark.parametrize(("zone", "newest"), [("Etc/UTC", 3), ("Pacific/Kiritimati", 4), ("Pacific/Niue", 3)])
async def test_newest_day_is_the_one_that_has_ended_in_the_accounts_zone(
    fake: FakeProcessor, tmp_path: Path, zone: str, newest: int
) -> None:
    async with settled(tmp_path / "paykit.db", fake, 1, 2) as here:
        assert await blocked(here, 2, 1, newest=3, zone=zone) == {}
        assert max(asked(fake)) == newest


def test_day_that_the_calendar_of_the_zone_leaves_out_is_not_missing() -> None:
    days = missing_days(
        date(2011, 12, 28), date(2012, 1, 1), known=[date(2011, 12, 31)], zone=load_zone("Pacific/Apia")
    )
    assert days == [date(2012, 1, 1), date(2011, 12, 29)]
