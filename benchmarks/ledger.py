"""How fast is the ledger, against the naive ways in the same run? `python -m benchmarks ledger`.

Three questions: transfers by 8, 32 and 100 callers against one that connects, commits and closes for each; the same
at full batches with 400,000 transfers stored; credits over HTTP against the same server answering a constant, and
against one connection and one commit per request. All of them durable, interleaved, medians; read the ratios, the
digits belong to a machine.
"""

import argparse
import asyncio
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import apsw

from benchmarks.ledger_http import compare_http
from benchmarks.measuring import show
from paykit_settle.journal import Transfer, transfer_journal
from paykit_settle.store.database import connect, transaction, use_wal
from paykit_settle.store.ledger import Ledger
from paykit_settle.store.migrations import migrate
from paykit_settle.store.posting import Poster
from paykit_settle.store.store import Store

ACCOUNTS = [f"account-{number}" for number in range(100)]
MONEY = 10**12
FULL_BATCH = 1_000
STORED = 400_000


def random_transfers(seed: int) -> Iterator[Transfer]:
    """Endless transfers of 1 between random accounts under random ids: the worst order for an index."""
    chance = random.Random(seed)  # noqa: S311 - reproducible, nothing secret
    while True:
        source, target = chance.sample(ACCOUNTS, 2)
        id_ = uuid.UUID(int=chance.getrandbits(128)).hex
        yield Transfer(id=id_, source=source, target=target, amount=1, currency="usd")


class Naive:
    """One connection, one transfer, one commit: a table of accounts, a table of transfers, no entries, no key."""

    def __init__(self, path: Path, *, stored: int = 0) -> None:
        self.path = str(path)
        connection = apsw.Connection(self.path)
        connection.execute("""
            CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL);
            CREATE TABLE transfers (id TEXT PRIMARY KEY, source TEXT, target TEXT, amount INTEGER)""")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO accounts VALUES (?, ?)", [(name, MONEY) for name in ACCOUNTS])
        rows = ((one.id, one.source, one.target, one.amount) for one in islice(random_transfers(1), stored))
        connection.executemany("INSERT INTO transfers VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
        connection.close()

    def transfer(self, wanted: Transfer) -> None:
        connection = apsw.Connection(self.path)
        connection.set_busy_timeout(5_000)
        connection.execute("PRAGMA synchronous = FULL; BEGIN IMMEDIATE")
        assert connection.execute("SELECT 1 FROM transfers WHERE id = ?", (wanted.id,)).get is None
        balance = connection.execute("SELECT balance FROM accounts WHERE id = ?", (wanted.source,)).get
        assert balance >= wanted.amount
        move = "UPDATE accounts SET balance = balance + ? WHERE id = ?"
        connection.execute(move, (-wanted.amount, wanted.source))
        connection.execute(move, (wanted.amount, wanted.target))
        row = (wanted.id, wanted.source, wanted.target, wanted.amount)
        connection.execute("INSERT INTO transfers VALUES (?, ?, ?, ?)", row)
        connection.execute("COMMIT")
        connection.close()

    def rate(self, transfers: list[Transfer]) -> float:
        """Transfers a second."""
        started = time.perf_counter()
        for wanted in transfers:
            self.transfer(wanted)
        return len(transfers) / (time.perf_counter() - started)


def make_ledger(path: Path, *, stored: int = 0) -> None:
    """A ledger file with the accounts funded and so many transfers stored, in full batches."""
    connection = connect(path, create=True)
    migrate(connection, now_ms=1)
    use_wal(connection)
    with transaction(connection):
        connection.executemany(
            "INSERT INTO accounts (tenant, id, currency, balance, floor, created_at_ms) "
            "VALUES ('t', ?, 'usd', ?, 0, 1)",
            [(name, MONEY) for name in ACCOUNTS],
        )
    poster, source = Poster(connection), random_transfers(1)
    connection.execute("PRAGMA synchronous = OFF")
    for _ in range(stored // FULL_BATCH):
        batch = [transfer_journal("t", wanted, at_ms=1) for wanted in islice(source, FULL_BATCH)]
        with transaction(connection):
            poster.post(batch)
    connection.close()


def ledger_rate(path: Path, transfers: list[Transfer], *, callers: int) -> float:
    """Transfers a second through the ledger, from so many callers at once in one event loop."""

    async def measure() -> float:
        ledger = Ledger(Store(path))
        await asyncio.to_thread(ledger.store.reserve_log)  # as the service does
        waiting = iter(transfers)

        async def caller() -> None:
            for wanted in waiting:
                await ledger.transfer("t", wanted)

        started = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        seconds = time.perf_counter() - started
        await asyncio.to_thread(ledger.store.close)
        return len(transfers) / seconds

    return asyncio.run(measure())


def compare_callers(folder: Path, *, rounds: int, count: int) -> None:
    """Table 1: fresh files, random ids."""
    naive = Naive(folder / "naive.db")
    source = random_transfers(2)
    ratios: dict[int, list[float]] = {8: [], 32: [], 100: []}
    rates: dict[int, list[float]] = {callers: [] for callers in ratios}
    naive_rates = []
    for turn in range(rounds):
        naive_rate = naive.rate(list(islice(source, count // 20)))
        naive_rates.append(naive_rate)
        for callers in ratios:
            path = folder / f"callers-{turn}-{callers}.db"
            make_ledger(path)
            rate = ledger_rate(path, list(islice(source, count)), callers=callers)
            rates[callers].append(rate)
            ratios[callers].append(rate / naive_rate)
    print("\nTransfers, durable, both entries and the key stored")
    print(f"  {'one connection, one commit':34} {statistics.median(naive_rates):10,.0f}/s     1")
    for callers, target in ((8, 10), (32, 20), (100, 25)):
        show(f"ledger, {callers} callers", rates[callers], ratios[callers], target)


def compare_stored(folder: Path, *, rounds: int, stored: int) -> None:
    """Table 2: full batches on files that hold transfers already."""
    naive, path = Naive(folder / "naive-stored.db", stored=stored), folder / "stored.db"
    make_ledger(path, stored=stored)
    source = random_transfers(3)
    rates, ratios = [], []
    for _ in range(rounds):
        naive_rate = naive.rate(list(islice(source, 200)))
        rate = ledger_rate(path, list(islice(source, 6 * FULL_BATCH)), callers=FULL_BATCH)
        rates.append(rate)
        ratios.append(rate / naive_rate)
    print(f"\nThe same with {stored:,} transfers stored, full batches")
    show(f"ledger, {FULL_BATCH} callers", rates, ratios, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers: shows that it runs, measures nothing")
    parser.add_argument("--only", choices=["callers", "stored", "http"], help="one of the three tables")
    arguments = parser.parse_args()
    quick, only = arguments.quick, arguments.only
    folder = Path(tempfile.mkdtemp(prefix="paykit-benchmark-"))
    try:
        print(f"Python {sys.version.split()[0]}, SQLite {apsw.sqlite_lib_version()}, {os.cpu_count()} cores")
        if only in (None, "callers"):
            compare_callers(folder, rounds=1 if quick else 7, count=200 if quick else 16_000)
        if only in (None, "stored"):
            compare_stored(folder, rounds=1 if quick else 5, stored=1_000 if quick else STORED)
        if only in (None, "http"):
            compare_http(folder, rounds=1 if quick else 7, count=128 if quick else 12_000)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
