"""The service with a ledger for tests: in this process on a free port, or as a process of its own."""

import asyncio
import logging
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
from aiohttp import web

from paykit_settle.config import Settings
from paykit_settle.service import create_app
from tests.programs import PAYKIT, paykit_with, running

JSON = {"Content-Type": "application/json"}
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # unused on loopback; making the default one costs 30 ms a client
URL = re.compile(r"http://[\d.]+:\d+")


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The application on a real socket, and a client of it."""
    async with serving_app(create_app(settings)) as connected:
        yield connected


@asynccontextmanager
async def serving_app(
    app: web.Application, *, access_log: logging.Logger | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """An application on a real socket, by default without an access log, as `serve` has it; and a client of it."""
    runner = web.AppRunner(app, access_log=access_log)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with client(f"http://127.0.0.1:{port}") as connected:
            yield connected
    finally:
        await runner.cleanup()


@contextmanager
def service_process(
    database: Path, *options: str, constants: Mapping[str, int] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`paykit-settle serve` on a free port, or with other constants: the process and its address."""
    arguments = ("serve", "--port", "0", "--database", str(database), *options)
    command = (str(PAYKIT), *arguments) if constants is None else paykit_with(constants, *arguments)
    with running(*command, cwd=database.parent) as (process, line):
        found = URL.search(line)
        assert found, line
        yield process, found[0]


def client(url: str) -> httpx.AsyncClient:
    """A client that is patient and holds enough connections for a crowd."""
    limits = httpx.Limits(max_connections=300, max_keepalive_connections=300)
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=60, limits=limits, verify=NO_TLS)


def credit_body(key: str, *amounts: int, currency: str = "USD") -> dict[str, object]:
    """The body of a credit, one line for each amount."""
    return {
        "idempotency_key": key,
        "lines": [{"amount_minor": amount, "currency": currency} for amount in amounts],
    }


async def credit(http: httpx.AsyncClient, tenant: str, key: str, *amounts: int) -> httpx.Response:
    """Posts a credit."""
    return await http.post(f"/v1/tenants/{tenant}/credits", json=credit_body(key, *amounts))


async def post_crowd(http: httpx.AsyncClient, path: str, bodies: Iterable[object]) -> list[tuple[int, Any]]:
    """Posts all bodies at once, each over a connection of its own; statuses and answers, in the order of the bodies."""
    connector = aiohttp.TCPConnector(limit=0)  # httpx takes ten times as long for a crowd
    async with aiohttp.ClientSession(str(http.base_url), connector=connector) as session:

        async def post(body: object) -> tuple[int, Any]:
            async with session.post(path, json=body) as answer:
                return answer.status, await answer.json(content_type=None)

        return await asyncio.gather(*map(post, bodies))


async def credit_raw(http: httpx.AsyncClient, body: bytes, tenant: str = "t_alpha") -> httpx.Response:
    """Posts a body byte for byte."""
    return await http.post(f"/v1/tenants/{tenant}/credits", content=body, headers=JSON)


async def balance(http: httpx.AsyncClient, tenant: str = "t_alpha", currency: str = "USD") -> int:
    """What the tenant's balance stands at."""
    answer = await http.get(f"/v1/tenants/{tenant}/balance", params={"currency": currency})
    assert answer.status_code == 200, answer.text
    amount: int = answer.json()["amount_minor"]
    return amount
