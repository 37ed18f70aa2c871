"""A processor that takes settlements and tells little of it: its list lags, its errors are replayed, its keys expire.

`LaggingProcessor` is drawn by a seed and answers requests of the wire, by a clock of its own. What it promises: a key
is kept for a day, and a settlement is on the list within `LAG_MAX_S` of being sent.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from urllib.parse import parse_qsl, urlsplit

from paykit_settle.sending import Failure, RawAnswer, Unreachable

LAG_MAX_S = 599
KEY_KEPT_S = 24 * 3600
START_S = 1_768_435_200
"""2026-01-15 in UTC."""
DAY = "2026-01-15"
NET = 970

SENDS = (
    "stored", "stored and 500", "stored and 500", "stored and 500", "stored and lost", "stored and lost", "500", "500",
    "lost", "late", "late", "refused", "503", "in flight", "unauthorized",
)  # fmt: skip
LOOK_UPS = ("list", "list", "list", "list", "list", "list", "no route", "503", "no list", "forbidden")


@dataclass(slots=True, kw_only=True)
class Kept:
    """What a key was used for, until when it is kept, and what is replayed; 0: it is free again."""

    body: bytes
    until_s: int
    status: int
    answer: dict[str, object]


@dataclass
class LaggingProcessor:
    """One account of a processor. `now_s` is its clock, which tests move; `heal` ends what is odd about it."""

    seed: int
    now_s: int = START_S + 2 * 86_400
    is_healed: bool = False
    settlements: list[dict[str, object]] = field(default_factory=list)
    _random: Random = field(init=False)
    _keys: dict[str, Kept] = field(default_factory=dict)
    _visible_s: dict[str, int] = field(default_factory=dict)
    _on_their_way: list[tuple[int, str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random = Random(self.seed)  # noqa: S311 - habits, no secret
        self.has_list = random.random() < 0.85
        self.filters = random.random() < 0.7
        self.tells_key = random.random() < 0.5
        self.oddness = random.choice((0.3, 0.6, 0.9, 1))

    def heal(self) -> None:
        """Ends its failures; its list goes on lagging."""
        self.is_healed = True

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> RawAnswer | None:
        """The answer to a request; None: the connection breaks."""
        self.now_s += self._random.randrange(3)
        self._arrive()
        parts = urlsplit(target)
        if parts.path == "/v1/balance_transactions":
            return _json(200, {"object": "list", "data": [_row()], "has_more": False})
        if method == "GET":
            return self._look_up(dict(parse_qsl(parts.query)))
        return self._post(headers["Idempotency-Key"], body or b"")

    def _habit(self, habits: tuple[str, ...]) -> str:
        return habits[0] if self.is_healed or self._random.random() > self.oddness else self._random.choice(habits)

    def _look_up(self, query: dict[str, str]) -> RawAnswer:
        match "no route" if not self.has_list else self._habit(LOOK_UPS):
            case "no route":
                return _json(404, {"error": {"message": "no such route"}})
            case "503":
                return _json(503, {})
            case "no list":
                return _json(200, {"data": 1})
            case "forbidden":
                return _json(403, {"error": {"message": "not yours"}})
        shown = [each for each in self.settlements if self._visible_s[str(each["id"])] <= self.now_s]
        if self.filters:
            wanted = (query["account"], query["date"])
            shown = [each for each in shown if (each["account"], each["date"]) == wanted]
        return _json(200, {"object": "list", "data": shown, "has_more": False})

    def _post(self, key: str, body: bytes) -> RawAnswer | None:
        kept = self._keys.get(key)
        if kept is not None and kept.until_s > self.now_s:
            if kept.body != body:
                return _json(400, {"error": {"type": "idempotency_error", "code": "idempotency_key_reused"}})
            return _json(kept.status, kept.answer, {"idempotent-replayed": "true"})
        match self._habit(SENDS):
            case "stored":
                return _json(200, self._store(key, body))
            case "stored and lost":
                self._store(key, body)
                return None
            case "stored and 500":
                self._store(key, body)
                return self._fail(key, body)
            case "500":
                return self._fail(key, body)
            case "503":
                return _json(503, {})
            case "late":
                self._on_their_way.append((self.now_s + self._random.randrange(60), key, body))
                return None
            case "in flight":
                return _json(409, {"error": {"type": "idempotency_error", "code": "idempotency_key_in_use"}})
            case "refused":
                return _json(422, {"error": {"type": "invalid_request_error", "message": "not now"}})
            case "unauthorized":
                return _json(401, {"error": {"message": "who are you"}})
        return None

    def _arrive(self) -> None:
        """What was on its way reaches the books, unless its key was used meanwhile."""
        for due_s, key, body in [each for each in self._on_their_way if each[0] <= self.now_s]:
            self._on_their_way.remove((due_s, key, body))
            kept = self._keys.get(key)
            if kept is None or kept.until_s <= due_s:
                self._store(key, body, at_s=due_s)

    def _store(self, key: str, body: bytes, *, at_s: int | None = None) -> dict[str, object]:
        at_s = self.now_s if at_s is None else at_s
        identity = f"setl_{len(self.settlements) + 1}"
        entry = {"id": identity, "status": "created", **json.loads(body)}
        if self.tells_key:
            entry |= {"idempotency_key": key, "body_sha256": hashlib.sha256(body).hexdigest()}
        self.settlements.append(entry)
        # What was on its way has used up part of the time within which it is listed.
        self._visible_s[identity] = at_s + self._random.choice((0, 10, 300, LAG_MAX_S - 70, LAG_MAX_S - 70))
        self._keys[key] = Kept(body=body, until_s=at_s + KEY_KEPT_S, status=200, answer=entry)
        return entry

    def _fail(self, key: str, body: bytes) -> RawAnswer:
        self._keys[key] = Kept(body=body, until_s=self.now_s + KEY_KEPT_S, status=500, answer={})
        return _json(500, {})


@dataclass(slots=True)
class InMemory:
    """Brings a client's requests to the processor without a socket."""

    processor: LaggingProcessor
    at_request: Callable[[], None]

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, *, body_bytes_max: int
    ) -> RawAnswer:
        del body_bytes_max
        answer = self.processor.answer(method, url, headers, content)
        self.at_request()
        if answer is None:
            raise Unreachable("the connection broke", Failure.BROKE)
        return answer

    async def aclose(self) -> None:
        pass


def _json(status: int, value: object, headers: Mapping[str, str] | None = None) -> RawAnswer:
    return RawAnswer(status, headers or {}, json.dumps(value).encode())


def _row() -> dict[str, object]:
    return {
        "id": "t1",
        "type": "charge",
        "amount": NET + 30,
        "fee": 30,
        "net": NET,
        "currency": "usd",
        "status": "available",
        "created": START_S + 60,
    }
