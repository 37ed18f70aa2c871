"""Is the fake the bottleneck when a client is measured? Pages per second from generated data, and start-up.

The server runs in a process of its own; eight clients in this one are bare sockets, so that what is measured is the
server, which uses one core. The control is aiohttp alone with one constant page: read the other rates beside it, as a
machine with other work slows both.
Run it as `python benchmarks/fake_processor.py [--seconds 3] [--rounds 3]`; status 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from aiohttp import web

ROOT = Path(__file__).resolve().parents[1]
ROWS = 1_000_000
PAGE_SIZE = 100
CONNECTIONS = 8
DAY_S = 86_400
LAST_DAY_START_S = 1768435200  # 2026-01-15
PAGES_PER_S_MIN = 3_000
START_MS_MAX = 1_000
MEMORY_MIB_MAX = 100
NS_PER_S = 1_000_000_000


class Server(NamedTuple):
    pid: int
    port: int
    start_ms: int


class Rate(NamedTuple):
    per_second: int
    server_us: int


def main() -> int:
    """Prints one table; status 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3, help="of one round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: %(default)s)")
    parser.add_argument("--constant", action="store_true", help="serve one page over and over: the control")
    options = parser.parse_args()
    if options.constant:
        return asyncio.run(serve_constant())
    starts, fresh, again, floor, memory = [], [], [], [], []
    for _ in range(options.rounds):
        with serving(__file__, "--constant") as server:
            floor.append(measure(server, days=1, seconds=options.seconds))
        with serving("-m", "fake_processor", "--port", "0", "--transactions", str(ROWS)) as server:
            starts.append(server.start_ms)
            fresh.append(measure(server, days=CONNECTIONS, seconds=options.seconds))
            again.append(measure(server, days=1, seconds=options.seconds))
            memory.append(memory_mib(server.pid))
    rows = (
        (
            "pages/s, each of 8 clients through a day of its own",
            median(r.per_second for r in fresh),
            "≥",
            PAGES_PER_S_MIN,
        ),
        ("pages/s, 8 clients through the same day", median(r.per_second for r in again), "≥", PAGES_PER_S_MIN),
        ("ms from start to the first line", median(starts), "<", START_MS_MAX),
        ("MiB at most", median(memory), "<", MEMORY_MIB_MAX),
    )
    print(f"{ROWS:,} generated rows, page size {PAGE_SIZE}, medians of {options.rounds} rounds")
    missed = False
    for name, value, sign, target in rows:
        met = value >= target if sign == "≥" else value < target
        missed = missed or not met
        print(f"{name:<55}{value:>8,.0f}  {sign} {target:,}{'' if met else '   missed'}")
    print(f"{'pages/s of aiohttp alone, one constant page':<55}{median(rate.per_second for rate in floor):>8,.0f}")
    for name, found in (("a day of its own", fresh), ("the same day", again), ("aiohttp alone", floor)):
        print(f"{'µs of server CPU for a page, ' + name:<55}{median(rate.server_us for rate in found):>8,.0f}")
    print(f"{'ms of this machine for a loop of 1,000,000 steps':<55}{loop_ms():>8,.0f}")
    return 1 if missed else 0


async def serve_constant() -> int:
    """aiohttp and nothing else, with a body as long as a page: what no server on it can beat."""
    page = b'{"object":"balance_transaction"}' * 1_400

    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.Response(body=page, headers={"Content-Type": "application/json"})

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"port:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()
    return 0


def loop_ms() -> int:
    """How fast the machine is just now, to compare figures by."""
    times_ns = []
    for _ in range(3):
        started_ns = time.perf_counter_ns()
        for _ in range(1_000_000):
            pass
        times_ns.append(time.perf_counter_ns() - started_ns)
    return min(times_ns) // 1_000_000


@contextmanager
def serving(*program: str) -> Iterator[Server]:
    """A server as a program of its own; its first line ends in its port."""
    started_ns = time.monotonic_ns()
    process = subprocess.Popen(
        [sys.executable, *program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline().rpartition(":")[2])
        yield Server(process.pid, port, (time.monotonic_ns() - started_ns) // 1_000_000)
    finally:
        process.kill()
        process.communicate()


def measure(server: Server, *, days: int, seconds: int) -> Rate:
    """Pages through the account on eight connections for so long, each through one day of so many, over and over."""
    connections = [Connection(server.port, LAST_DAY_START_S - number % days * DAY_S) for number in range(CONNECTIONS)]
    for connection in connections:
        connection.ask()
    pages = 0
    cpu_before_ns, started_ns = cpu_ns(server.pid), time.monotonic_ns()
    while time.monotonic_ns() - started_ns < seconds * NS_PER_S:
        for connection in connections:  # the server always has the others' requests to work on
            connection.read()
            connection.ask()
        pages += CONNECTIONS
    elapsed_ns = time.monotonic_ns() - started_ns
    server_us = (cpu_ns(server.pid) - cpu_before_ns) // 1_000 // pages
    for connection in connections:
        connection.close()
    return Rate(pages * NS_PER_S // elapsed_ns, max(1, server_us))


class Connection:
    """A client that does no more than it must: it follows the Link header and reads the body away."""

    def __init__(self, port: int, day_start_s: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb", buffering=1 << 17)
        window = f"created[gte]={day_start_s}&created[lt]={day_start_s + DAY_S}"
        self._head = f"GET /v1/balance_transactions?account=acct_123&limit={PAGE_SIZE}&{window}".encode()
        self._cursor = b""

    def ask(self) -> None:
        tail = b" HTTP/1.1\r\nHost: fake\r\nAuthorization: Bearer sk_test_bench\r\n\r\n"
        self._socket.sendall(self._head + self._cursor + tail)

    def read(self) -> None:
        length = 0
        self._cursor = b""
        while (line := self._reader.readline()) != b"\r\n":
            name, _, value = line.partition(b": ")
            if name == b"Content-Length":
                length = int(value)
            elif name == b"Link":
                self._cursor = b"&starting_after=" + value.partition(b"starting_after=")[2].partition(b">")[0]
        body = self._reader.read(length)
        assert body.count(b'"balance_transaction"') > 1

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


def cpu_ns(pid: int) -> int:
    """Processor time that a process has used, as Linux counts it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * NS_PER_S // os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> int:
    """The most memory that a process has held."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1_024


if __name__ == "__main__":
    sys.exit(main())
