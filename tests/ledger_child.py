"""A process of its own for tests that kill it or set it against another: `python -m tests.ledger_child COMMAND ...`.

Every command prints JSON lines. The kill switch lives here, in a hook of the driver: the product has none.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import apsw

from paykit_settle import transfers
from paykit_settle.errors import SettleError
from paykit_settle.journal import Transfer, fingerprint
from paykit_settle.store import writer as writer_module
from paykit_settle.store.files import check_file
from paykit_settle.store.ledger import Account, Ledger
from paykit_settle.store.plan import Receipt
from paykit_settle.store.store import Store
from tests.ledger_files import balances

TENANT = transfers.TENANT
STATEMENTS_MAX = 60
CALLERS = 8


class KillSwitch:
    """Kills this process before its nth statement, once it is armed."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.armed = False
        apsw.connection_hooks.append(self._watch)

    def _watch(self, connection: apsw.Connection) -> None:
        connection.exec_trace = self._count

    def _count(self, _cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
        if self.armed:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return True


def through_the_ledger(action: Callable[[Ledger], Awaitable[object]]) -> Callable[[str, KillSwitch], str]:
    """An operation of the service's ledger; the switch is armed once the file is open."""

    def operation(path: str, switch: KillSwitch) -> str:
        async def act() -> str:
            store = Store(path)
            switch.armed = True
            outcome = await action(Ledger(store))
            switch.armed = False
            await asyncio.to_thread(store.close)
            return str(getattr(outcome, "replayed", outcome))

        return asyncio.run(act())

    return operation


def by_path(action: Callable[[str], object]) -> Callable[[str, KillSwitch], str]:
    """An operation on a file by its path."""

    def operation(path: str, switch: KillSwitch) -> str:
        switch.armed = True
        return str(action(path))

    return operation


OPERATIONS: dict[str, Callable[[str, KillSwitch], str]] = {
    "credit": through_the_ledger(lambda ledger: credit(ledger, "k", 500)),
    "transfer": through_the_ledger(lambda ledger: move(ledger, "x", "a", "b", 200)),
    "account": through_the_ledger(lambda ledger: ledger.create_account(TENANT, Account(id="c", currency="usd"))),
    "transfer-by-path": by_path(lambda path: transfers.transfer(path, "x", "a", "b", 200)),
    "account-by-path": by_path(lambda path: transfers.add_account(path, "c", 70)),
    "init": by_path(transfers.init_db),
}


def credit(ledger: Ledger, key: str, amount: int, *, tenant: str = TENANT) -> Awaitable[Receipt]:
    """A credit of one line in usd."""
    return ledger.credit(tenant, key, currency="usd", amounts=[amount], fingerprint=fingerprint([amount]))


def move(ledger: Ledger, id_: str, source: str, target: str, amount: int) -> Awaitable[Receipt]:
    """A transfer in usd."""
    return ledger.transfer(TENANT, Transfer(id=id_, source=source, target=target, amount=amount, currency="usd"))


def kill_everywhere(template: str, name: str) -> None:
    """Runs the operation on copies of the template, killed before its first, second, … statement, until it survives.

    After each kill: the state that the next process finds, and what the same operation gives it. One more line, with
    `at` null, for a kill after the commit and before anybody was told.
    """
    for at in range(1, STATEMENTS_MAX):
        outcome = _trial(template, name, at)
        print(json.dumps(outcome), flush=True)
        if not outcome["killed"]:
            break
    print(json.dumps(_trial(template, name, None)), flush=True)


def _trial(template: str, name: str, at: int | None) -> dict[str, object]:
    path = f"{template}.{name}.{at}"
    if Path(template).exists():
        shutil.copy(template, path)
    status = _in_child(lambda: _run_operation(path, name, at))
    found = _report_of_child(lambda: {"found": _balances(path)})
    retried = _report_of_child(lambda: {"retry": _retry(path, name)})
    after = _report_of_child(lambda: {"after": _balances(path), "faults": list(check_file(path).faults)})
    return {"at": at, "killed": os.WIFSIGNALED(status), **found, **retried, **after}


def _run_operation(path: str, name: str, at: int | None) -> None:
    switch = KillSwitch(at or STATEMENTS_MAX * 10)
    if at is None:
        kill: Callable[..., None] = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
        writer_module.tell = kill  # type: ignore[attr-defined]
    OPERATIONS[name](path, switch)


def _retry(path: str, name: str) -> str:
    try:
        return OPERATIONS[name](path, KillSwitch(STATEMENTS_MAX * 10))
    except SettleError as error:
        return error.code


def _balances(path: str) -> dict[str, int]:
    if not Path(path).exists():
        return {}
    connection = apsw.Connection(path)
    try:
        return balances(connection)
    except apsw.SQLError:
        return {"no schema": connection.execute("SELECT count(*) FROM sqlite_schema").get or 0}
    finally:
        connection.close()


def _in_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def _report_of_child(work: Callable[[], dict[str, object]]) -> dict[str, object]:
    """What the work gives, computed in a process of its own: locks of a file do not survive a fork."""
    reader, writer = os.pipe()
    status = _in_child(lambda: os.write(writer, json.dumps(work()).encode()))
    os.close(writer)
    text = os.read(reader, 65_536)
    os.close(reader)
    assert status == 0, "the child failed"
    report: dict[str, object] = json.loads(text)
    return report


def work_beside_others(path: str, prefix: str, credit_count: int, move_count: int) -> None:
    """Books credits of 7 and transfers of 1 from `a` to `b`, several at once; prints the errors, which are none."""

    async def work() -> list[str]:
        ledger = Ledger(Store(path))
        reserved = asyncio.get_running_loop().run_in_executor(None, ledger.store.reserve_log)
        print(json.dumps("ready"), flush=True)
        sys.stdin.readline()
        jobs = [partial(credit, ledger, f"{prefix}{number}", 7) for number in range(credit_count)]
        jobs += [partial(move, ledger, f"{prefix}{number}", "a", "b", 1) for number in range(move_count)]
        jobs += [partial(credit, ledger, "shared", 700)] * 25
        random.Random(prefix).shuffle(jobs)  # noqa: S311 - a reproducible order
        errors: list[str] = []

        async def caller() -> None:
            while jobs:
                try:
                    await jobs.pop()()
                except Exception as error:
                    errors.append(repr(error))

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        await reserved
        await asyncio.to_thread(ledger.store.close)
        return errors

    print(json.dumps(asyncio.run(work())), flush=True)


def acknowledge_until_killed(path: str, seed: str) -> None:
    """Random credits and transfers for ever; before each a line that says what is asked, after it what was answered."""
    chance = random.Random(seed)  # noqa: S311 - a reproducible order

    async def caller(ledger: Ledger, number: int) -> None:
        step = 0
        while True:
            step += 1
            key = f"{seed}-{number}-{step // 2}"  # every second one is a retry
            amount = int(fingerprint(key)[0]) + 1
            kind = "credit" if step % 4 < 2 else "move"
            print(json.dumps(["ask", kind, key, amount]), flush=True)
            try:
                action = credit(ledger, key, amount) if kind == "credit" else move(ledger, key, "a", "b", amount)
                receipt = await action
                print(json.dumps(["done", kind, key, amount, receipt.replayed]), flush=True)
            except SettleError as error:
                print(json.dumps(["refused", kind, key, amount, error.code]), flush=True)
            await asyncio.sleep(0 if chance.random() < 0.9 else 0.001)

    async def work() -> None:
        ledger = Ledger(Store(path))
        reserved = asyncio.get_running_loop().run_in_executor(None, ledger.store.reserve_log)
        await asyncio.gather(reserved, *(caller(ledger, number) for number in range(CALLERS)))

    asyncio.run(work())


def hold_lock(path: str) -> None:
    """Takes the write lock, says so, and keeps it until a line comes in."""
    connection = apsw.Connection(path)
    connection.execute("BEGIN IMMEDIATE")
    print(json.dumps("locked"), flush=True)
    sys.stdin.readline()
    connection.close()


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "kill":
        kill_everywhere(*arguments)
    elif command == "work":
        work_beside_others(arguments[0], arguments[1], int(arguments[2]), int(arguments[3]))
    elif command == "acknowledge":
        acknowledge_until_killed(*arguments)
    elif command == "lock":
        hold_lock(*arguments)
