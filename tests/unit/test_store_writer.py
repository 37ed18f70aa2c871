"""The writer commits what waits together; nobody hears of a result before its commit, and no unit harms another.

Without these, an answer could be sent for money that a crash then takes back, or one bad request could fail a batch.
"""

import asyncio
import linecache
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import pytest

from paykit_settle.errors import (
    IdempotencyConflict,
    InsufficientFunds,
    InvariantViolated,
    SettleError,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
)
from paykit_settle.journal import Journal
from paykit_settle.store import writer as writer_module
from paykit_settle.store.crowds import Crowd
from paykit_settle.store.database import connect
from paykit_settle.store.plan import Outcome, Receipt
from paykit_settle.store.posting import Poster
from paykit_settle.store.writer import HALVED_MIN, HAND_OVER_MAX, Writer
from tests.ledger_files import balances, credit, ledger_file, move, open_account, post

PATIENCE_MS = 50
QUEUE_MAX = 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with `balance` 100 and an empty account `a`."""
    with ledger_file(tmp_path / "ledger.db") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        open_account(connection, "a")
        post(connection, credit("opening", 100))
    return tmp_path / "ledger.db"


@pytest.fixture
def other(path: Path) -> Iterator[apsw.Connection]:
    """Another connection to the same file."""
    connection = connect(path, busy_timeout_ms=PATIENCE_MS)
    yield connection
    connection.close()


class Statements(list[str]):
    """What a connection executes, as it does so."""

    def watch(self, connection: apsw.Connection) -> apsw.Connection:
        connection.exec_trace = self._note
        return connection

    def _note(self, _cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        self.append(sql.strip())
        return True


@pytest.fixture
def statements() -> Statements:
    return Statements()


@pytest.fixture
def writer(path: Path, statements: Statements) -> Iterator[Writer]:
    writer = Writer(statements.watch(connect(path)), queue_max=QUEUE_MAX, busy_timeout_ms=PATIENCE_MS)
    yield writer
    writer.close()


def fail(error: BaseException) -> Callable[[apsw.Connection], None]:
    """Work that writes, and then raises."""

    def work(connection: apsw.Connection) -> None:
        connection.execute("UPDATE accounts SET balance = 0")
        raise error

    return work


def holding(gate: threading.Event, *, begun: threading.Event | None = None) -> Callable[[apsw.Connection], None]:
    """Work that keeps the writer until the gate opens; `begun` is set once it does."""

    def work(_connection: apsw.Connection) -> None:
        if begun is not None:
            begun.set()
        assert gate.wait(30)

    return work


async def test_crowd_shares_one_commit(writer: Writer, statements: Statements) -> None:
    count = min(HAND_OVER_MAX, QUEUE_MAX) - 1
    receipts = await asyncio.gather(*(writer.post(credit(f"k{n}", 1)) for n in range(count)))
    assert not any(receipt.replayed for receipt in receipts)
    assert statements.count("BEGIN IMMEDIATE") == statements.count("COMMIT") == 1


@pytest.mark.parametrize(("limit_us", "commits"), [(10**9, 2), (0, 1)])
async def test_crowd_is_committed_in_halves_only_where_commits_are_quick(
    writer: Writer, statements: Statements, monkeypatch: pytest.MonkeyPatch, limit_us: int, commits: int
) -> None:
    """One half is answered while the other is written; on a slow disk, all wait for one commit."""
    await writer.post(credit("first", 1))
    monkeypatch.setattr(writer_module, "HALVED_COMMIT_US_MAX", limit_us)
    statements.clear()
    crowd = [writer.post(credit(str(number), 1)) for number in range(2 * HALVED_MIN)]
    assert not any(receipt.replayed for receipt in await asyncio.gather(*crowd))
    assert statements.count("COMMIT") == commits


async def test_crowd_larger_than_a_commit_keeps_its_order(path: Path, statements: Statements) -> None:
    writer = Writer(statements.watch(connect(path)), batch_max=3)
    changes: list[int] = []
    units: list[asyncio.Future[Any]] = [
        writer.post(credit(str(number), number))
        if number % 4
        else writer.run(lambda file: changes.append(file.total_changes()))
        for number in range(10)
    ]
    await asyncio.gather(*units)
    assert len(set(changes)) == 3
    assert changes == sorted(changes)
    assert statements.count("COMMIT") == 4
    await asyncio.to_thread(writer.close)


async def test_result_is_given_while_the_next_commit_waits_for_another_process(
    path: Path, other: apsw.Connection
) -> None:
    """The second of two commits finds the file locked: who is in the first does not wait for the lock."""
    connection = connect(path)
    begun = iter([None, other])

    def lock(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        if sql == "BEGIN IMMEDIATE" and (locker := next(begun)):
            locker.execute("BEGIN IMMEDIATE")
        return True

    connection.exec_trace = lock
    writer = Writer(connection, batch_max=1, busy_timeout_ms=60_000)
    first, second = [asyncio.ensure_future(writer.post(credit(key, 5))) for key in ("first", "second")]
    assert not (await asyncio.wait_for(first, 30)).replayed
    assert not second.done()
    other.execute("ROLLBACK")
    assert not (await second).replayed
    await asyncio.to_thread(writer.close)


async def test_result_is_given_while_a_unit_takes_its_time(path: Path) -> None:
    writer, gate = Writer(connect(path), batch_max=1), threading.Event()
    first = asyncio.ensure_future(writer.post(credit("first", 5)))
    slow = asyncio.ensure_future(writer.run(holding(gate)))
    assert not (await asyncio.wait_for(first, 30)).replayed
    gate.set()
    await slow
    await asyncio.to_thread(writer.close)


async def test_result_stands_when_the_next_batch_is_undone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, post_well = Writer(connect(path), batch_max=1), Poster.post
    full = iter([False, True])

    def post(poster: Poster, journals: Sequence[Journal]) -> list[Outcome]:
        if next(full):
            raise apsw.FullError("database or disk is full")
        return post_well(poster, journals)

    monkeypatch.setattr(Poster, "post", post)
    first, second = await asyncio.gather(
        writer.post(credit("first", 5)), writer.post(credit("second", 5)), return_exceptions=True
    )
    assert isinstance(first, Receipt)
    assert isinstance(second, StoreUnavailable)
    await asyncio.to_thread(writer.close)


async def test_caller_interrupted_at_any_line_harms_nobody_else(writer: Writer) -> None:
    """Ctrl-C while a unit is handed over: nobody gets what another asked for, and nobody waits for ever."""
    steps: list[Callable[[], object]] = [
        lambda: writer.run(lambda _: "interrupted"),
        lambda: writer.submit(lambda _: "interrupted"),
    ]
    for step in steps:
        line = 1
        while True:
            before = writer.run(partial(saying, f"before {line}"))
            survived = not interrupted_at(line, step)
            after = writer.run(partial(saying, f"after {line}"))
            assert await asyncio.wait_for(before, 30) == f"before {line}"
            assert await asyncio.wait_for(after, 30) == f"after {line}"
            if survived:
                break
            line += 1
        assert 6 < line < 60


def saying(text: str, _connection: apsw.Connection) -> str:
    """Work whose result tells whose it is."""
    return text


def interrupted_at(line: int, step: Callable[[], object]) -> bool:
    """Whether the step was still at work in the writer's module when the line came up at which it is interrupted."""
    left = line

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != writer_module.__file__:
            return None
        # A `with` is traced again as it is left, where no signal would come in.
        is_with = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")
        left -= event == "line" and not is_with
        if left == 0:
            raise KeyboardInterrupt
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(outer)
    return False


