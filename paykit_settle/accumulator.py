"""The roll-up: transactions in, exact totals per currency and named problems out.

Pure. The sign of an amount decides its column, never the type; nothing is dropped: a row is settled, pending, left out
by name, or a problem that refuses the whole run. Memory does not grow with the rows, but for 8 bytes each (`IdHashes`)
and the rows that are owed.
"""

from collections.abc import Callable, Collection, Container, Iterable, Sequence

from paykit_settle.errors import InvalidAmount, InvariantViolated, RunRefused, UnsupportedCurrency
from paykit_settle.faults import Problem
from paykit_settle.id_hashes import HashOf, IdHashes
from paykit_settle.models import BalanceTransaction, CurrencyTotals, RollUp, RowGroup
from paykit_settle.money import AMOUNT_MAX, ScaleProfile, canonical_currency
from paykit_settle.row_faults import STATUSES, row_fault
from paykit_settle.transaction_types import KNOWN_TYPES, MOVES_BALANCE
from paykit_settle.window import Window

PROBLEMS_MAX = 100
"""How many problems a refused run lists; the rest are counted."""

_ISO_SCALE = ScaleProfile()


class Accumulator:
    """A roll-up in progress, for rows that arrive page by page: `add` as often as needed, then `finish` once.

    Rows whose id is in `known` were taken in before, by another run; they are passed over, and the ids of the others
    are kept in `available_ids`. `hash_of` is the hash that repeats are looked for with.
    """

    def __init__(
        self,
        *,
        window: Window | None = None,
        scale: ScaleProfile = _ISO_SCALE,
        known: Container[str] | None = None,
        hash_of: HashOf = hash,
    ) -> None:
        self._start, self._end = (window.start_unix_s, window.end_unix_s) if window else (-AMOUNT_MAX, AMOUNT_MAX + 1)
        self._scale = scale
        self._known = known
        self.pending_rows: list[BalanceTransaction] = []
        """Rows that are owed: pending, and not of a kind that only moves the balance."""
        self.available_ids: list[str] = []
        """With `known`, the ids of the available rows, in order: what this roll-up settles or leaves out for good."""
        self.ids = IdHashes(hash_of=hash_of)
        """The ids of the rows that were added, as hashes."""
        self.row_count = 0
        """The rows that were added, repeats included."""
        self._repeat_count = 0
        self._groups: dict[tuple[str, str, str | None, str], _Group] = {}
        self._problems: list[Problem] = []
        self._problem_count = 0

    def add(self, rows: Sequence[BalanceTransaction]) -> bool:
        """Counts the rows; problems, and ids that came before, are kept for `finish`. True: their bytes are needed."""
        if self._known is not None:
            rows = [row for row in rows if row.id not in self._known]
        self.row_count += len(rows)
        self.ids.add([row.id for row in rows])
        groups, start, end = self._groups, self._start, self._end
        for row in rows:
            key = (row.currency, row.type, row.reporting_category, row.status)
            group = groups.get(key)
            if group is None:
                group = groups[key] = self._open_group(row)
            amount, fee, net, created = row.amount, row.fee, row.net, row.created
            if (
                group.is_special
                or (net is not None and net != amount - fee)
                or (created is not None and not start <= created < end)
            ):
                self._add_special(group, row)
            elif amount >= 0:
                group.charged_count += 1
                group.charged += amount
                group.fees += fee
            else:
                group.refunded_count += 1
                group.refunded += amount
                group.fees += fee
        return True

    def may_repeat(self) -> bool:
        """Whether two rows have one id, or two ids one hash: then `finish` reads the rows again."""
        return bool(self.ids.repeated())

    def finish(self, again: Callable[[], Iterable[Sequence[BalanceTransaction]]]) -> RollUp:
        """The totals; `RunRefused` if any row had a problem or a sum leaves the range of an amount.

        `again` gives the very rows that were added, in their order. It is called only when two ids have one hash, to
        tell a repeat (identical: counted once; differing: a problem) from a coincidence. If it gives other rows, it is
        `InvariantViolated`.
        """
        if repeated := self.ids.repeated():
            self._take_back_repeats(repeated, again())
        groups = self._row_groups()
        # A payout that is pending is still a payout: the type is asked before the status.
        counted = [group for group in groups if group.type not in MOVES_BALANCE]
        settled = tuple(group for group in counted if group.status == "available")
        lines = tuple(_line(currency, settled) for currency in sorted({group.currency for group in settled}))
        for line in lines:
            for name in ("charged", "refunded", "fees", "net"):
                if abs(getattr(line, name)) > AMOUNT_MAX:
                    self._problem("line", line.currency, f"{name} is beyond ±{AMOUNT_MAX}")
        if self._problem_count:
            raise RunRefused(self._problems, problem_count=self._problem_count)
        return RollUp(
            lines=lines,
            settled=settled,
            pending=tuple(group for group in counted if group.status == "pending"),
            left_out=tuple(group for group in groups if group.type in MOVES_BALANCE),
            unknown_types=tuple(sorted({group.type for group in groups} - KNOWN_TYPES)),
            row_count=self.row_count - self._repeat_count,
            repeat_count=self._repeat_count,
        )

    def _open_group(self, row: BalanceTransaction) -> "_Group":
        """The group of rows like this one; special, if each of them has to be looked at or kept."""
        try:
            currency = canonical_currency(row.currency)
            is_special = self._scale.from_wire(1, currency) != 1 or row.status not in STATUSES
        except (UnsupportedCurrency, InvalidAmount):
            currency, is_special = row.currency, True
        group = _Group(currency)
        if row.status == "pending" and row.type not in MOVES_BALANCE:
            group.keep = self.pending_rows.append
        elif row.status == "available" and self._known is not None:
            group.keep = lambda each: self.available_ids.append(each.id)
        group.is_special = is_special or group.keep is not None
        return group

    def _add_special(self, group: "_Group", row: BalanceTransaction) -> None:
        if group.keep is not None:
            group.keep(row)
        if (fault := self._fault_of(row)) is not None:
            self._problem("row", row.id, fault)
            return
        currency = group.currency
        group.add(self._scale.from_wire(row.amount, currency), self._scale.from_wire(row.fee, currency), 1)

    def _fault_of(self, row: BalanceTransaction) -> str | None:
        return row_fault(row, self._start, self._end, self._scale)

    def _take_back_repeats(self, repeated: Collection[int], again: Iterable[Sequence[BalanceTransaction]]) -> None:
        first: dict[str, BalanceTransaction] = {}
        # How many rows have each of these hashes: one that came twice must be found twice.
        found = dict.fromkeys(repeated, 0)
        row_count = 0
        hash_of = self.ids.hash_of
        for rows in again:
            for row in rows:
                if self._known is not None and row.id in self._known:
                    continue
                row_count += 1
                number = hash_of(row.id)
                if number not in found:
                    continue
                found[number] += 1
                if row.id not in first:
                    first[row.id] = row
                elif first[row.id] == row:
                    self._take_back(row)
                else:
                    self._problem("row", row.id, "came twice with different content")
        lost = sum(count < 2 for count in found.values())
        if lost or row_count != self.row_count:
            raise InvariantViolated(
                f"{self.row_count} rows were added, {row_count} found again; of {len(found)} repeats {lost} were not"
            )
        self.pending_rows[:] = list({row.id: row for row in self.pending_rows}.values())
        self.available_ids[:] = list(dict.fromkeys(self.available_ids))

    def _take_back(self, row: BalanceTransaction) -> None:
        """Undoes what `add` did with a row that is an identical repeat."""
        self._repeat_count += 1
        group = self._groups[row.currency, row.type, row.reporting_category, row.status]
        if (fault := self._fault_of(row)) is None:
            currency = group.currency
            group.add(-self._scale.from_wire(row.amount, currency), -self._scale.from_wire(row.fee, currency), -1)
            return
        self._problem_count -= 1
        problem = Problem(kind="row", subject=row.id, detail=fault)
        listed = [index for index, each in enumerate(self._problems) if each == problem]
        if len(listed) > 1:
            del self._problems[listed[-1]]

    def _row_groups(self) -> list[RowGroup]:
        """The groups that hold a row, those that differ in the spelling of the currency as one, in order."""
        merged: dict[tuple[str, str, str | None, str], _Group] = {}
        for (_, kind, category, status), group in self._groups.items():
            if group.charged_count or group.refunded_count:
                key = (group.currency, kind, category, status)
                merged.setdefault(key, _Group(group.currency)).merge(group)
        return [
            RowGroup(
                currency=currency,
                type=kind,
                reporting_category=category,
                status=status,
                charged_count=group.charged_count,
                charged=group.charged,
                refunded_count=group.refunded_count,
                refunded=group.refunded,
                fees=group.fees,
            )
            for (currency, kind, category, status), group in sorted(merged.items(), key=_group_order)
        ]

    def _problem(self, kind: str, subject: str, detail: str) -> None:
        self._problem_count += 1
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(Problem(kind=kind, subject=subject, detail=detail))


