"""What the processor has for a day: its list of settlements, read strictly, and whether one of them is ours. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain
from typing import Literal

import msgspec

from paykit_settle.strict_json import json_type
from paykit_settle.window import parse_date
from paykit_settle.wire import LINE_AMOUNTS, decode_object, name_in

LookUpMode = Literal["list", "none"]
"""Whether a processor is asked for its settlements (`list`), or known to have no such route (`none`)."""
SETTLEMENT_PAGES_MAX = 100
"""Pages of one look-up: a day has one settlement, but a processor that does not filter lists them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSettlement:
    """A settlement as the processor has it: `members` as it shows them, `received` the bytes that it sent of it."""

    id: str
    status: str
    members: Mapping[str, object]
    received: bytes = b""

    @property
    def idempotency_key(self) -> str | None:
        """The key that it says it came under; None where it says none."""
        key = self.members.get("idempotency_key")
        return key if isinstance(key, str) else None

    def has_body(self, body: bytes) -> bool:
        """Whether it is the settlement of that body: all that was sent is there, with that value.

        Lines are matched by currency and period; it may have more members. Where it tells the digest of the bytes that
        it received, and that is the body's, it is.
        """
        if self.members.get("body_sha256") == hashlib.sha256(body).hexdigest():
            return True
        return _has_all(decode_object(body), self.members)

    def is_of(self, body: bytes, key: str) -> bool:
        """Whether it is the settlement of that body, sent under that key: by the key, only its amounts must be."""
        if self.has_body(body):
            return True
        return self.idempotency_key == key and _amounts_in(decode_object(body)) == _amounts_in(self.members)


def _has_all(sent: Mapping[str, object], shown: Mapping[str, object]) -> bool:
    for name, value in sent.items():
        there = shown.get(name)
        if isinstance(value, list):
            if not isinstance(there, list) or not _has_lines(value, there):
                return False
        elif type(there) is not type(value) or there != value:  # JSON's true is no 1
            return False
    return True


def _has_lines(sent: list[object], shown: list[object]) -> bool:
    """Whether two lists hold the same lines, in any order; a line is a currency, or one of an earlier period."""
    lines = {_line_key(line): line for line in shown if isinstance(line, dict)}
    if not len(lines) == len(shown) == len(sent):
        return False
    return all(
        isinstance(line, dict) and _line_key(line) in lines and _has_all(line, lines[_line_key(line)]) for line in sent
    )


def _line_key(line: Mapping[str, object]) -> tuple[str, str]:
    return repr(line.get("currency")), repr(line.get("period"))


def _amounts_in(members: Mapping[str, object]) -> list[object] | None:
    """The total and the amounts of the lines, whatever else is said of them; None where one is no amount."""
    total, lines = members.get("total_net"), members.get("lines")
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
        return None
    amounts = [[line.get(name) for name in (*LINE_AMOUNTS, "net_settlement")] for line in lines]
    if not all(type(each) is int for each in [total, *chain.from_iterable(amounts)]):
        return None
    return [total, *sorted(amounts)]


class SettlementList:
    """The settlements of one account and day, read from a list's pages; the list is whole once `read` gives None.

    Entries of another account or day are dropped, for a processor that does not filter; one that does not say which it
    belongs to counts. An entry that comes again counts once.
    """

    def __init__(self, account: str, day: date) -> None:
        self._account = account
        self._day = day
        self._entries: dict[str, FoundSettlement] = {}
        self.page_count = 0

    @property
    def found(self) -> list[FoundSettlement]:
        """What was read so far, in the processor's order."""
        return [each for each in self._entries.values() if not self._is_of_another(each.members)]

    def read(self, body: bytes) -> str | None:
        """Take one page in and return the cursor of the next; `ValueError` for a page that leads nowhere."""
        answer = decode_object(body)
        entries, has_more = answer.get("data"), answer.get("has_more")
        if not isinstance(entries, list) or type(has_more) is not bool:
            raise ValueError("settlements: expected a list, with data and has_more")
        try:
            received = msgspec.json.decode(body, type=_ReceivedPage).data
        except msgspec.DecodeError as error:
            raise ValueError(f"settlements: {error}") from None
        page = [_found_settlement(entry, bytes(raw)) for entry, raw in zip(entries, received, strict=True)]
        new = {each.id: each for each in page if each.id not in self._entries}
        if has_more and not new:
            raise ValueError("settlements: more are promised, and none come")
        if has_more and self.page_count + 1 >= SETTLEMENT_PAGES_MAX:
            raise ValueError(f"settlements: the list of one day has more than {SETTLEMENT_PAGES_MAX} pages")
        self._entries |= new
        self.page_count += 1
        return page[-1].id if has_more else None

    def _is_of_another(self, members: Mapping[str, object]) -> bool:
        account, day = members.get("account"), members.get("date")
        try:
            is_other_day = parse_date(day) != self._day
        except ValueError:
            is_other_day = False  # not a day as we write it: nothing is known from it
        return is_other_day or (isinstance(account, str) and account != self._account)


class _ReceivedPage(msgspec.Struct):
    """The entries of a page as they came."""

    data: list[msgspec.Raw]


def _found_settlement(entry: object, received: bytes) -> FoundSettlement:
    if not isinstance(entry, dict):
        raise ValueError(f"settlements: an entry must be an object, got {json_type(entry)}")
    return FoundSettlement(id=name_in(entry, "id"), status=name_in(entry, "status"), members=entry, received=received)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentAttempt:
    """What an attempt sends: its number, its key, its bytes."""

    number: int
    key: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedOut:
    """What a day's settlements are to us: `ours`, and the `others` beside it.

    `earlier`: where none is ours, the attempt before this one that one of them is of.
    """

    ours: FoundSettlement | None
    others: Sequence[FoundSettlement]
    earlier: SentAttempt | None = None


def sort_out(found: Sequence[FoundSettlement], current: SentAttempt, earlier: Sequence[SentAttempt] = ()) -> SortedOut:
    """Return which of a day's settlements is the one of the current attempt.

    Of two equal ones it is the one under our key, else the first by id.
    """
    same = [each for each in found if each.is_of(current.body, current.key)]
    ours = min(same, key=lambda each: (each.idempotency_key != current.key, each.id), default=None)
    others = [each for each in found if each is not ours]
    if ours is not None:
        return SortedOut(ours=ours, others=others)
    of_earlier = (attempt for attempt in earlier if any(_came_with(each, attempt) for each in others))
    return SortedOut(ours=None, others=others, earlier=next(of_earlier, None))


def _came_with(found: FoundSettlement, attempt: SentAttempt) -> bool:
    return found.idempotency_key in (None, attempt.key) and found.is_of(attempt.body, attempt.key)
