"""A day of a processor whose lists are odd is settled whole, or refused by name: over real sockets, in 1 to 64 windows.

Its filter is honoured in part, its order is its own, windows lag, a row is shown once and then no more; and processes
die in the middle of each. Without these, 226 of 600 rows were posted, and `verify` called the day whole.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import RunRefused
from paykit_settle.lifecycle import State, Step
from paykit_settle.page_wire import Page, PageReader
from paykit_settle.paging import NOT_COUNTED, NOT_DATED, NOT_FILTERED, NOT_ORDERED
from paykit_settle.run import RunOptions
from paykit_settle.runner import Runner
from paykit_settle.store.history import page_keys, page_rows
from paykit_settle.store.store import Store
from tests.fault.stage import ACCOUNT, DAY, LIST, QUICK, Clock, Host, a_processor, check_truth, of_kind, wire_row
from tests.programs import ROOT, environment, paykit

ROWS = 600
DAY_S = 86_400
GET_LIST = f"GET {LIST}"

PARTIAL_FILTERS: dict[str, list[dict[str, object]]] = {
    "lt ignored": [{"name": "filter_ignored", "bound": "lt"}],
    "gte ignored": [{"name": "filter_ignored", "bound": "gte"}],
    "both ignored": [{"name": "filter_ignored"}],
    "lt now and then": [{"name": "filter_ignored", "bound": "lt", "per_mille": 300}],
    "gte now and then": [{"name": "filter_ignored", "bound": "gte", "per_mille": 300}],
    "either now and then": [
        {"name": "filter_ignored", "bound": "lt", "per_mille": 200, "seed": 1},
        {"name": "filter_ignored", "bound": "gte", "per_mille": 200, "seed": 2},
    ],
    "only later": [{"name": "filter_ignored", "after": 9}],
    "too few": [{"name": "filter_off_by_one", "side": "inner"}],
    "too many": [{"name": "filter_off_by_one", "side": "outer"}],
    "too few now and then": [{"name": "filter_off_by_one", "side": "inner", "per_mille": 500}],
}
ORDERS: dict[str, list[dict[str, object]]] = {
    order: [{"name": "list_order", "order": order}] for order in ("shuffled", "oldest_first", "nearly", "ties")
}
ODD = PARTIAL_FILTERS | ORDERS | {
    "short pages": [{"name": "page_short", "rows": 7}],
    "short pages, oldest first, gte ignored": [
        {"name": "page_short", "rows": 7},
        {"name": "list_order", "order": "oldest_first"},
        {"name": "filter_ignored", "bound": "gte", "per_mille": 300},
    ],
}  # fmt: skip


class Crash(BaseException):
    """The process dies here."""


class Lagging(ProcessorClient):
    """Of this processor, windows that do not reach the end of the day are answered once the one that does has ended."""

    on_end: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, url: str) -> None:
        super().__init__(url, policy=QUICK)
        self._day_end: int | None = None
        self._has_ended = asyncio.Event()

    async def page(
        self, account: str, *, span: tuple[int, int] | None, page_size: int, after: str | None, reader: PageReader
    ) -> Page:
        assert span is not None
        self._day_end = self._day_end or span[1]
        if span[1] != self._day_end:
            await self._has_ended.wait()
        page = await super().page(account, span=span, page_size=page_size, after=after, reader=reader)
        if span[1] == self._day_end and not page.has_more:
            self.on_end()
            self._has_ended.set()
        return page


@asynccontextmanager
async def a_host(
    database: Path,
    client: ProcessorClient,
    *,
    windows: int = 16,
    page_size: int = 20,
    crash_after: int | None = None,
    accept: bool = False,
) -> AsyncIterator[Host]:
    pages = 0

    def at_step(step: Step) -> None:
        nonlocal pages
        pages += step is Step.PAGE_STORED
        if pages == crash_after:
            raise Crash

    options = RunOptions(
        windows_max=windows,
        page_size=page_size,
        look_back_days=0,
        rows_without_created="accept" if accept else "refuse",
    )
    store = Store(database)
    clock = Clock(None)
    runner = Runner(client, store, options=options, at_step=at_step, now=lambda: clock.now)
    try:
        async with client:
            yield Host(client=client, store=store, runner=runner, clock=clock)
            await runner.close()
    finally:
        await runner.close()
        await asyncio.to_thread(store.close)


def plain(fake: FakeProcessor) -> ProcessorClient:
    return ProcessorClient(fake.url, policy=QUICK)


def spread(count: int) -> list[dict[str, object]]:
    """Rows at even distances, none in the day's first or last second: what a bound hides there no answer ever shows."""
    return [wire_row(f"t{number:04}", 100, second=1 + number * (DAY_S - 3) // count) for number in range(count)]


@pytest.fixture
def fake() -> Iterator[FakeProcessor]:
    with a_processor(spread(ROWS)) as processor:
        yield processor


def misbehave(fake: FakeProcessor, faults: list[dict[str, object]]) -> None:
    for fault in faults:
        options = {name: value for name, value in fault.items() if name != "name"}
        fake.fault(str(fault["name"]), **({"route": GET_LIST} | options))  # type: ignore[arg-type]  # its own options


async def check_whole(here: Host, fake: FakeProcessor, *, rows: int = ROWS) -> None:
    """Every row is settled once, and told once by whoever lists the evidence."""
    fake.heal()
    history = await here.history()
    assert history.run.state is State.POSTED
    assert history.attempt is not None
    assert (history.attempt.settlement.total_net, history.attempt.settlement.roll_up.row_count) == (rows * 100, rows)
    await check_truth(here, fake)
    keys, _ = await here.store.read(lambda connection: page_keys(connection, history.run))
    told = []
    for key in keys:
        told += await here.store.read(lambda connection, key=key: page_rows(connection, history.run, *key))  # type: ignore[misc]
    assert len({row.id for row in told}) == rows


async def reading(here: Host) -> tuple[int, str | None]:
    """The first page that counts, and whether the day was read whole."""
    found = await here.store.read(
        lambda connection: connection.execute("SELECT first_page, outcome FROM readings WHERE period = ?", (DAY,)).get
    )
    assert isinstance(found, tuple)
    return found


@pytest.mark.parametrize("windows", [1, 2, 16, 64])
@pytest.mark.parametrize("lags", [False, True], ids=["at once", "lagging"])
@pytest.mark.parametrize("odd", ODD)
async def test_day_of_an_odd_processor_is_settled_whole(
    fake: FakeProcessor, tmp_path: Path, odd: str, windows: int, *, lags: bool
) -> None:
    misbehave(fake, ODD[odd])
    client = Lagging(fake.url) if lags else plain(fake)
    async with a_host(tmp_path / "paykit.db", client, windows=windows) as here:
        await here.run()
        await check_whole(here, fake)


@pytest.mark.parametrize("crash_after", [1, 2, 5, 12, 19, 29])
@pytest.mark.parametrize("odd", ODD)
async def test_day_of_an_odd_processor_is_settled_whole_after_a_crash(
    fake: FakeProcessor, tmp_path: Path, odd: str, crash_after: int
) -> None:
    misbehave(fake, ODD[odd])
    database = tmp_path / "paykit.db"
    with pytest.raises(Crash):
        async with a_host(database, Lagging(fake.url), crash_after=crash_after) as here:
            await here.run()
    async with a_host(database, plain(fake)) as here:
        await here.run()
        await check_whole(here, fake)


@pytest.mark.parametrize("kill_at", [1, 3, 8, 21])
@pytest.mark.parametrize("bound", ["lt", "gte"])
async def test_killed_process_leaves_a_reading_that_the_next_one_can_trust(
    tmp_path: Path, bound: str, kill_at: int
) -> None:
    with a_processor(spread(40)) as fake:
        fake.fault("filter_ignored", route=GET_LIST, bound=bound, after=2)
        database = tmp_path / "paykit.db"
        command = [
            sys.executable,
            "-m",
            "tests.fault.crash_child",
            fake.url,
            str(database),
            "page stored",
            str(kill_at),
        ]
        killed = await asyncio.to_thread(
            lambda: subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, timeout=60, check=False)
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        words = ("resume", "--processor-url", fake.url, "--database", str(database))
        done = await asyncio.to_thread(lambda: paykit(*words, cwd=tmp_path))
        assert (done.returncode, done.stderr) == (0, "")
        async with a_host(database, plain(fake)) as here:
            await check_whole(here, fake, rows=40)


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ("lt ignored", NOT_FILTERED),
        ("gte ignored", NOT_FILTERED),
        ("both ignored", NOT_FILTERED),
        ("nearly", NOT_ORDERED),
    ],
)
async def test_reading_that_is_given_up_stays_as_evidence_and_another_begins_at_the_first_row(
    fake: FakeProcessor, tmp_path: Path, odd: str, reason: str
) -> None:
    """One request at a time, behind no cursor of the old reading, for the whole day."""
    misbehave(fake, ODD[odd])
    async with a_host(tmp_path / "paykit.db", Lagging(fake.url)) as here:
        await here.run()
        first_page, outcome = await reading(here)
        assert (first_page > 1, outcome) == (True, "whole")
        history = await here.history()
        assert [(window.serial_reason, window.number > 0) for window in history.windows] == [(reason, True)]
        assert sum(page.is_counted for page in history.pages) == len(history.pages) - first_page + 1 == ROWS // 20
        stored = await here.store.read(
            lambda connection: connection.execute(
                "SELECT cursor, last_id, asked_end_s - asked_start_s, window FROM pages WHERE number >= ?",
                (first_page,),
            ).fetchall()
        )
        assert stored[0][0] is None
        assert [cursor for cursor, *_ in stored[1:]] == [last_id for _, last_id, *_ in stored[:-1]]
        assert {(seconds, window) for *_, seconds, window in stored} == {(DAY_S, history.windows[0].number)}
        asked = [dict(request.query).get("starting_after") for request in of_kind(fake, "GET", LIST)]
        assert asked[-len(stored) :] == [cursor for cursor, *_ in stored]
        await check_whole(here, fake)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_row_that_one_window_left_to_another_and_that_was_not_in_it_is_looked_for_in_one_list(
    tmp_path: Path, *, comes_back: bool
) -> None:
    """Two windows: the later one shows a row at its edge, the earlier one, asked afterwards, does not."""
    rows = spread(ROWS)
    start = int(str(rows[0]["created"])) - 1
    split = (start + int(str(rows[-100]["created"])) + 1) // 2
    lost = wire_row("lost", 100, second=split - 1 - start)
    with a_processor([*rows, lost]) as fake:
        client = Lagging(fake.url)
        count = 2 if comes_back else None

        def lose() -> None:
            fake.fault("row_vanishes", route=GET_LIST, id="lost", count=count)

        client.on_end = lose
        async with a_host(tmp_path / "paykit.db", client, windows=2, page_size=100) as here:
            await here.run()
            history = await here.history()
            assert [window.serial_reason for window in history.windows] == [NOT_COUNTED]
            assert history.attempt is not None
            assert history.attempt.settlement.roll_up.row_count == ROWS + comes_back
            await check_truth(here, fake)


