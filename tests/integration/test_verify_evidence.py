"""`verify` on a real database, where somebody changed one thing behind everybody's back.

Each story first verifies as it is, with the rows that it needs in the tables of readings, answers, moved rows and
corrections; then one of them is changed, and `verify` must name it. The recomputation before a freeze is the same code:
a roll-up that loses or doubles a row is found before anything is sent.
"""

import hashlib
import json
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

import apsw
import msgspec
import pytest

from fake_processor import FakeProcessor
from paykit_settle import checking
from paykit_settle.accumulator import Accumulator
from paykit_settle.checking import check_before_freeze, verify_run
from paykit_settle.errors import InvariantViolated
from paykit_settle.models import BalanceTransaction
from paykit_settle.run import RunOptions
from paykit_settle.store.evidence import evidence_digest
from paykit_settle.store.history import find_run, read_history
from paykit_settle.store.packing import Packer
from paykit_settle.store.runs import Run, current_attempt
from paykit_settle.store.store import Store
from paykit_settle.store.upkeep import prune
from paykit_settle.store.verifying import stored_evidence
from paykit_settle.verify_pages import Evidence, EvidencePage
from tests.fault.stage import ACCOUNT, DAY, Host, a_processor, host, wire_row

BEFORE, EARLIEST = "2026-01-14", "2026-01-13"
RELEASES = Path(__file__).parents[1] / "data" / "releases"
ROWS = [
    wire_row("x1", 70, day=EARLIEST),
    wire_row("m1", 0, day=BEFORE),
    wire_row("l1", 40, day=BEFORE, status="pending", second=7200),
    wire_row("b1", 500, day=BEFORE, second=7300),
    wire_row("a1", 1000),
    wire_row("a2", -300, kind="refund", second=7200),
    wire_row("a3", 25, second=7300),
]


class Story:
    """A day whose neighbours are settled too, and what `verify` says of it."""

    def __init__(self, here: Host, fake: FakeProcessor) -> None:
        self.here, self.fake = here, fake
        self.number = 0
        self.before = 0

    async def found(self, day: str = DAY) -> list[str]:
        return await verify_run(self.here.store, await self.here.history(day))

    async def change(self, sql: str, *values: object) -> None:
        await self.here.change(sql, *values)

    async def note_reading(self, period: str) -> None:
        """Notes that the day was read whole, from its first page on."""
        await self.change(
            """INSERT OR REPLACE INTO readings (run, pull, period, first_page, began_at_ms, outcome)
               VALUES (?, 1, ?, 1, 1, 'whole')""",
            *(self.number, period),
        )

    async def answer(self, identity: str, row: Mapping[str, object]) -> str:
        """Stores what the processor sent about that row, and gives its digest."""
        sent = json.dumps(row).encode()
        digest = hashlib.sha256(sent).hexdigest()
        await self.change(
            """INSERT OR REPLACE INTO row_answers
                   (run, pull, transaction_id, period, body, body_sha256, received_at_ms)
               VALUES (?, 1, ?, ?, ?, ?, 1)""",
            *(self.number, identity, BEFORE, Packer().pack(sent), digest),
        )
        return digest

    async def digest_again(self) -> None:
        """Makes the run's digest of its evidence fit what is stored now."""
        run = await self.here.stored()
        digest = await self.here.store.read(lambda connection: evidence_digest(connection, run.number, run.pull))
        await self.change("UPDATE attempts SET evidence_sha256 = ? WHERE run = ?", digest, run.number)


@asynccontextmanager
async def story(path: Path) -> AsyncIterator[Story]:
    """Three days settled in order; on the last one `l1` of the day before is taken in, and `m1` stands under it too."""
    async with (
        a_processor(ROWS) as fake,
        host(path / "paykit.db", fake.url, options=RunOptions(page_size=2, windows_max=1)) as here,
    ):
        await here.run(EARLIEST)
        await here.run(BEFORE)
        fake.state.update_transaction(ACCOUNT, "l1", status="available")
        fake.state.remove_transaction(ACCOUNT, "m1")
        fake.state.add_transactions(ACCOUNT, [wire_row("m1", 0, second=9000)])
        await here.run()
        it = Story(here, fake)
        it.number, it.before = (await here.stored()).number, (await here.stored(BEFORE)).number
        assert await it.found() == []
        yield it