async def test_writer_that_dies_of_a_bug_leaves_nobody_waiting(
    writer: Writer, other: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_well, first = writer_module.tell, iter([True])  # type: ignore[attr-defined]

    def tell(crowds: Sequence[Crowd], outcomes: Sequence[object]) -> None:
        if next(first, False):
            raise AssertionError("a bug")
        tell_well(crowds, outcomes)

    monkeypatch.setattr(writer_module, "tell", tell)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(writer.post(credit("k", 5)), 30)
    assert balances(other)["balance"] == 105, "it was committed, and a retry elsewhere will say so"
    with pytest.raises(StoreUnavailable):
        await writer.post(credit("next", 5))


async def test_batch_that_cannot_be_rolled_back_leaves_nobody_waiting_and_no_lock(
    path: Path, other: apsw.Connection
) -> None:
    connection = connect(path)
    faults: dict[str, Exception] = {"COMMIT": apsw.FullError("full"), "ROLLBACK": MemoryError()}

    def fail_once(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        if (fault := faults.pop(sql, None)) is not None:
            raise fault
        return True

    connection.exec_trace = fail_once
    writer = Writer(connection)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(writer.post(credit("k", 5)), 30)
    with pytest.raises(SettleError):
        await asyncio.wait_for(writer.post(credit("k", 5)), 30)
    post(other, credit("beside", 1))
    assert not (await writer.post(credit("k", 5))).replayed
    assert balances(other)["balance"] == 106
    await asyncio.to_thread(writer.close)


async def test_unit_that_stops_an_iteration_harms_nobody(writer: Writer) -> None:
    def stop(_connection: apsw.Connection) -> None:
        raise StopIteration

    before, stopped, after = await asyncio.wait_for(
        asyncio.gather(
            writer.post(credit("1", 5)), writer.run(stop), writer.post(credit("2", 5)), return_exceptions=True
        ),
        30,
    )
    assert isinstance(stopped, InvariantViolated)
    assert isinstance(before, Receipt)
    assert isinstance(after, Receipt)


async def test_thread_that_gives_up_harms_nobody(writer: Writer, other: apsw.Connection) -> None:
    gate = threading.Event()
    writer.submit(holding(gate))
    given_up = writer.submit(lambda file: file.execute("UPDATE accounts SET balance = 7 WHERE id = 'a'").fetchall())
    assert given_up.cancel()
    gate.set()
    assert not (await writer.post(credit("k", 5))).replayed
    assert balances(other) == {"a": 7, "balance": 105}


async def test_result_is_given_after_its_commit(writer: Writer, other: apsw.Connection) -> None:
    await writer.post(credit("k", 5))
    assert balances(other)["balance"] == 105


async def test_refused_journal_does_not_fail_its_neighbours(writer: Writer, other: apsw.Connection) -> None:
    journals = [credit("1", 5), move("2", "balance", "a", 1_000), credit("opening", 7), move("4", "balance", "a", 10)]
    outcomes = await asyncio.gather(*map(writer.post, journals), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes[1:3]] == [InsufficientFunds, IdempotencyConflict]
    assert balances(other) == {"a": 10, "balance": 95}


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), InsufficientFunds("no")])
async def test_unit_that_raises_is_undone_alone(writer: Writer, other: apsw.Connection, error: BaseException) -> None:
    before, failed, after = await asyncio.gather(
        writer.post(credit("1", 5)),
        _outcome(writer.run(fail(error))),
        writer.run(lambda connection: connection.execute("SELECT balance FROM accounts WHERE id = 'balance'").get),
    )
    assert not before.replayed
    assert failed is error
    assert after == 105
    assert balances(other)["balance"] == 105