async def test_reading_of_an_older_version_that_went_on_with_old_cursors_is_read_anew(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    """Its windows were given back to the first one, which read on where it was."""
    database = tmp_path / "paykit.db"
    with pytest.raises(Crash):
        async with a_host(database, plain(fake), crash_after=12) as here:
            await here.run()
    async with a_host(database, plain(fake)) as here:
        run = await here.stored()
        await here.change("UPDATE pages SET asked_start_s = NULL, asked_end_s = NULL")
        await here.change("DELETE FROM windows WHERE number > 0")
        await here.change(
            "UPDATE windows SET start_s = ?, end_s = ?, serial_reason = ?",
            run.window_start_s,
            run.window_end_s,
            NOT_FILTERED,
        )
        await here.run()
        assert (await reading(here))[0] > 12
        await check_whole(here, fake)


async def test_reading_of_an_older_version_in_windows_is_gone_on_with(fake: FakeProcessor, tmp_path: Path) -> None:
    """It did not note which span a page was asked for; a page may hold rows beyond the span that it owns."""
    database = tmp_path / "paykit.db"
    with pytest.raises(Crash):
        async with a_host(database, plain(fake), crash_after=12) as here:
            await here.run()
    async with a_host(database, plain(fake)) as here:
        await here.change("UPDATE pages SET asked_start_s = NULL, asked_end_s = NULL")
        await here.run()
        assert await reading(here) == (1, "whole")
        assert len((await here.history()).windows) > 1
        await check_whole(here, fake)


@pytest.mark.parametrize("windows", [1, 2, 16, 64])
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
async def test_row_without_created_is_counted_once_wherever_windows_meet(
    tmp_path: Path, windows: int, seed: int
) -> None:
    with a_processor(spread(350)) as fake:
        fake.fault("created_missing", route=GET_LIST, every=100, seed=seed)
        async with a_host(tmp_path / "paykit.db", plain(fake), windows=windows) as here:
            await here.run()
            history = await here.history()
            assert [window.serial_reason for window in history.windows] == [NOT_DATED]
            await check_whole(here, fake, rows=350)


OTHER_DAYS = [
    wire_row("before", 7, day="2026-01-14", second=DAY_S - 1),
    wire_row("after", 9, day="2026-01-16", second=0),
    wire_row("later", 11, day="2026-01-20", second=5),
]


@pytest.mark.parametrize("windows", [1, 16])
async def test_day_whose_rows_do_not_say_when_they_were_created_is_settled_if_the_processor_filters(
    tmp_path: Path, windows: int
) -> None:
    with a_processor([*spread(50), *OTHER_DAYS]) as fake:
        fake.fault("created_missing", route=GET_LIST)
        async with a_host(tmp_path / "paykit.db", plain(fake), windows=windows) as here:
            await here.run()
            await check_whole(here, fake, rows=50)
        start = int(str(OTHER_DAYS[1]["created"])) - DAY_S
        asked = [dict(request.query) for request in of_kind(fake, "GET", LIST)][-2:]
        spans = [(int(query["created[gte]"]), int(query["created[lt]"])) for query in asked]
        assert spans == [(start + DAY_S, start + DAY_S + 1), (start - 1, start)]


UNPROVEN: dict[str, list[dict[str, object]]] = {
    "no filter": [{"name": "created_missing", "unfiltered": 1}],
    "no filter, one row without": [{"name": "filter_ignored"}, {"name": "created_missing", "every": 2}],
    "lt ignored": [{"name": "filter_ignored", "bound": "lt"}, {"name": "created_missing"}],
    "gte ignored": [{"name": "filter_ignored", "bound": "gte"}, {"name": "created_missing"}],
    "lt a second late": [{"name": "filter_off_by_one", "bound": "lt", "side": "outer"}, {"name": "created_missing"}],
    "gte a second early": [{"name": "filter_off_by_one", "bound": "gte", "side": "outer"}, {"name": "created_missing"}],
}


@pytest.mark.parametrize("order", ["newest first", "oldest_first", "shuffled"])
@pytest.mark.parametrize("odd", UNPROVEN)
async def test_day_without_created_of_a_processor_that_does_not_filter_is_refused_naming_a_row(
    tmp_path: Path, odd: str, order: str
) -> None:
    with a_processor([*spread(50), *OTHER_DAYS]) as fake:
        misbehave(fake, UNPROVEN[odd] + ORDERS.get(order, []))
        async with a_host(tmp_path / "paykit.db", plain(fake)) as here:
            outcome = await here.attempt()
            assert isinstance(outcome, RunRefused)
            assert outcome.problems[0].subject in {row["id"] for row in [*spread(50), *OTHER_DAYS]}
            assert "filter by created" in str(outcome) or "outside the window" in str(outcome)
            assert (await here.stored()).state is State.FAILED
            assert fake.state.settlements(account=ACCOUNT) == []
            fake.heal()
            await here.run()
            await check_whole(here, fake, rows=50)


async def test_list_of_a_processor_that_does_not_filter_is_taken_as_that_days_where_the_settings_accept_it(
    tmp_path: Path,
) -> None:
    with a_processor(spread(50)) as fake:
        fake.fault("created_missing", route=GET_LIST, unfiltered=1)
        async with a_host(tmp_path / "paykit.db", plain(fake)) as here:
            assert isinstance(await here.attempt(), RunRefused)
        async with a_host(tmp_path / "paykit.db", plain(fake), accept=True) as here:
            assert isinstance(await here.attempt(), RunRefused)  # it was begun on the other setting
            await here.run(new_terms=True)
            await check_whole(here, fake, rows=50)


async def test_day_that_was_proved_whole_is_not_asked_for_again(tmp_path: Path) -> None:
    """A crash after the reading has ended costs no request of the list."""
    with a_processor(spread(50)) as fake:
        fake.fault("created_missing", route=GET_LIST)
        database = tmp_path / "paykit.db"

        def at_step(step: Step) -> None:
            if step is Step.BEFORE_FREEZE:
                raise Crash

        store = Store(database)
        client = plain(fake)
        clock = Clock(None)
        options = RunOptions(page_size=20)
        runner = Runner(client, store, options=options, at_step=at_step, now=lambda: clock.now)
        first = Host(client=client, store=store, runner=runner, clock=clock)
        async with client:
            with pytest.raises(Crash):
                await first.run()
            await runner.close()
        await asyncio.to_thread(store.close)
        asked = len(of_kind(fake, "GET", LIST))
        async with a_host(database, plain(fake)) as here:
            await here.run()
            assert len(of_kind(fake, "GET", LIST)) == asked
            await check_whole(here, fake, rows=50)
