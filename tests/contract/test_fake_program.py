"""`python -m fake_processor`, started as people and scripts start it.

A script waits for the first line and then connects; it ends the program with a signal. If the line
came before the socket, or the exit status were another, every script built on it would be flaky.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import httpx
import pytest

from fake_processor import FakeProcessor

CHECKOUT = Path(__file__).resolve().parents[2]


async def start(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fake_processor", *arguments, cwd=CHECKOUT, stdout=PIPE, stderr=PIPE
    )


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_once_it_says_so_and_ends_with_status_0(name: signal.Signals) -> None:
    process = await start("--port", "0")
    assert process.stdout is not None
    try:
        words = (await process.stdout.readline()).decode().split()
        assert words[:-1] == ["fake", "processor", "listening", "on"]
        assert words[-1].startswith("http://127.0.0.1:")
        async with httpx.AsyncClient(base_url=words[-1]) as client:
            answer = await client.get("/v1/balance_transactions?limit=1", auth=("sk_test_demo", ""))
            assert answer.json()["data"][0]["id"] == "txn_2001"
            # The client's connection is still open: it must not hold the program up.
            process.send_signal(name)
            rest, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, errors) == (0, b"")
    assert rest.decode().count(f"{words[-1]}/v1/") == 4


async def test_taken_port_is_one_clear_line_and_status_2() -> None:
    async with FakeProcessor() as fake:
        port = fake.url.rpartition(":")[2]
        process = await start("--port", port)
        output, errors = await process.communicate()
    assert process.returncode == 2
    assert output == b""
    line = errors.decode()
    assert line.count("\n") == 1
    assert f"127.0.0.1:{port}" in line
    assert "Address already in use" in line


@pytest.mark.parametrize("port", ["65536", "-1", "http", ""])
async def test_port_that_is_none_is_status_2(port: str) -> None:
    process = await start(f"--port={port}")
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"is no port" in errors


async def test_host_that_is_none_of_this_machine_is_status_2() -> None:
    process = await start("--host", "192.0.2.1", "--port", "0")  # reserved for documentation
    _, errors = await process.communicate()
    assert (process.returncode, errors.count(b"\n")) == (2, 1)


async def test_ipv6_address_is_printed_as_a_url() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("no IPv6 on this machine")
    async with FakeProcessor(host="::1") as fake, httpx.AsyncClient(base_url=fake.url) as client:
        assert fake.url.startswith("http://[::1]:")
        assert (await client.get("/")).status_code == 200
