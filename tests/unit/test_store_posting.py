"""A poster that takes keys for new until the index says otherwise gives what one gives that looks every key up.

Without these a retry could be refused for want of the money that it moved itself, or a used key move money twice.
"""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from paykit_settle.errors import IdempotencyConflict, InsufficientFunds, InvariantViolated, SettleError
from paykit_settle.journal import Journal
from paykit_settle.store.database import transaction
from paykit_settle.store.plan import Outcome, Receipt
from paykit_settle.store.posting import (
    CAREFUL_BATCHES,
    MOVES_AT_ONCE_MIN,
    ROWS_PER_STATEMENT,
    Poster,
    move_balances,
)
from tests.ledger_files import assert_sound, balances, credit, ledger_file, move, open_account, post


@pytest.fixture
def file(tmp_path: Path) -> Iterator[apsw.Connection]:
    """`balance` 100, an empty account `a`."""
    with ledger_file(tmp_path / "ledger.db") as connection:
        open_account(connection, "a")
        post(connection, credit("opening", 100))
        yield connection


def batch(connection: apsw.Connection, poster: Poster, *journals: Journal) -> list[Outcome]:
    with transaction(connection):
        return poster.post(journals)


def looked_up(connection: apsw.Connection, poster: Poster, *journals: Journal) -> bool:
    """Whether the poster asked for the keys of these journals."""
    statements: list[str] = []

    def note(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        statements.append(sql)
        return True

    connection.exec_trace = note
    batch(connection, poster, *journals)
    connection.exec_trace = None
    return any("JOIN journals" in sql for sql in statements)


def test_retry_of_a_transfer_that_took_everything_gets_its_first_answer(file: apsw.Connection) -> None:
    poster, everything = Poster(file), move("all", "balance", "a", 100)
    assert batch(file, poster, everything) == [Receipt(everything.answer, False)]
    assert batch(file, poster, everything) == [Receipt(everything.answer, True)]
    assert isinstance(batch(file, poster, move("more", "balance", "a", 1))[0], InsufficientFunds)
    assert balances(file) == {"balance": 0, "a": 100}


def test_used_key_among_new_ones_moves_nothing_again_and_takes_nobody_with_it(file: apsw.Connection) -> None:
    poster = Poster(file)
    batch(file, poster, credit("k", 5))
    outcomes = batch(file, poster, credit("new", 1), credit("k", 5), credit("k", 6), credit("newer", 2))
    assert [getattr(outcome, "replayed", type(outcome)) for outcome in outcomes] == [
        False,
        True,
        IdempotencyConflict,
        False,
    ]
    assert balances(file)["balance"] == 100 + 5 + 1 + 2


def test_used_key_late_in_a_large_batch_leaves_nothing_of_the_first_attempt(file: apsw.Connection) -> None:
    """The journals go in by several statements: the ones before the refused one are taken back."""
    poster = Poster(file)
    batch(file, poster, credit("used", 5))
    news = [credit(f"k{number}", 1) for number in range(ROWS_PER_STATEMENT[0] + 20)]
    *first, replay = batch(file, poster, *news, credit("used", 5))
    assert not any(isinstance(outcome, SettleError) or outcome.replayed for outcome in first)
    assert isinstance(replay, Receipt)
    assert replay.replayed
    assert balances(file)["balance"] == 100 + 5 + len(news)
    assert not looked_up(file, Poster(file), credit("next", 1))
    assert_sound(Path(file.filename))
    assert file.execute("SELECT max(id) FROM journals").get == 1 + 1 + len(news) + 1


def test_keys_are_looked_up_after_one_was_used_and_no_more_after_a_while(file: apsw.Connection) -> None:
    poster = Poster(file)
    assert not looked_up(file, poster, credit("k", 1))
    assert looked_up(file, poster, credit("k", 1))
    for number in range(CAREFUL_BATCHES - 1):
        assert looked_up(file, poster, credit(f"careful-{number}", 1))
    assert not looked_up(file, poster, credit("hopeful", 1))


@pytest.mark.parametrize("count", [1, MOVES_AT_ONCE_MIN - 1, MOVES_AT_ONCE_MIN, 2 * MOVES_AT_ONCE_MIN + 1])
def test_balances_move_only_from_what_was_read(file: apsw.Connection, count: int) -> None:
    for number in range(count):
        open_account(file, f"x{number}")
    numbers = [number for (number,) in file.execute("SELECT number FROM accounts WHERE id LIKE 'x%' ORDER BY number")]
    with transaction(file):
        move_balances(file, [(index, number, 0) for index, number in enumerate(numbers)])
    assert [balances(file)[f"x{number}"] for number in range(count)] == list(range(count))
    with pytest.raises(InvariantViolated, match="a balance changed"), transaction(file):
        move_balances(file, [(7, number, index + (index == count - 1)) for index, number in enumerate(numbers)])
    assert balances(file)["x0"] == 0
