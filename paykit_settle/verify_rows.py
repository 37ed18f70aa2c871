"""Which rows of the evidence count, and what they come to: every id once, by plain sums over parsed JSON. Pure.

No row is kept. Ids are kept as hashes of 8 bytes, and only those of which two are alike, or that stand on a page that
does not own them, are looked at again by id. It shares no code with the run: neither the roll-up's loop nor its hashes.
"""

import json
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from paykit_settle.verify_corrections import NOT_SETTLED, correction_rows
from paykit_settle.verify_pages import DayPages, RowAnswer

LOOKED_UP_AT_ONCE = 100_000
"""Ids that are kept at a time while those in question are looked at; more of them take more passes."""
NAMED_MAX = 20
"""Rows that are named for one kind of fault; the others are counted."""
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""What evidence that was tampered with may raise while it is read."""

CONTENT = ("type", "amount", "currency", "fee", "status", "net", "created", "reporting_category")

Row = Mapping[str, Any]
Pair = tuple[bytes | None, bytes | None]
"""A row as it was settled and as it is now; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Rows that came together, as their bytes: a page, of which rows created in the span `owned` count, or an answer.

    An answer is about the row `asked_for`, and counts wherever its row belongs by now.
    """

    name: str
    body: bytes
    owned: tuple[int, int] = (0, 0)
    asked_for: str | None = None


class Sums:
    """By currency: what was charged and refunded, and the fees, of the rows that were added."""

    def __init__(self) -> None:
        self.by_currency: dict[str, list[int]] = {}

    def add(self, row: Row) -> None:
        """Add a row of the evidence, if it is one that a settlement counts."""
        if row["status"] == "available" and row["type"] not in NOT_SETTLED:
            self.add_amounts(row["currency"].lower(), row["amount"], row["fee"])

    def take_back(self, row: Row) -> None:
        """Undo `add` for a row of which another copy stays."""
        if row["status"] == "available" and row["type"] not in NOT_SETTLED:
            sums = self.by_currency[row["currency"].lower()]
            sums[row["amount"] < 0] -= row["amount"]
            sums[2] -= row["fee"]

    def add_amounts(self, currency: str, amount: int, fee: int) -> None:
        """Add an amount to the column of its sign, and a fee."""
        sums = self.by_currency.get(currency)
        if sums is None:
            sums = self.by_currency[currency] = [0, 0, 0]
        sums[amount < 0] += amount
        sums[2] += fee


class Hashes:
    """Ids as hashes of 8 bytes, sorted in small parts so that nothing of size is made on the way."""

    PARTS = 256

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._parts = [array("q") for _ in range(self.PARTS)]
        for identity in ids:
            self.add(hash(identity))
        self.sort()

    def add(self, number: int) -> None:
        """Add the hash of an id; `sort` before anything is looked up."""
        self._parts[number % self.PARTS].append(number)

    def sort(self) -> None:
        """Make ready for look-ups."""
        for index, part in enumerate(self._parts):
            self._parts[index] = array("q", sorted(part))

    def __contains__(self, number: int) -> bool:
        part = self._parts[number % self.PARTS]
        at = bisect_left(part, number)
        return at < len(part) and part[at] == number

    def in_question(self, cut: "Hashes") -> "array[int]":
        """Return, once each, the hashes that are in here twice, and all that are in `cut`."""
        found = array("q")
        for part, other in zip(self._parts, cut._parts, strict=True):
            twice = {number for at, number in enumerate(part) if at and part[at - 1] == number}
            found.extend(sorted(twice.union(other)))
        return found


class DayCount:
    """One day counted: `sums` and `faults`, where each id that counts must do so exactly once.

    Of the run's own day every row counts but the `moved` ones; of an earlier day only those that were taken in `late`.
    """

    def __init__(
        self,
        period: str,
        pages: DayPages,
        answers: Callable[[], Iterable[RowAnswer]],
        *,
        late: Iterable[str] | None,
        moved: Iterable[str],
    ) -> None:
        self.sums = Sums()
        self.faults: list[str] = []
        self._period = period
        self._pages = pages
        self._answers = answers
        self._late_ids, self._moved_ids = late, moved
        self._late = None if late is None else Hashes(late)
        self._moved = Hashes(moved)
        self._own, self._cut = Hashes(), Hashes()
        self._is_readable = False

    def count(self) -> None:
        """Go through the day once, and again if an id is in question."""
        for sheet in self._sheets():
            try:
                for row, is_own in self._rows(sheet):
                    self._note(row, hash(row["id"]), is_own=is_own)
            except UNREADABLE:
                self.faults.append(f"{sheet.name} cannot be read")
        self._own.sort()
        self._is_readable = not (self._pages.pruned or self.faults)
        if not self._is_readable:
            return
        in_question = self._own.in_question(self._cut)
        for start in range(0, len(in_question), LOOKED_UP_AT_ONCE):
            self._look_at(set(in_question[start : start + LOOKED_UP_AT_ONCE]))
        self._name_missing()

    def correct(self, corrections: Sequence[Pair]) -> None:
        """Add what corrections of settled rows come to."""
        try:
            for row in correction_rows(corrections):
                self.sums.add_amounts(row["currency"], row["amount"], row["fee"])
        except UNREADABLE:
            self.faults.append(f"a correction of {self._period} cannot be read")

    def _note(self, row: Row, number: int, *, is_own: bool) -> None:
        if self._late is not None and number not in self._late:
            return
        if not is_own:
            self._cut.add(number)
            return
        self._own.add(number)
        if number not in self._moved:
            self.sums.add(row)

    def _look_at(self, chosen: set[int]) -> None:
        """Take repeats of these ids back, and name those that are counted nowhere, or twice and differently."""
        first: dict[str, int] = {}
        cut: dict[str, None] = {}
        differing: dict[str, None] = {}
        for row, is_own in self._all_rows():
            identity = row["id"]
            if (number := hash(identity)) not in chosen:
                continue
            if not is_own:
                cut[identity] = None
            elif identity not in first:
                first[identity] = _content(row)
            elif first[identity] != _content(row):
                differing[identity] = None
            elif number not in self._moved:
                self.sums.take_back(row)
        lost = (identity for identity in cut if identity not in first)
        self.faults += _named(differing, f"of {self._period} is counted twice, with different content")
        self.faults += _named(lost, f"of {self._period} stands on a page, and is counted nowhere")

    def _name_missing(self) -> None:
        where = f"stands on no page of {self._period} that counts"
        for ids, what in ((self._late_ids or (), "was taken in late"), (self._moved_ids, "was passed over")):
            self.faults += _named((each for each in ids if hash(each) not in self._own), f"{what}, and {where}")

    def name_settled_too(self, late: Iterable[str], period: str) -> None:
        """Name the rows that this day settles although they are taken in late as rows of an earlier day as well."""
        if not self._is_readable:
            return
        both = (identity for identity in late if hash(identity) in self._own and hash(identity) not in self._moved)
        while ids := set(islice(both, LOOKED_UP_AT_ONCE)):
            twice = {
                row["id"]: None
                for row, is_own in self._all_rows()
                if is_own and row["status"] == "available" and row["id"] in ids
            }
            self.faults += _named(twice, f"is settled as a row of {self._period}, and as one of {period}")

    def _all_rows(self) -> Iterator[tuple[Row, bool]]:
        return (found for sheet in self._sheets() for found in self._rows(sheet))

    def _sheets(self) -> Iterator[Sheet]:
        for page in self._pages.counted():
            owned = (page.window_start_s, page.window_end_s)
            yield Sheet(name=f"page {page.number} of {self._period}", body=page.body or b"", owned=owned)
        for answer in self._answers():
            identity = answer.transaction_id
            yield Sheet(name=f"the answer about {identity}", body=answer.body, asked_for=identity)

    def _rows(self, sheet: Sheet) -> Iterator[tuple[Row, bool]]:
        """Yield the rows of the day, each with whether it counts where it stands. One without a time always does."""
        parsed = json.loads(sheet.body, parse_float=str)
        if sheet.asked_for is not None:
            if parsed["id"] != sheet.asked_for:
                raise ValueError("an answer about another row")
            if parsed["status"] == "available":
                yield parsed, True
            return
        start_s, end_s = self._pages.start_s, self._pages.end_s
        from_s, to_s = sheet.owned
        for row in parsed["data"]:
            created = row.get("created")
            if created is None or from_s <= created < to_s:
                yield row, True
            elif start_s <= created < end_s:
                yield row, False


def _named(ids: Iterable[str], what: str) -> list[str]:
    """A sentence for each row at fault; of many, for the first ones, and one for how many more there are."""
    rest = iter(ids)
    told = [f"{identity} {what}" for identity in islice(rest, NAMED_MAX)]
    left = sum(1 for _ in rest)
    return [*told, f"{left} more rows: each {what}"] if left else told


def _content(row: Row) -> int:
    """What two copies of a row must have in common, hashed as a text: such a hash cannot be aimed at."""
    return hash(json.dumps([row.get(member) for member in CONTENT]))
