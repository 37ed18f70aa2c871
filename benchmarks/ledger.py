"""How fast is the ledger, against the naive ways in the same run? `python benchmarks/ledger.py [--quick]`.

Three questions: transfers by 8, 32 and 100 callers against one that connects, commits and closes for each; the same
at full batches with 400,000 transfers stored; credits over HTTP against the same server answering a constant, and
against one commit per request. All of them durable, interleaved, medians; read the ratios, the digits belong to a
machine. Loads for HTTP come from processes of their own.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import apsw
from aiohttp import web

from paykit_settle.config import Settings
from paykit_settle.http_json import json_response, read_body
from paykit_settle.journal import Transfer, credit_journal, transfer_journal
from paykit_settle.ledger_requests import read_credit
from paykit_settle.service import create_app
from paykit_settle.service import serve as serve_app
from paykit_settle.store.database import connect, transaction, use_wal
from paykit_settle.store.ledger import Ledger
from paykit_settle.store.migrations import migrate
from paykit_settle.store.posting import Poster, post_journal
from paykit_settle.store.store import Store

ACCOUNTS = [f"account-{number}" for number in range(100)]
MONEY = 10**12
FULL_BATCH = 1_000
STORED = 400_000
CONNECTIONS = 256


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
        naive_rate = naive.rate(list(islice(source, count // 10)))
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


def show(name: str, rates: list[float], ratios: list[float], target: float) -> None:
    ratio = statistics.median(ratios)
    verdict = "reached" if ratio >= target else "missed"
    print(
        f"  {name:34} {statistics.median(rates):10,.0f}/s {ratio:6.2f}x  target {target}x: {verdict}"
        f"  ({min(ratios):.2f} to {max(ratios):.2f})"
    )


class Load(asyncio.Protocol):
    """One connection that posts a credit, waits for its answer and posts the next: little work for the load's side."""

    def __init__(self, ended: asyncio.Future[None], requests: Iterator[bytes]) -> None:
        self._ended = ended
        self._requests = requests
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            return
        assert head.startswith(b"HTTP/1.1 20"), self._answer
        self._answer = b""
        self._next()

    def _next(self) -> None:
        if (request := next(self._requests, None)) is not None:
            self._transport.write(request)
        elif not self._ended.done():
            self._ended.set_result(None)
            self._transport.close()


def credit_requests(route: str, count: int, salt: str) -> Iterator[bytes]:
    """The bytes of so many credits of one line, each with a key of its own, for a thousand tenants."""
    for number in range(count):
        line = {"desc": "order", "amount_minor": 199, "currency": "USD"}
        body = json.dumps({"idempotency_key": f"{salt}-{number}", "lines": [line]}).encode()
        head = f"POST /v1/{route}/tenant-{number % 1000}/credits HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        yield f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def generate_load(port: int, route: str, count: int, salt: str) -> float:
    """Requests a second over CONNECTIONS connections; runs in a process of its own."""

    async def measure() -> float:
        loop = asyncio.get_running_loop()
        requests = list(credit_requests(route, count, salt))
        waiting = iter(requests)
        ends = [loop.create_future() for _ in range(CONNECTIONS)]
        started = time.perf_counter()
        for ended in ends:
            await loop.create_connection(partial(Load, ended, waiting), "127.0.0.1", port)
        await asyncio.gather(*ends)
        return count / (time.perf_counter() - started)

    return asyncio.run(measure())


async def answer_constant(request: web.Request) -> web.Response:
    """What the server can do at most: the body is read, the answer has the size of a real one."""
    await request.read()
    return web.Response(
        text='{"replayed":false,"currency":"USD","amount_minor":199}', status=201, content_type="application/json"
    )


def one_commit_each(path: Path) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The usual way: the same credit, read and posted by the same code, but in a transaction of its own."""
    connection = connect(path)
    use_wal(connection)

    async def handle(request: web.Request) -> web.Response:
        credit = read_credit(await read_body(request), {"usd"})
        journal = credit_journal(
            request.match_info["tenant_id"],
            credit.key,
            currency=credit.currency,
            amounts=credit.amounts,
            fingerprint=credit.fingerprint,
            details=credit.lines,
            at_ms=1,
        )
        with transaction(connection):
            receipt = post_journal(connection, journal)
        return json_response({"replayed": receipt.replayed, "currency": "USD", "amount_minor": 199}, status=201)

    return handle


def serve(folder: Path, ports: "multiprocessing.Queue[int]") -> None:
    """The service, with the two routes to compare with; runs in a process of its own until it is killed."""

    app = create_app(Settings(database=str(folder / "service.db")))
    # Under a path of their own, so that the router finds each of them as quickly as the credits.
    app.router.add_post("/v1/constant/{tenant_id}/credits", answer_constant)
    make_ledger(folder / "each.db")
    app.router.add_post("/v1/one-commit-each/{tenant_id}/credits", one_commit_each(folder / "each.db"))

    def tell(url: str) -> None:
        ports.put(int(url.rpartition(":")[2]))

    asyncio.run(serve_app(app, host="127.0.0.1", port=0, on_ready=tell))


def compare_http(folder: Path, *, rounds: int, count: int) -> None:
    """Table 3: POST of credits over CONNECTIONS connections."""
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    server = context.Process(target=serve, args=(folder, ports), daemon=True)
    server.start()
    routes = {"constant": count, "tenants": count, "one-commit-each": max(CONNECTIONS, count // 6)}
    rates: dict[str, list[float]] = {route: [] for route in routes}
    try:
        port = ports.get(timeout=60)
        with context.Pool(1) as load:
            for turn in range(-1, rounds):
                for route, requests in routes.items():
                    rate = load.apply(generate_load, (port, route, requests, f"round{turn}"))
                    if turn >= 0:  # the first turn warms up
                        rates[route].append(rate)
    finally:
        server.kill()
        server.join()
    print(f"\nCredits over HTTP, {CONNECTIONS} connections, server and load each in a process of its own")
    for route in ("constant", "one-commit-each"):
        print(f"  {route:34} {statistics.median(rates[route]):10,.0f}/s")
    most = statistics.median(rates["constant"]) / statistics.median(rates["one-commit-each"])
    print(f"  {'constant, against one-commit-each':34} {most:19.2f}x  the most that anything on this server can reach")
    for other, target in (("constant", 0.8), ("one-commit-each", 5)):
        ratios = [mine / theirs for mine, theirs in zip(rates["tenants"], rates[other], strict=True)]
        show(f"credits, against {other}", rates["tenants"], ratios, target)


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
            compare_callers(folder, rounds=1 if quick else 7, count=200 if quick else 8_000)
        if only in (None, "stored"):
            compare_stored(folder, rounds=1 if quick else 5, stored=1_000 if quick else STORED)
        if only in (None, "http"):
            compare_http(folder, rounds=1 if quick else 7, count=128 if quick else 12_000)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
