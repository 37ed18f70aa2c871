"""`python -m fake_processor`, started as people and scripts start it.

A script waits for the first line and then connects; it ends the program with a signal. If the line
came before the socket, or the exit status were another, every script built on it would be flaky.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from fake_processor.__main__ import main
from tests.contract.plain import plain_client

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
        async with plain_client(words[-1]) as client:
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
    assert f"{words[-1]}/_fake/faults" in rest.decode()


async def test_generated_data_and_faults_are_served_as_the_flags_say() -> None:
    flags = "--seed 7 --transactions 1000 --days 5 --currencies usd,kwd --last-day 2026-02-28 --account acct_9"
    process = await start("--port", "0", *flags.split(), "--fault", "bom", "--fault", "error_503")
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().split()[-1]
        async with plain_client(url, auth=("sk_test_demo", "")) as client:
            refused = await client.get("/v1/balance_transactions?account=acct_9")
            rules = (await client.get("/_fake/faults")).json()["rules"]
            await client.post("/_fake/heal")
            page = (await client.get("/v1/balance_transactions?account=acct_9&created=2026-02-28&limit=100")).json()
            rates = await client.get("/v1/fx/rates?base=usd&date=2026-02-24")
        process.terminate()
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (refused.status_code, refused.content[:3]) == (503, b"\xef\xbb\xbf")
    assert [rule["fault"] for rule in rules] == ["bom", "error_503"]
    assert (len(page["data"]), page["has_more"]) == (100, True)
    assert {row["currency"] for row in page["data"]} == {"usd", "kwd"}
    assert list(rates.json()["rates"]) == ["kwd"]
    assert errors == b""


@pytest.mark.parametrize(
    ("flags", "total_net"), [("", 145199), ("--settlement-currency jpy", 217799), ("--account acct_456", 63939)]
)
async def test_right_settlement_of_a_day_is_printed(flags: str, total_net: int) -> None:
    process = await start("--settlement", "2026-01-15", *flags.split())
    output, errors = await process.communicate()
    body = json.loads(output)
    assert (process.returncode, errors, body["date"]) == (0, b"", "2026-01-15")
    assert body["total_net"] == total_net == sum(line["net_settlement"] for line in body["lines"])


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--transactions -1", "transactions must be 0 to"),
        ("--transactions 5 --days 0", "days must be 1 to"),
        ("--transactions 5 --currencies usd,xyz", "currency xyz cannot be generated"),
        ("--last-day tomorrow", "is no date like"),
        ("--fault bomb", "unknown fault 'bomb'; did you mean bom?"),
        ("--fault bom --fault-per-mille 1001 --port 0", "per_mille must be an integer"),
        ("--settlement 2026-02-30", "Invalid date"),
        ("--settlement 2026-01-15 --account acct_none", "No such account"),
    ],
)
def test_flag_that_cannot_be_is_said_so_with_status_2(
    flags: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(flags.split())
    except SystemExit as usage:  # argparse's own way to end
        status = int(str(usage.code))
    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "")
    assert reason in shown.err


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
def test_port_that_is_none_is_status_2(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as usage:
        main([f"--port={port}"])
    assert usage.value.code == 2
    assert "is no port" in capsys.readouterr().err


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
    async with FakeProcessor(host="::1") as fake, plain_client(fake.url) as client:
        assert fake.url.startswith("http://[::1]:")
        assert (await client.get("/")).status_code == 200
