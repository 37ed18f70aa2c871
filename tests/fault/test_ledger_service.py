"""A client that goes away, a service that is stopped under load, a database that is busy: each credit counts once.

Without these, a deployment in the middle of the day would book some credits twice and lose others.
"""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import httpx
import pytest
from aiohttp import web

from paykit_settle.config import Settings
from paykit_settle.service import create_app
from paykit_settle.store import database as database_module
from paykit_settle.store import writer as writer_module
from tests.ledger_files import assert_sound, peek
from tests.ledger_service import balance, client, credit, credit_body, service_process, serving, serving_app
from tests.programs import PROGRAM_TIMEOUT_S, ROOT, environment

TRIALS = 100
NEVER_S = 3_600
UNHURRIED = {"service.SHUTDOWN_TIMEOUT_S": NEVER_S, "http_json.BODY_TIMEOUT_S": NEVER_S}
"""A service whose time-outs no test lives to see: it must not need them to end."""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


async def send_and_leave(url: str, key: str, *, after_s: float, rudely: bool) -> None:
    """Sends a credit of 500 and closes the connection without waiting for the answer."""
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = json.dumps(credit_body(key, 500)).encode()
    head = "POST /v1/tenants/t/credits HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    await asyncio.sleep(after_s)
    if rudely:
        writer.transport.abort()
    writer.close()


async def test_client_that_goes_away_leaves_a_whole_credit_or_none(database: Path) -> None:
    """SRV-01: a hundred clients leave within 0 to 50 ms; whoever asks again with its key gets one credit."""
    with service_process(database) as (_, url):
        for trial in range(TRIALS):
            await send_and_leave(url, f"k{trial}", after_s=trial % 10 / 2000, rudely=trial % 2 == 0)
        async with client(url) as http:
            answers = [await credit(http, "t", f"k{trial}", 500) for trial in range(TRIALS)]
            assert {answer.status_code for answer in answers} <= {200, 201}
            assert await balance(http, "t") == TRIALS * 500
    assert peek(database, "SELECT count(*) FROM entries WHERE account = 'balance'") == [[[TRIALS]]]
    assert_sound(database)


async def test_cancelled_handler_leaves_a_whole_credit(database: Path) -> None:
    """The same when the server does cancel the handler of a lost connection: it must not matter."""
    runner = web.AppRunner(create_app(Settings(database=str(database))), handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        for trial in range(30):
            await send_and_leave(url, f"k{trial}", after_s=trial % 5 / 2000, rudely=True)
        async with client(url) as http:
            for trial in range(30):
                assert (await credit(http, "t", f"k{trial}", 500)).status_code in (200, 201)
            assert await balance(http, "t") == 30 * 500
    finally:
        await runner.cleanup()
    assert_sound(database)


async def test_sigterm_under_load_finishes_or_refuses_each_credit(database: Path) -> None:
    """SRV-03, the credits: after a restart every one of them is there once."""
    keys = [f"k{number}" for number in range(120)]
    answered: dict[str, int] = {}

    with service_process(database, constants=UNHURRIED) as (process, url):
        async with client(url) as http:
            queue, loaded = list(keys), asyncio.Event()

            async def caller() -> None:
                while queue:
                    key = queue.pop()
                    try:
                        answered[key] = (await credit(http, "t", key, 5)).status_code
                    except httpx.TransportError:
                        answered[key] = 0  # refused or cut off: the client does not know
                    if len(answered) >= 40:
                        loaded.set()

            callers = [asyncio.ensure_future(caller()) for _ in range(20)]
            await loaded.wait()
            process.send_signal(signal.SIGTERM)
            await asyncio.gather(*callers)
            assert await asyncio.to_thread(process.wait, PROGRAM_TIMEOUT_S) == 0
    assert set(answered.values()) <= {201, 408, 503, 0}
    told = {key for key, status in answered.items() if status == 201}
    (rows,) = peek(database, "SELECT key FROM journals")
    assert told <= {str(key) for (key,) in rows}
    assert not list(database.parent.glob("*-wal")), "the database is closed last, and properly"

    with service_process(database) as (_, url):
        async with client(url) as http:
            again = await asyncio.gather(*(credit(http, "t", key, 5) for key in keys))
            assert {answer.status_code for answer in again} <= {200, 201}
            assert await balance(http, "t") == 5 * len(keys)
    assert_sound(database)


async def test_request_whose_body_never_comes_does_not_hold_up_the_exit(database: Path) -> None:
    with service_process(database, constants=UNHURRIED) as (process, url):
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = "POST /v1/tenants/t/credits HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
        writer.write(head.encode())
        assert b"100 Continue" in await reader.readline(), "the handler has begun"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, PROGRAM_TIMEOUT_S) == 0
        assert b"HTTP/1.1 408" in await reader.read()
        writer.close()


