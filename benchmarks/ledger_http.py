"""Credits over HTTP, beside the same server that answers a constant and two that commit each credit by itself.

One server process and one load process, CONNECTIONS connections; each asks again once it has its answer.
"""

import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import apsw
from aiohttp import web

from benchmarks.measuring import show
from paykit_settle.config import Settings
from paykit_settle.http_json import json_response, read_body
from paykit_settle.journal import credit_journal
from paykit_settle.ledger_requests import read_credit
from paykit_settle.service import create_app
from paykit_settle.service import serve as serve_app
from paykit_settle.store.database import connect, transaction, use_wal
from paykit_settle.store.posting import post_journal
from paykit_settle.store.store import Store

CONNECTIONS = 256
OTHERS = {
    "constant": "the same server, answering a constant",
    "one-commit-each": "one commit each, with our own posting code",
    "naive": "one connection and one commit each",
}


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
    """The same credit, read and posted by the same code, but in a transaction of its own on an open connection."""
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


def one_connection_each(path: Path) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The naive way: for each request a connection, a transaction and a commit; no entries, no fingerprint."""
    connection = apsw.Connection(str(path))
    connection.execute("""
        CREATE TABLE balances (tenant TEXT PRIMARY KEY, amount INTEGER NOT NULL);
        CREATE TABLE credits (tenant TEXT, key TEXT, amount INTEGER, PRIMARY KEY (tenant, key))""")
    connection.close()

    async def handle(request: web.Request) -> web.StreamResponse:
        tenant, asked = request.match_info["tenant_id"], await request.json()
        amount = sum(line["amount_minor"] for line in asked["lines"])
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA synchronous = FULL; BEGIN IMMEDIATE")
        connection.execute("INSERT INTO credits VALUES (?, ?, ?)", (tenant, asked["idempotency_key"], amount))
        connection.execute(
            "INSERT INTO balances VALUES (?, ?) ON CONFLICT DO UPDATE SET amount = amount + excluded.amount",
            (tenant, amount),
        )
        connection.execute("COMMIT")
        connection.close()
        return web.json_response({"replayed": False, "currency": "USD", "amount_minor": amount}, status=201)

    return handle


def serve(folder: Path, ports: "multiprocessing.Queue[int]") -> None:
    """The service, with the two routes to compare with; runs in a process of its own until it is killed."""

    app = create_app(Settings(database=str(folder / "service.db")))
    # Under a path of their own, so that the router finds each of them as quickly as the credits.
    app.router.add_post("/v1/constant/{tenant_id}/credits", answer_constant)
    Store(folder / "each.db").close()
    app.router.add_post("/v1/one-commit-each/{tenant_id}/credits", one_commit_each(folder / "each.db"))
    app.router.add_post("/v1/naive/{tenant_id}/credits", one_connection_each(folder / "naive.db"))

    def tell(url: str) -> None:
        ports.put(int(url.rpartition(":")[2]))

    asyncio.run(serve_app(app, host="127.0.0.1", port=0, on_ready=tell))


def compare_http(folder: Path, *, rounds: int, count: int) -> None:
    """Table 3: POST of credits over CONNECTIONS connections."""
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    server = context.Process(target=serve, args=(folder, ports), daemon=True)
    server.start()
    few = max(CONNECTIONS, count // 6)
    routes = {"constant": count, "tenants": count, "one-commit-each": few, "naive": few}
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
    for route, what in OTHERS.items():
        print(f"  {what:46} {statistics.median(rates[route]):10,.0f}/s")
    most = statistics.median(rates["constant"]) / statistics.median(rates["one-commit-each"])
    print(f"  the most that this server can reach, against one commit each: {most:.2f}x")
    for other, target in (("constant", 0.8), ("naive", 5), ("one-commit-each", None)):
        ratios = [mine / theirs for mine, theirs in zip(rates["tenants"], rates[other], strict=True)]
        show(f"credits, against {other}", rates["tenants"], ratios, target)
