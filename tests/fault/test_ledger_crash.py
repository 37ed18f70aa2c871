"""SIGKILL between any two statements leaves all of an operation or nothing, and its retry works.

Without these, a crash at the wrong moment could take the debit and lose the credit, or leave a key that answers
"in progress" for ever.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paykit_settle import transfers
from paykit_settle.store.store import Store
from tests.ledger_files import assert_sound, peek
from tests.programs import PROGRAM_TIMEOUT_S, ROOT, environment

BEFORE = {"a": 500, "b": 0, "balance": 9}
# What each operation leaves when it happened, and what its retry then says: a replay, or that the account is there.
AFTER = {
    "credit": (BEFORE | {"balance": 509}, "True"),
    "transfer": (BEFORE | {"a": 300, "b": 200}, "True"),
    "account": (BEFORE | {"c": 0}, "(Account(id='c', currency='usd', balance=0, floor=0), False)"),
    "transfer-by-path": (BEFORE | {"a": 300, "b": 200}, "False"),
    "account-by-path": (BEFORE | {"c": 70}, "account_conflict"),
}
MADE_BY_SCRIPTS = {"transfer-by-path", "account-by-path"}


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    transfers.init_db(path)
    transfers.add_account(path, "a", 500)
    transfers.add_account(path, "b", 0)
    transfers.add_account(path, "balance", 9)
    return path


def trials(template: Path, operation: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.ledger_child", "kill", str(template), operation],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("operation", sorted(AFTER))
def test_kill_between_any_two_statements_leaves_all_or_nothing(template: Path, operation: str) -> None:
    """IDM-10, IDM-11, LED-06."""
    after, replay = AFTER[operation]
    *killed, survived, untold = trials(template, operation)
    assert len(killed) >= 4  # BEGIN, a look, a row, COMMIT
    for trial in killed:
        assert trial["killed"], trial
        assert trial["found"] == BEFORE, trial
        assert trial["retry"] != replay, trial
        assert (trial["after"], trial["faults"]) == (after, []), trial
    assert not survived["killed"]
    assert (survived["found"], survived["retry"], survived["faults"]) == (after, replay, [])
    # Killed after the commit, before the answer: the retry is a replay. Calls by path have no moment in between.
    assert untold["killed"] is (operation not in MADE_BY_SCRIPTS)
    assert (untold["found"], untold["retry"], untold["after"]) == (after, replay, after)


def test_kill_while_the_schema_is_made_leaves_all_or_nothing(tmp_path: Path) -> None:
    *killed, survived, _ = trials(tmp_path / "new.db", "init")
    assert len(killed) >= 10
    assert {json.dumps(trial["found"]) for trial in killed} == {'{"no schema": 0}'}
    assert all(trial["faults"] == [] for trial in [*killed, survived])


class Model:
    """What the ledger owes to those it answered: every acknowledged effect, once."""

    def __init__(self) -> None:
        self.done: dict[tuple[str, str], int] = {}
        self.asked: dict[tuple[str, str], int] = {}
        self.refused = 0

    def hear(self, line: str) -> None:
        word, kind, key, amount, *rest = json.loads(line)
        if word == "ask":
            self.asked[(kind, key)] = amount
        elif word == "done":
            # A replay is of something that was asked before, answered or not.
            assert rest == [False] or (kind, key) in self.asked
            self.done[(kind, key)] = amount
        else:
            assert rest == ["insufficient_funds"]
            self.refused += 1


@pytest.mark.parametrize("lines_heard", [20, 400, 1500])
def test_store_killed_under_load_agrees_with_what_was_acknowledged(tmp_path: Path, lines_heard: int) -> None:
    path = tmp_path / "ledger.db"
    transfers.init_db(path)
    transfers.add_account(path, "a", 20_000)
    transfers.add_account(path, "b", 0)
    model = Model()
    for life in range(3):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.ledger_child", "acknowledge", str(path), f"life{life}"],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for _ in range(lines_heard):
            model.hear(child.stdout.readline())
        child.kill()
        for line in child.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):  # what was on its way when the child died; the last line may be torn
                model.hear(line)
        child.wait()
        child.stdout.close()
    Store(path).close()
    assert_sound(path)
    assert_agrees(path, model)


def assert_agrees(path: Path, model: Model) -> None:
    """Every acknowledged effect is there; what is there besides was asked for, and its answer lost by the kill."""
    rows, ((balance, a, b),) = peek(
        path,
        "SELECT operation, key, (SELECT amount FROM entries WHERE journal = id AND position = 1) FROM journals "
        "WHERE operation <> 'opening'",
        "SELECT (SELECT balance FROM accounts WHERE id = 'balance'), (SELECT balance FROM accounts WHERE id = 'a'), "
        "(SELECT balance FROM accounts WHERE id = 'b')",
    )
    kinds = {"credit": "credit", "transfer": "move"}
    booked = {(kinds[str(operation)], str(key)): int(str(amount)) for operation, key, amount in rows}
    assert model.done.items() <= booked.items()
    assert booked.items() <= model.asked.items()
    assert balance == sum(amount for (kind, _), amount in booked.items() if kind == "credit")
    moved = sum(amount for (kind, _), amount in booked.items() if kind == "move")
    assert (a, b) == (20_000 - moved, moved)