async def test_client_that_breaks_off_in_its_body_is_no_fault_of_the_service(
    database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @web.middleware
    async def note(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response = await handler(request)
        answered.set_result(response.status)
        return response

    app = create_app(Settings(database=str(database)))
    app.middlewares.insert(0, note)
    async with serving_app(app) as http:
        reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
        head = "POST /v1/tenants/t/credits HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
        writer.write(head.encode())
        assert b"100 Continue" in await reader.readline(), "the handler has begun"
        writer.transport.abort()
        assert await asyncio.wait_for(answered, 30) == 400
    assert "unforeseen" not in caplog.text
    assert "Traceback" not in caplog.text


@contextmanager
def locked(database: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the write lock."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.ledger_child", "lock", str(database)],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == "locked"
        yield child
    finally:
        child.communicate("go\n", timeout=PROGRAM_TIMEOUT_S)


@pytest.fixture
async def hasty(database: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A service that waits no more than 3 × 20 ms for the lock, and lets 5 units wait."""
    async with serving(Settings(database=str(database), busy_timeout_ms=20, write_queue_max=5)) as http:
        yield http


async def test_lock_of_another_process_is_busy_and_never_a_lack_of_money(
    hasty: httpx.AsyncClient, database: Path
) -> None:
    await credit(hasty, "t", "k", 500)
    await hasty.post("/v1/tenants/t/accounts", json={"name": "a", "currency": "USD"})
    transfer = {"id": "x", "source": "balance", "target": "a", "amount_minor": 5, "currency": "USD"}
    with locked(database):
        answers = [
            await credit(hasty, "t", "k2", 5),
            await hasty.post("/v1/tenants/t/transfers", json=transfer),
            await hasty.post("/v1/tenants/t/accounts", json={"name": "b", "currency": "USD"}),
        ]
        assert [(answer.status_code, answer.json()["error"]) for answer in answers] == [(503, "store_busy")] * 3
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
        assert await balance(hasty, "t") == 500, "reads do not wait for the writer"
    assert (await credit(hasty, "t", "k2", 5)).status_code == 201
    assert (await hasty.post("/v1/tenants/t/transfers", json=transfer)).status_code == 201


async def test_full_queue_is_said_and_nothing_is_half_done(
    hasty: httpx.AsyncClient, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer tries for the lock, and gives up, only after somebody has heard that the queue is full."""
    await credit(hasty, "t", "opening", 1)
    full, begin = threading.Event(), database_module.begin

    def begin_late(connection: apsw.Connection) -> None:
        assert full.wait(PROGRAM_TIMEOUT_S)
        begin(connection)

    async def ask(number: int) -> httpx.Response:
        answer = await credit(hasty, "t", f"k{number}", 5)
        if answer.json()["error"] == "store_full":
            full.set()
        return answer

    monkeypatch.setattr(writer_module, "begin", begin_late)
    with locked(database):
        answers = await asyncio.gather(*map(ask, range(40)))
    codes = [answer.json()["error"] for answer in answers]
    assert set(codes) == {"store_full", "store_busy"}
    assert {answer.status_code for answer in answers} == {503}
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
    assert await balance(hasty, "t") == 1
    for number in range(40):
        assert (await credit(hasty, "t", f"k{number}", 5)).status_code == 201
    assert_sound(database)


async def test_database_error_does_not_use_up_the_key(database: Path) -> None:
    """IDM-10, the first vector: the first attempt fails in the database, the retry books."""
    async with serving(Settings(database=str(database))) as http:
        peek(database, "CREATE TRIGGER broken BEFORE INSERT ON journals BEGIN SELECT RAISE(ABORT, 'broken'); END")
        failed = await credit(http, "t", "k", 500)
        assert failed.status_code >= 500
        assert await balance(http, "t") == 0
        peek(database, "DROP TRIGGER broken")
        assert (await credit(http, "t", "k", 500)).status_code == 201
        assert await balance(http, "t") == 500
    assert_sound(database)
