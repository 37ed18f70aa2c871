"""A processor of random habits: it lists and filters in its own way, is slow, fails, and still shows a day's every row.

`RandomProcessor` is drawn by a seed and answers requests of the wire; how they reach it is the tests'. What it never
does is told in `test_random_processors.py`.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from urllib.parse import parse_qsl, urlsplit

from paykit_settle.sending import Failure, RawAnswer, Unreachable

START_S = 1_768_435_200
"""2026-01-15 in UTC."""
END_S = START_S + 86_400
ACCOUNT, DAY = "acct_random", "2026-01-15"

HABITS = ("always", "never", "sometimes", "inner", "outer")
ORDERS = ("newest", "newest", "oldest", "oldest", "ties", "shuffled", "nearly")
FIELDS = ("type", "amount", "currency", "fee", "status", "net", "created")


@dataclass(slots=True, kw_only=True)
class Row:
    """One row: when it was created, and what the wire shows of it."""

    created_s: int
    shown: dict[str, object]


class RandomProcessor:
    """One account of a processor, drawn by a seed. `heal` ends its failures, not its habits."""

    def __init__(self, seed: int, *, account: str = ACCOUNT) -> None:
        self.seed = seed
        self.account = account
        self.settlements: list[dict[str, object]] = []
        self.requests = 0
        self.is_healed = False
        self._random = random = Random(seed)  # noqa: S311 - habits, no secret
        habits = random.choice((HABITS, HABITS, ("always",), ("always", "inner")))
        self.gte, self.lt = random.choice(habits), random.choice(habits)
        self.windows_max = random.choice((1, 2, 3, 8, 16, 64, random.randint(1, 64)))
        self.page_size = random.choice((1, 2, 3, 7, 20, 50))
        self.page_rows_max = random.choice((100, 100, self.page_size, max(1, self.page_size // 2), 1))
        self.order = random.choice(ORDERS)
        self.undated_per_mille = random.choice((0, 0, 0, 0, 0, 3, 100, 1000))
        self.failures_per_mille = random.choice((0, 0, 20, 200))
        self.slowness = random.choice(("none", "any", "windows", "first window"))
        self.dense_s = random.choice((0, 0, 0, 0, 400))
        self._day = self._draw_rows(self._row_count(), [self._time_within() for _ in range(350)], "t")
        self._rows = self._in_order(self._day + self._foreign_rows())
        self._places = {str(row.shown["id"]): place for place, row in enumerate(self._rows)}
        self.truth = sum(_net(row) for row in self._day)
        self.row_count = len(self._day)

    def __repr__(self) -> str:
        names = ("seed", "gte", "lt", "windows_max", "page_size", "page_rows_max", "order", "undated_per_mille",
                 "failures_per_mille", "slowness", "dense_s", "row_count")  # fmt: skip
        return f"RandomProcessor({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def _row_count(self) -> int:
        pages = self._random.choice((0, 1, 6, 20, 60, 60, 60))
        return min(350, pages * min(self.page_size, self.page_rows_max) + self._random.randrange(3))

    def _time_within(self) -> int:
        """A time of the day; many share one, and many are close to one another and to the ends."""
        # A bound that is taken too narrow at the day's own ends hides rows from every answer.
        first = START_S + (self.gte == "inner")
        last = END_S - 1 - (self.lt == "inner")
        kind = 1 if self.order == "ties" else self._random.randrange(5)
        if self.dense_s and kind:
            at = self._random.randrange(self.dense_s)
            return last - at if self.order == "oldest" else first + at
        if kind == 0:
            return self._random.choice((first, first, last, last - 1))
        if kind == 1:
            return START_S + 40_000 + self._random.randrange(4)
        if kind == 2:
            return START_S + 50_000 + self._random.randrange(100)
        return self._random.randint(first, last)

    def _foreign_rows(self) -> list[Row]:
        """Rows of other days, also of the seconds next to this one."""
        count = self._random.choice((0, 0, 3, 40))
        before = [START_S - 1 - self._random.choice((0, 0, 1, 5, 86_399)) for _ in range(count)]
        after = [END_S + self._random.choice((0, 0, 1, 5, 86_399)) for _ in range(count)]
        sides = self._random.choice(((True, True), (True, False), (False, True)))
        times = before * sides[0] + after * sides[1]
        rows = self._draw_rows(len(times), times, "x")
        if "sometimes" in (self.gte, self.lt) or {self.gte, self.lt} == {"inner", "outer"}:
            # Of a row without a time, no answer of a processor that filters now and then tells whose day it is; nor of
            # one whose bounds are both a second off the same way: all rows might be created a second before or after.
            for row in rows:
                row.shown["created"] = row.created_s
        return rows

    def _draw_rows(self, count: int, times: list[int], prefix: str) -> list[Row]:
        rows = []
        for number in range(count):
            amount, fee = self._random.randint(-5_000, 9_000), self._random.randrange(3)
            values = ("charge", amount, "usd", fee, "available", amount - fee, times[number])
            shown: dict[str, object] = {"id": f"{prefix}{number}", **dict(zip(FIELDS, values, strict=True))}
            if self._random.randrange(1000) < self.undated_per_mille:
                del shown["created"]
            rows.append(Row(created_s=times[number], shown=shown))
        return rows

    def _in_order(self, rows: list[Row]) -> list[Row]:
        self._random.shuffle(rows)
        if self.order != "shuffled":
            rows.sort(key=lambda row: row.created_s, reverse=self.order != "oldest")
        if self.order == "nearly" and rows:
            rows.insert(self._random.randrange(len(rows)), rows.pop(self._random.randrange(len(rows))))
        return rows

    def heal(self) -> None:
        """Ends the failures."""
        self.is_healed = True

    def delay(self, target: str) -> int:
        """For how many others a request waits before it is answered: windows may lag far behind the first."""
        query = dict(parse_qsl(urlsplit(target).query))
        is_first = query.get("created[lt]") == str(END_S)
        slow = {"none": False, "any": True, "windows": not is_first, "first window": is_first}[self.slowness]
        return self._random.randrange(60) if slow else self._random.randrange(3)

    def answer(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        """The status and body of an answer; status 0: the connection breaks."""
        self.requests += 1
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        if parts.path == "/v1/settlements":
            return self._settlement(method, body)
        if not self.is_healed and self._random.randrange(1000) < self.failures_per_mille:
            return self._random.choice(((0, b""), (500, b"{}"), (503, b"")))
        return 200, json.dumps(self._page(query)).encode()

    def _settlement(self, method: str, body: bytes | None) -> tuple[int, bytes]:
        if method == "POST":
            entry = {"id": f"setl_{self.seed}_{len(self.settlements)}", "status": "accepted", **json.loads(body or b"")}
            self.settlements.append(entry)
            return 201, json.dumps(entry).encode()
        return 200, json.dumps({"data": self.settlements, "has_more": False}).encode()

    def _page(self, query: Mapping[str, str]) -> dict[str, object]:
        low, high = int(query["created[gte]"]), int(query["created[lt]"])
        if self._ignores(self.gte):
            low = 0
        if self._ignores(self.lt):
            high = 2**62
        low += {"inner": 1, "outer": -1}.get(self.gte, 0)
        high += {"inner": -1, "outer": 1}.get(self.lt, 0)
        place = self._places[query["starting_after"]] + 1 if "starting_after" in query else 0
        found = [row.shown for row in self._rows[place:] if low <= row.created_s < high]
        limit = min(int(query["limit"]), self.page_rows_max)
        return {"object": "list", "data": found[:limit], "has_more": len(found) > limit}

    def _ignores(self, habit: str) -> bool:
        return habit == "never" or (habit == "sometimes" and self._random.randrange(3) == 0)


def _net(row: Row) -> int:
    amount, fee = row.shown["amount"], row.shown["fee"]
    assert isinstance(amount, int)
    assert isinstance(fee, int)
    return amount - fee


class InMemory:
    """A `Sender` that hands requests to a processor without a socket, each answered after its delay."""

    def __init__(self, processor: RandomProcessor, at_request: Callable[[], None] = lambda: None) -> None:
        self._processor = processor
        self._at_request = at_request

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, *, body_bytes_max: int
    ) -> RawAnswer:
        assert headers
        assert body_bytes_max
        self._at_request()
        for _ in range(self._processor.delay(url)):
            await asyncio.sleep(0)
        status, body = self._processor.answer(method, url, content)
        if not status:
            raise Unreachable("the connection broke", Failure.BROKE)
        return RawAnswer(status, {}, body)

    async def aclose(self) -> None:
        """Nothing is open."""
