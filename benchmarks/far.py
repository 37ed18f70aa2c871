"""How long does a far, rate-limited processor take? Against the best that its limits allow, and the official SDK."""

from functools import partial

from benchmarks import ours, peers
from benchmarks.measuring import ROUNDS, interleaved, server, table

SDK_SHARE = 50
"""The SDK reads a fiftieth of the rows, one page at a time, and its time is multiplied: pages take it equally long."""


def run(*, rows: int = 100_000, rounds: int = ROUNDS, latency_ms: int = 50, per_second: int = 100) -> str:
    few = max(200, rows // SDK_SHARE)
    pages = -(-rows // 100)
    lines = []
    with server(rows, latency_ms=latency_ms, per_second=per_second) as url:
        # A little below the limit: what is refused costs more than what is left unused.
        chosen = ours.settings(url, windows_max=16, requests_per_s=per_second)
        limited = interleaved({"ours": partial(ours.settle_day, chosen)}, rounds=rounds)["ours"].wall_s
    best = pages / per_second
    lines.append([f"{per_second} requests/s", f"{best:.1f} s", f"{limited:.1f} s", f"{limited / best:.2f}×", "", ""])
    with server(rows, latency_ms=latency_ms) as url, server(few, latency_ms=latency_ms) as few_url:
        chosen = ours.settings(url, windows_max=32)
        works = {"ours": partial(ours.settle_day, chosen), "sdk": partial(peers.stripe_sdk, few_url)}
        took = interleaved(works, rounds=rounds)
    free, sdk_s = took["ours"].wall_s, took["sdk"].wall_s * rows / few
    best = pages * latency_ms / 1000 / 32
    sdk = [f"{sdk_s:.0f} s", f"{sdk_s / free:.0f}×"]
    lines.append(["32 in flight", f"{best:.2f} s", f"{free:.2f} s", f"{free / best:.2f}×", *sdk])
    head = ["bound", "best possible", "ours, posted and booked", "of the best", "stripe SDK", "ours is faster by"]
    return table(f"A processor {latency_ms} ms away, {rows:,} rows", head, lines)


if __name__ == "__main__":
    print(run())