@pytest.mark.parametrize("error", [ValueError("mine"), InsufficientFunds("no"), apsw.ConstraintError("a row")])
async def test_unit_that_raises_with_nobody_beside_it_is_undone(
    writer: Writer, other: apsw.Connection, statements: Statements, error: Exception
) -> None:
    """Without a savepoint: its transaction is undone, and the next unit gets one of its own."""
    failed = await _outcome(writer.run(fail(error)))
    assert failed is error or isinstance(failed, InvariantViolated)
    assert not any("SAVEPOINT" in sql for sql in statements)
    assert balances(other)["balance"] == 100
    assert not (await writer.post(credit("k", 5))).replayed
    assert balances(other)["balance"] == 105


async def _outcome(awaitable: Any) -> object:
    try:
        return await awaitable
    except BaseException as error:
        return error


async def test_wrong_statement_of_a_unit_is_a_bug_and_undone_alone(writer: Writer) -> None:
    def wrong(connection: apsw.Connection) -> None:
        connection.execute("SELECT nonsense")

    with pytest.raises(InvariantViolated):
        await writer.run(wrong)
    assert not (await writer.post(credit("k", 5))).replayed


async def test_journal_that_cannot_be_written_fails_alone(writer: Writer, other: apsw.Connection) -> None:
    """The database itself refuses a row (an empty key): the group is undone, and each posted by itself."""
    outcomes = await asyncio.gather(
        writer.post(credit("1", 5)), writer.post(credit("", 7)), writer.post(credit("3", 9)), return_exceptions=True
    )
    assert isinstance(outcomes[1], InvariantViolated)
    assert balances(other)["balance"] == 114


async def test_units_and_journals_keep_their_order(writer: Writer) -> None:
    seen: list[object] = []

    def look(connection: apsw.Connection) -> None:
        seen.append(connection.execute("SELECT balance FROM accounts WHERE id = 'balance'").get)

    await asyncio.gather(
        writer.run(look), writer.post(credit("1", 5)), writer.run(look), writer.post(credit("2", 5)), writer.run(look)
    )
    assert seen == [100, 105, 110]


async def test_what_another_connection_wrote_is_seen_by_the_next_journal(
    writer: Writer, other: apsw.Connection
) -> None:
    """Balances are remembered between batches, but not past the commit of somebody else."""
    await writer.post(move("1", "balance", "a", 60))
    post(other, move("2", "a", "balance", 50))
    await writer.post(move("3", "balance", "a", 85))
    with pytest.raises(InsufficientFunds):
        await writer.post(move("4", "balance", "a", 6))
    assert balances(other) == {"a": 95, "balance": 5}


