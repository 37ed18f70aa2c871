"""What does a small settlement cost on a warm service? 15 rows, one after another, beside a urllib loop."""

import asyncio
import json
import statistics
import time
import urllib.request

from benchmarks import ours, peers
from benchmarks.measuring import server, table
from paykit_settle.run import run_settlement


def run(*, settlements: int = 200) -> str:
    async def warm(url: str) -> list[float]:
        seconds = []
        async with ours.open_runner(ours.settings(url)) as runner:
            for number in range(settlements + 5):
                start = time.perf_counter()
                await ours.settle(runner, f"acct_{number}")
                seconds.append(time.perf_counter() - start)
        return seconds[5:]

    with server(15) as url:
        own = statistics.median(asyncio.run(warm(url))) * 1000
        bare = statistics.median(asyncio.run(_bare(url, settlements))) * 1000
        naive = statistics.median(_timed(url) for _ in range(settlements)) * 1000
        asked = statistics.median(_requests_alone(url) for _ in range(settlements)) * 1000
    lines = [
        ["ours: claimed, stored, looked up, posted, booked durably", f"{own:.2f}", f"{own - asked:.2f}"],
        ["ours, nothing stored (`run_settlement`): three requests", f"{bare:.2f}", f"{bare - asked * 3 / 4:.2f}"],
        ["urllib + json: pages, rates and post, nothing stored", f"{naive:.2f}", f"{naive - asked:.2f}"],
        ["the processor's own time for the same four requests", f"{asked:.2f}", ""],
    ]
    return table("A settlement of 15 rows", ["", "ms", "beyond the processor"], lines)


async def _bare(url: str, settlements: int) -> list[float]:
    """Seconds of each settlement without a store: read, converted, posted under its key, not booked."""
    seconds = []
    async with ours.settings(url).make_client() as client:
        for number in range(settlements + 5):
            start = time.perf_counter()
            await run_settlement(client, None, f"acct_{number}", ours.DAY, now=ours.NOW)
            seconds.append(time.perf_counter() - start)
    return seconds[5:]


def _timed(url: str) -> float:
    """Four requests as the naive script makes them: a new connection each, nothing kept."""
    start = time.perf_counter()
    nets = peers.urllib_loop(url, 100)
    _read(f"{url}/v1/fx/rates?base=usd")
    _read(f"{url}/v1/settlements?account=a")
    _read(f"{url}/v1/settlements", json.dumps(nets).encode())
    return time.perf_counter() - start


def _requests_alone(url: str) -> float:
    start = time.perf_counter()
    for _ in range(4):
        peers.floor(url)
    return time.perf_counter() - start


def _read(url: str, body: bytes | None = None) -> object:
    request = urllib.request.Request(url, data=body, headers=peers.HEADERS)  # noqa: S310 - a local URL of ours
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the same
        return json.load(answer)


if __name__ == "__main__":
    print(run())