class _Group:
    """Sums of rows of one kind; `keep`: what else is done with each; `is_special`: none is added without a look."""

    __slots__ = ("charged", "charged_count", "currency", "fees", "is_special", "keep", "refunded", "refunded_count")

    def __init__(self, currency: str) -> None:
        self.currency = currency
        self.is_special = False
        self.keep: Callable[[BalanceTransaction], None] | None = None
        self.charged_count = self.charged = self.refunded_count = self.refunded = self.fees = 0

    def add(self, amount: int, fee: int, count: int) -> None:
        """Adds a row (`count` 1), or takes one back: `count` -1 with amount and fee negated."""
        if amount * count >= 0:
            self.charged_count += count
            self.charged += amount
        else:
            self.refunded_count += count
            self.refunded += amount
        self.fees += fee

    def merge(self, other: "_Group") -> None:
        self.charged_count += other.charged_count
        self.charged += other.charged
        self.refunded_count += other.refunded_count
        self.refunded += other.refunded
        self.fees += other.fees


def _group_order(item: tuple[tuple[str, str, str | None, str], _Group]) -> tuple[str, str, str, str]:
    (currency, kind, category, status), _ = item
    return currency, kind, category or "", status


def _line(currency: str, settled: Iterable[RowGroup]) -> CurrencyTotals:
    groups = [group for group in settled if group.currency == currency]
    charged = sum(group.charged for group in groups)
    refunded = sum(group.refunded for group in groups)
    fees = sum(group.fees for group in groups)
    return CurrencyTotals(
        currency=currency, charged=charged, refunded=refunded, fees=fees, net=charged + refunded - fees
    )
