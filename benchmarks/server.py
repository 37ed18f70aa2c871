"""A processor that costs next to nothing, in a process of its own: so that a measurement shows the client.

Speaks just enough of the wire: pages of balance transactions (newest first, filtered by `created`), rates, settlements.
Every account has the same rows. `--latency-ms` delays each answer; `--per-second` refuses with 429 what is over it.
"""

import argparse
import asyncio
import json
import re
import sys
import time
from bisect import bisect_left
from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

DAY_START_S, DAY_S = 1_768_435_200, 86_400
CURRENCIES = ("usd", "eur", "gbp", "jpy")
TAILS = [
    json.dumps(
        {
            "type": "charge" if number % 9 else "refund",
            "amount": (1000 + number * 7) * (1 if number % 9 else -1),
            "currency": CURRENCIES[number % 4],
            "fee": 30,
            "net": (1000 + number * 7) * (1 if number % 9 else -1) - 30,
            "status": "available",
            "reporting_category": "charge" if number % 9 else "refund",
        },
        separators=(",", ":"),
    )[1:].encode()
    for number in range(1009)
]
RATES = b'{"base":"usd","as_of":"2026-01-16T00:00:00Z","rates":{"eur":0.92,"gbp":0.79,"jpy":150}}'
NOTHING = b'{"object":"list","url":"/v1/settlements","data":[],"has_more":false}'
CREATED = b'{"id":"setl_0001","status":"created"}'


class Rows:
    """So many rows of one day, written when they are asked for: row 0 is the newest."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._edges: dict[int, int] = {}

    def created(self, row: int) -> int:
        return DAY_START_S + (self.count - 1 - row) * DAY_S // self.count

    def first_before(self, second: int) -> int:
        """The first row created before that second."""
        if second not in self._edges:
            self._edges[second] = bisect_left(range(self.count), -second + 1, key=lambda row: -self.created(row))
        return self._edges[second]

    def page(self, query: dict[str, str]) -> bytes:
        first, last = 0, self.count
        if "created[lt]" in query:
            first = self.first_before(int(query["created[lt]"]))
            last = self.first_before(int(query["created[gte]"]))
        if "starting_after" in query:
            first = max(first, int(query["starting_after"][4:]) + 1)
        stop = max(first, min(last, first + int(query.get("limit", "10"))))
        rows = b",".join(
            b'{"id":"txn_%010d","object":"balance_transaction","created":%d,%b'
            % (row, self.created(row), TAILS[row % 1009])
            for row in range(first, stop)
        )
        more = b"true" if stop < last else b"false"
        return b'{"object":"list","url":"/v1/balance_transactions","has_more":%b,"data":[%b]}' % (more, rows)


class Bucket:
    """A rate limit: a second's worth of requests at one moment, then one at a time. 0 is none."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left, self._at = float(per_second), time.monotonic()

    def take(self) -> bool:
        if not self._per_second:
            return True
        now = time.monotonic()
        self._left = min(self._per_second, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests come one after another."""

    transport: asyncio.Transport

    def __init__(self, rows: Rows, bucket: Bucket, latency_s: float) -> None:
        self._rows, self._bucket, self._latency_s = rows, bucket, latency_s
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < whole:
                return
            self._buffer = self._buffer[whole:]
            method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            answer = self._answer(method, target)
            if self._latency_s:
                asyncio.get_running_loop().call_later(self._latency_s, self._write, answer)
            else:
                self._write(answer)

    def _write(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)

    def _answer(self, method: str, target: str) -> bytes:
        if not self._bucket.take():
            return b"HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}"
        url = urlsplit(target)
        if url.path == "/v1/balance_transactions":
            body = self._rows.page(dict(parse_qsl(url.query)))
        elif url.path == "/v1/fx/rates":
            body = RATES
        else:
            body = CREATED if method == "POST" else NOTHING
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def _serve(options: argparse.Namespace) -> None:
    rows, bucket = Rows(options.rows), Bucket(options.per_second)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(rows, bucket, options.latency_ms / 1000), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until whoever started this one lets go


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--latency-ms", type=int, default=0)
    parser.add_argument("--per-second", type=int, default=0)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))