Rows = Sequence[BalanceTransaction]


# As it is, and with one thing changed.


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("UPDATE readings SET first_page = 2", "ends although more rows follow|the body differs"),
        ("UPDATE readings SET first_page = 9", "ends although more rows follow"),
        ("UPDATE readings SET outcome = NULL", "2026-01-15 was not read whole"),
        ("UPDATE readings SET outcome = 'given up'", "2026-01-15 was not read whole"),
        ("DELETE FROM readings", "2026-01-15 was not read whole"),
    ],
)
async def test_reading_that_was_changed_is_named(tmp_path: Path, sql: str, named: str) -> None:
    async with story(tmp_path) as it:
        for period in (DAY, BEFORE, EARLIEST):
            await it.note_reading(period)
        assert await it.found() == []
        await it.change(f"{sql} WHERE run = ? AND period = ?", it.number, DAY)
        found = await it.found()
        assert any(each in fault for each in named.split("|") for fault in found), found


async def test_earlier_day_that_was_given_up_takes_nothing_in(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        for period in (DAY, BEFORE, EARLIEST):
            await it.note_reading(period)
        change = "UPDATE readings SET outcome = 'given up', reason = 'late' WHERE run = ? AND period = ?"
        await it.change(change, it.number, EARLIEST)
        assert await it.found() == []
        await it.change(change, it.number, BEFORE)
        found = await it.found()
        assert "l1 was taken in late, and stands on no page of 2026-01-14 that counts" in found


async def test_window_ends_only_at_a_page_that_was_asked_for_all_of_it(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        wider = "UPDATE pages SET asked_start_s = window_start_s - 1, asked_end_s = window_end_s + 1"
        await it.change(wider)
        assert await it.found() == []
        await it.change("UPDATE pages SET asked_end_s = window_end_s - 1 WHERE run = ? AND period = ?", it.number, DAY)
        assert any("of 2026-01-15 was not read to its end" in each for each in await it.found())


async def test_bytes_of_an_earlier_day_are_needed_where_a_row_was_taken_in(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        drop = "UPDATE pages SET is_needed = 0, body = NULL WHERE run = ? AND period = ?"
        await it.change(drop, it.number, EARLIEST)
        assert await it.found() == []
        await it.change(drop, it.number, BEFORE)
        found = await it.found()
        assert found[0] == "l1 was taken in late, and stands on no page of 2026-01-14 that counts"
        await it.change(drop, it.number, DAY)
        assert any("pages were pruned: the lines cannot be recomputed" in each for each in await it.found())


MOVED = """INSERT OR REPLACE INTO moved_rows (run, transaction_id, period, held_by_run, is_different)
           VALUES (?, ?, ?, ?, 0)"""


async def test_row_that_was_passed_over_must_be_held_by_the_run_that_is_named(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        await it.change(MOVED, it.number, "m1", DAY, it.before)
        assert await it.found() == []
        for holder, name in ((1, "run_000001"), (it.number, "run_000003")):
            await it.change("UPDATE moved_rows SET held_by_run = ?", holder)
            assert await it.found() == [f"m1 was passed over, and is not held by {name}"]
        await it.change("UPDATE moved_rows SET held_by_run = ?", it.before)
        await it.change(MOVED, it.number, "zz", DAY, it.before)
        assert await it.found() == [
            "zz was passed over, and stands on no page of 2026-01-15 that counts",
            "zz was passed over, and is not held by run_000002",
        ]
        await it.change("UPDATE moved_rows SET transaction_id = 'a3' WHERE transaction_id = 'zz'")
        found = await it.found()
        assert [each[:16] for each in found[:1]] == ["the body differs"]
        assert found[1:] == ["a3 was passed over, and is not held by run_000002"]


async def test_row_is_held_by_a_run_that_took_it_in_late_was_pruned_or_is_pulled_anew(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        await it.change(MOVED, it.before, "l1", BEFORE, it.number)
        assert await it.found(BEFORE) == []
        await it.change("DELETE FROM moved_rows")
        await it.change(MOVED, it.number, "m1", DAY, it.before)
        # The run that holds it was rejected since, and its pull is another one now.
        await it.change("UPDATE runs SET pull = 2 WHERE id = ?", it.before)
        assert await it.found() == []
        await it.change("UPDATE runs SET pull = 1 WHERE id = ?", it.before)
        await it.here.store.write(
            lambda connection: prune(
                connection, today=date(2026, 4, 1), older_than_days=1, look_back_days=0, look_back_listings=0
            )
        )
        found = await it.found()
        assert [each.partition(": ")[2] for each in found] == ["the lines cannot be recomputed any more"]


async def test_row_that_a_holder_passed_over_itself_is_not_held_by_it(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        await it.change(MOVED, it.number, "m1", DAY, it.before)
        await it.change(MOVED.replace("REPLACE", "IGNORE"), it.before, "m1", BEFORE, 1)
        assert "m1 was passed over, and is not held by run_000002" in await it.found()


async def test_answer_about_a_row_that_was_changed_is_named(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        await it.answer("l1", wire_row("l1", 40, day=BEFORE, second=7200))
        other = "the pages are not the ones that the settlement was made from"
        assert await it.found() == [other]
        await it.digest_again()
        assert await it.found() == []
        changed = Packer().pack(json.dumps(wire_row("l1", 41, day=BEFORE, second=7200)).encode())
        await it.change("UPDATE row_answers SET body = ?", changed)
        found = await it.found()
        assert found[0] == "the answer about l1 is not the one that was received"
        assert found[1] == "l1 of 2026-01-14 is counted twice, with different content"
        await it.answer("l1", wire_row("l1", 41, day=BEFORE, second=7200))
        assert (await it.found())[0] == other
        await it.change("DELETE FROM row_answers")
        assert await it.found() == [other]


async def test_correction_that_was_changed_is_named(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        was = json.dumps(wire_row("b1", 500, day=BEFORE)).encode()
        is_now = json.dumps(wire_row("b1", 500, day=BEFORE, kind="payment")).encode()
        await it.change(
            """INSERT INTO differences (account, transaction_id, revision, kind, period, held_by_run, was, is_now,
                                        seen_at_ms, decision, taken_by_run)
               VALUES (?, 'b1', 1, 'changed', ?, ?, ?, ?, 1, 'settle', ?)""",
            *(ACCOUNT, BEFORE, it.before, was, is_now, it.number),
        )
        assert await it.found() == []
        for other in (is_now.replace(b"500", b"501"), None):
            await it.change("UPDATE differences SET is_now = ?", other)
            assert [each[:16] for each in await it.found()] == ["the body differs"]
        await it.change("UPDATE differences SET is_now = x'00'")
        assert (await it.found())[0] == "a correction of 2026-01-14 cannot be read"


async def test_digest_of_the_evidence_is_told_by_one_rule_here_and_there(tmp_path: Path) -> None:
    """Without answers it is that of older files, which have none."""
    async with story(tmp_path) as it:
        run = await it.here.stored()
        history = await it.here.history()
        ends = {page.period: page.chain_sha256 for page in history.pages}
        assert history.attempt is not None
        assert history.attempt.evidence_sha256 == hashlib.sha256(json.dumps(sorted(ends.items())).encode()).hexdigest()
        digests = [await it.answer(identity, wire_row(identity, 1, day=BEFORE)) for identity in ("ä", "b", "Z")]
        lines = f"Z:{digests[2]}\nb:{digests[1]}\nä:{digests[0]}\n"
        parts = [*sorted(ends.items()), ("rows", hashlib.sha256(lines.encode()).hexdigest())]
        now = await it.here.store.read(lambda connection: evidence_digest(connection, run.number, run.pull))
        assert now == hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        await it.digest_again()
        assert await it.found() == []


async def test_list_of_an_earlier_day_may_begin_in_the_hours_that_no_day_had(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        await it.change("UPDATE runs SET window_start_s = window_start_s + 3600 WHERE date = ?", BEFORE)
        assert await it.found() == []
        key = "WHERE run = ? AND period = ?"
        await it.change(f"UPDATE windows SET start_s = start_s + 60 {key}", it.number, BEFORE)  # noqa: S608 - a constant
        await it.change(f"UPDATE pages SET window_start_s = window_start_s + 60 {key}", it.number, BEFORE)  # noqa: S608 - a constant
        assert any("the windows of 2026-01-14 do not meet" in each for each in await it.found())


async def test_evidence_is_gone_through_in_a_thread_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day of a million rows takes seconds: meanwhile the event loop serves others."""
    threads = set()

    def noted(connection: apsw.Connection, run: Run) -> Evidence:
        evidence = stored_evidence(connection, run)

        def pages(period: str) -> Iterator[EvidencePage]:
            threads.add(threading.current_thread())
            return iter(evidence.pages(period))

        return replace(evidence, pages=pages)

    monkeypatch.setattr(checking, "stored_evidence", noted)
    async with story(tmp_path):
        assert threads
        assert threading.current_thread() not in threads


# A file of an earlier release.


def _answers() -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = json.loads((RELEASES / "0.1.0.answers.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("identity", sorted(_answers()))
async def test_settlements_of_an_older_file_verify_as_they_did(tmp_path: Path, identity: str) -> None:
    path = tmp_path / "paykit.db"
    shutil.copyfile(RELEASES / "0.1.0.db", path)
    store = Store(path)
    try:
        history = await store.read(lambda connection: read_history(connection, find_run(connection, identity)))
        found = await verify_run(store, history)
    finally:
        store.close()
    told = {"run_id": identity, "verified": not found, "differences": found}
    assert told == _answers()[identity]["verify"]


# Before a freeze.


def _without(rows: Rows) -> Rows:
    return [row for row in rows if row.id != "a3"]


def _with_a_cent_more(rows: Rows) -> Rows:
    return [msgspec.structs.replace(row, amount=row.amount + 1, net=None) if row.id == "a3" else row for row in rows]


@pytest.mark.parametrize(
    ("spoil", "total"), [(None, 725), (_without, 700), (_with_a_cent_more, 726)], ids=["right", "lost", "changed"]
)
async def test_settlement_of_a_roll_up_that_slips_is_found_before_it_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Rows], Rows] | None, total: int
) -> None:
    """What the run would freeze is compared with what `verify` makes of the pages that it stored."""
    add = Accumulator.add
    if spoil is not None:
        monkeypatch.setattr(Accumulator, "add", lambda self, rows: add(self, spoil(rows)))
    async with a_processor(ROWS) as fake, host(tmp_path / "paykit.db", fake.url) as here:
        posted = await here.run()
        assert posted.total_net == total
        run = await here.stored()
        made = await here.store.read(lambda connection: current_attempt(connection, run))
        check = check_before_freeze(here.store, run, body=made.body, rates=made.rates_body, scales=made.scales)
        if spoil is None:
            await check
            return
        with pytest.raises(InvariantViolated, match="the stored pages do not give this settlement: the body differs"):
            await check


async def test_late_rows_moved_rows_and_corrections_are_recomputed_before_a_freeze(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        run = await it.here.stored()
        made = await it.here.store.read(lambda connection: current_attempt(connection, run))
        before = date.fromisoformat(BEFORE)
        row = json.dumps(wire_row("b1", 500, day=BEFORE)).encode()

        async def check(*late: str, **more: object) -> None:
            await check_before_freeze(
                it.here.store,
                run,
                body=made.body,
                rates=None,
                scales={},
                late_rows=[(before, each) for each in late],
                **more,  # type: ignore[arg-type]  # the test's own fields
            )

        await check("l1")
        await check("l1", moved_ids=["m1"], corrections=[(before, row, row)])
        for late, more in (
            ((), {}),
            (("l1", "b1"), {}),
            (("l1", "zz"), {}),
            (("l1",), {"moved_ids": ["a1"]}),
            (("l1",), {"moved_ids": ["zz"]}),
            (("l1",), {"corrections": [(before, row, None)]}),
        ):
            with pytest.raises(InvariantViolated, match="the stored pages do not give this settlement"):
                await check(*late, **more)


async def test_many_differences_are_told_in_part(tmp_path: Path) -> None:
    async with story(tmp_path) as it:
        run = await it.here.stored()
        late = [(date.fromisoformat(BEFORE), f"z{number}") for number in range(12)]
        with pytest.raises(InvariantViolated, match=r"\(and 8 more\)$"):
            await check_before_freeze(it.here.store, run, body=b"", rates=None, scales={}, late_rows=late)