async def test_what_a_unit_wrote_is_seen_by_the_next_journal(writer: Writer, other: apsw.Connection) -> None:
    await writer.post(move("1", "balance", "a", 60))
    await writer.run(lambda connection: connection.execute("UPDATE accounts SET balance = 7 WHERE id = 'a'").fetchall())
    await writer.post(move("2", "a", "balance", 7))
    assert balances(other) == {"a": 0, "balance": 47}


async def test_full_queue_refuses_and_takes_nothing_in(writer: Writer, other: apsw.Connection) -> None:
    gate, begun = threading.Event(), threading.Event()
    held = writer.submit(holding(gate, begun=begun))
    assert await asyncio.to_thread(begun.wait, 30)
    waiting = [asyncio.ensure_future(writer.post(credit(f"k{n}", 1))) for n in range(100)]
    await asyncio.sleep(0)
    with pytest.raises(StoreFull):
        await writer.post(credit("one too many", 1))
    await asyncio.sleep(0)  # the last few are handed over at the end of the loop's turn
    with pytest.raises(StoreFull):
        writer.submit(lambda _: None)
    gate.set()
    await asyncio.gather(*waiting)
    await asyncio.wrap_future(held)
    assert balances(other)["balance"] == 200
    assert not (await writer.post(credit("one too many", 1))).replayed


async def test_cancelled_caller_leaves_a_whole_booking(writer: Writer, other: apsw.Connection) -> None:
    gate = threading.Event()
    writer.submit(holding(gate))
    task = asyncio.ensure_future(writer.post(credit("k", 5)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    assert (await writer.post(credit("k", 5))).replayed
    assert balances(other)["balance"] == 105


async def test_lock_held_by_another_is_busy_for_the_whole_batch_and_nothing_else(
    writer: Writer, other: apsw.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    outcomes = await asyncio.gather(
        writer.post(credit("1", 5)), writer.post(move("2", "balance", "a", 5)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StoreBusy, StoreBusy]
    assert outcomes[0] is not outcomes[1]
    other.execute("ROLLBACK")
    assert not (await writer.post(credit("1", 5))).replayed


async def test_commit_that_fails_fails_everybody_in_it(
    writer: Writer, other: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_connection: apsw.Connection, _journals: object) -> None:
        raise apsw.FullError("database or disk is full")

    monkeypatch.setattr(Poster, "post", full)
    outcomes = await asyncio.gather(
        writer.run(lambda connection: connection.execute("UPDATE accounts SET balance = 1").fetchall()),
        writer.post(credit("1", 5)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable]
    monkeypatch.undo()
    assert balances(other)["balance"] == 100
    assert not (await writer.post(credit("1", 5))).replayed


async def test_closing_finishes_what_was_taken_in_and_refuses_the_rest(path: Path, other: apsw.Connection) -> None:
    writer = Writer(connect(path))
    waiting = [asyncio.ensure_future(writer.post(credit(f"k{n}", 1))) for n in range(HAND_OVER_MAX)]
    await asyncio.sleep(0)  # a full hand over happens at once: all of them are with the writer now
    await asyncio.to_thread(writer.close)
    assert len(await asyncio.gather(*waiting)) == HAND_OVER_MAX
    assert balances(other)["balance"] == 100 + HAND_OVER_MAX
    with pytest.raises(StoreUnavailable):
        await writer.post(credit("late", 1))
    with pytest.raises(StoreUnavailable):
        writer.submit(lambda _: None)


async def test_units_gathered_when_the_writer_closes_are_refused(path: Path) -> None:
    writer = Writer(connect(path))
    waiting = asyncio.ensure_future(writer.post(credit("k", 1)))
    closing = asyncio.ensure_future(asyncio.to_thread(writer.close))
    await closing
    outcome = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(outcome[0], StoreUnavailable) or not outcome[0].replayed  # type: ignore[union-attr]


def test_threads_are_served_like_coroutines(writer: Writer) -> None:
    total = writer.submit(lambda connection: connection.execute("SELECT sum(balance) FROM accounts").get)
    assert total.result(30) == 100
    with pytest.raises(ValueError, match="mine"):
        writer.submit(fail(ValueError("mine"))).result(30)


async def test_loop_that_ended_does_not_stop_the_writer(writer: Writer) -> None:
    gate = threading.Event()
    writer.submit(holding(gate))

    def leave_early() -> None:
        async def ask() -> None:
            task = asyncio.ensure_future(writer.post(credit("left", 5)))
            await asyncio.sleep(0)
            task.cancel()

        asyncio.run(ask())

    await asyncio.to_thread(leave_early)
    gate.set()
    assert (await writer.post(credit("next", 5))).replayed is False
