"""An earlier day, listed again: what its list shows beside what is known of it. Pure.

Rows that were settled and are as they were say nothing. The others are late, owed, changed, gone or wrong; what is done
with each is decided elsewhere.
"""

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from paykit_settle.errors import RunRefused
from paykit_settle.faults import Problem
from paykit_settle.models import BalanceTransaction
from paykit_settle.money import AMOUNT_MAX, ScaleProfile
from paykit_settle.row_faults import row_fault
from paykit_settle.window import Window

ODD_ROWS_MAX = 100
"""Rows of an earlier day that may be wrong, changed or vanished; with more of them the day takes nothing in."""


def content_hash(row: BalanceTransaction) -> int:
    """Return a hash of what a row says of money: enough to notice a change, which is then looked at exactly."""
    return hash((row.type, row.amount, row.currency, row.fee, row.status))


@dataclass(slots=True, kw_only=True)
class RelistedDay:
    """What a list of an earlier day shows, page by page.

    `known` are the rows that are settled, with a hash of what they were (None: only the id was kept); those that the
    list shows leave `unseen`. `written_off` are rows that a person has dealt with. Without a `window` a row may be of
    any time.
    """

    window: Window | None
    scale: ScaleProfile
    known: Mapping[str, int | None]
    written_off: Collection[str] = ()
    unseen: MutableMapping[str, int | None] = field(default_factory=dict)
    late: dict[str, BalanceTransaction] = field(default_factory=dict)
    pending: dict[str, BalanceTransaction] = field(default_factory=dict)
    changed: dict[str, BalanceTransaction] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    written_off_available: set[str] = field(default_factory=set)
    row_count: int = 0

    def __post_init__(self) -> None:
        self.unseen = dict(self.known)

    @property
    def _span(self) -> tuple[int, int]:
        return (
            (-AMOUNT_MAX, AMOUNT_MAX + 1) if self.window is None else (self.window.start_unix_s, self.window.end_unix_s)
        )

    def add(self, rows: Sequence[BalanceTransaction]) -> bool:
        """Note the rows of a page, and return whether its bytes are needed: it shows a row that says something."""
        self.row_count += len(rows)
        says_something = [self._note(row) for row in rows]  # each of them, also after the first that does
        return any(says_something)

    def shows(self, identity: str) -> bool:
        """Return whether a row that is not settled stands on the list."""
        return identity in self.late or identity in self.pending or identity in self.wrong

    def missing(self) -> list[str]:
        """Return the settled rows that the list does not show."""
        return list(self.unseen)

    def check_odd(self, vanished: int) -> None:
        """Raise `RunRefused` when more than ODD_ROWS_MAX rows are wrong, changed or vanished."""
        odd = len(self.wrong) + len(self.changed) + vanished
        if odd > ODD_ROWS_MAX:
            detail = f"{odd} rows are wrong, changed or vanished, more than {ODD_ROWS_MAX}"
            raise RunRefused([Problem(kind="day", subject="an earlier day", detail=detail)])

    def _note(self, row: BalanceTransaction) -> bool:
        identity = row.id
        start_s, end_s = self._span
        if row.created is not None and not start_s <= row.created < end_s:
            detail = f"created {row.created} is outside the day that was asked for: the processor does not filter"
            raise RunRefused([Problem(kind="row", subject=identity, detail=detail)])
        if identity in self.known:
            self.unseen.pop(identity, None)
            before = self.known[identity]
            if before is None or before == content_hash(row):
                return False
            self.changed[identity] = row
            return True
        if identity in self.written_off:
            if row.status == "available":
                self.written_off_available.add(identity)
            return False
        return self._note_new(row)

    def _note_new(self, row: BalanceTransaction) -> bool:
        identity = row.id
        before = self.late.get(identity) or self.pending.get(identity)
        if before is not None and before != row:
            fault: str | None = "came twice with different content"
        else:
            fault = row_fault(row, *self._span, self.scale)
        if fault is not None or identity in self.wrong:
            self.wrong.setdefault(identity, fault or "")
            self.late.pop(identity, None)
            self.pending.pop(identity, None)
        elif row.status == "available":
            self.late[identity] = row
        else:
            self.pending[identity] = row
        return True
