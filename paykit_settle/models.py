"""The records that travel through a run, frozen: a transaction as pulled, a settlement as posted.

All amounts are ISO 4217 minor units as `int`, except in `BalanceTransaction`, which holds what the processor's wire
said. No record knows how it is transported or stored.
"""

from collections.abc import Mapping
from datetime import date as Date
from typing import Annotated

import msgspec

from paykit_settle.money import AMOUNT_MAX
from paykit_settle.rates import Conversion
from paykit_settle.window import Window

ITEMISED, TOTAL_ONLY = "itemised", "total only"
"""How a settlement that is not ours was taken from the processor: with lines that prove its total, or without."""

_WireAmount = Annotated[int, msgspec.Meta(ge=-AMOUNT_MAX, le=AMOUNT_MAX)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class BalanceTransaction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of the account's balance, as the processor sent it (other members are left out).

    `amount` and `fee` are in the processor's own scale of `currency`; `created` is in unix seconds.
    `gc=False`: a row holds only texts and integers, so it can be part of no cycle.
    """

    id: _Name
    type: _Name
    amount: _WireAmount
    currency: _Name
    fee: _WireAmount
    status: _Name
    net: _WireAmount | None = None
    created: _WireAmount | None = None
    reporting_category: str | None = None


class RowGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one kind, counted and summed: the finest total that the run keeps.

    `charged_count`/`charged` are the rows with amount ≥ 0, `refunded_count`/`refunded` those below.
    """

    currency: str
    type: str
    reporting_category: str | None
    status: str
    charged_count: int
    charged: int
    refunded_count: int
    refunded: int
    fees: int

    @property
    def count(self) -> int:
        return self.charged_count + self.refunded_count

    @property
    def net(self) -> int:
        return self.charged + self.refunded - self.fees


class CurrencyTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What the available rows of one currency come to; net = charged + refunded - fees."""

    currency: str
    charged: int
    refunded: int
    fees: int
    net: int


class RollUp(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one window, summed exactly: everything that came is in a group, by name.

    `lines` are in order of currency. `settled` are the groups that make the lines, `pending` the rows that are not
    available yet, `left_out` those that move the balance rather than make it; `unknown_types` names types that are
    counted by their sign although we do not know them. `row_count` counts distinct rows, `repeat_count` rows that came
    again, identical, and were counted once.
    """

    lines: tuple[CurrencyTotals, ...]
    settled: tuple[RowGroup, ...]
    pending: tuple[RowGroup, ...]
    left_out: tuple[RowGroup, ...]
    unknown_types: tuple[str, ...]
    row_count: int
    repeat_count: int


class LatePeriod(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an earlier day that were not settled with it: they were pending then, or came late.

    `changed_ids` are rows that were settled and that the processor now shows with other content, `vanished_ids` those
    that it shows no more, `wrong_ids` rows that cannot be counted: nothing is settled for them, they are named and in
    the register of differences. `amended_ids` were owed and are settled here with other content than they had then.
    """

    period: Date
    roll_up: RollUp
    changed_ids: tuple[str, ...] = ()
    vanished_ids: tuple[str, ...] = ()
    wrong_ids: tuple[str, ...] = ()
    amended_ids: tuple[str, ...] = ()


class MovedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that a list showed under `period` although it was dealt with already, and that was passed over.

    `run` settled it, under the day `held_under`; both are None for a row that a person had written off. `is_different`:
    it was shown with other content than it was settled with.
    """

    id: str
    period: Date
    run: str | None
    held_under: Date | None
    is_different: bool = False


class EarlierDay(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier day that was read as well: `how` ("listed", "asked by id"), and why.

    `given_up` says why it could not be read whole, or cannot be trusted: then nothing of it is taken in.
    """

    period: Date
    how: str
    why: str
    given_up: str | None = None


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """Late rows of a day that stay owed for now: how many, the first of their ids, and why."""

    period: Date
    count: int
    ids: tuple[str, ...]
    why: str


class RunNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What a run saw besides the rows it settles: nothing here changes a total, and nothing of it is silent.

    `moved` names the first rows that were passed over, `moved_count` is how many there were. `waiting` are earlier days
    that are still to be listed by later runs, `written_off_available` rows that have turned available after a person
    had written them off.
    """

    moved: tuple[MovedRow, ...] = ()
    moved_count: int = 0
    earlier_days: tuple[EarlierDay, ...] = ()
    waiting: tuple[Date, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    written_off_available: tuple[str, ...] = ()


class SettlementLine(msgspec.Struct, frozen=True, kw_only=True):
    """One currency of a settlement: its totals, and its net converted once into the settlement currency.

    `period` is the earlier day that the line's rows belong to; None for the settlement's own day.
    """

    currency: str
    charged: int
    refunded: int
    fees: int
    net: int
    net_settlement: int
    conversion: Conversion
    """How net became net_settlement; the identity where the line is in the settlement currency or its net is 0."""
    period: Date | None = None


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """One account's day, settled: total_net = Σ net_settlement, in minor units of `settlement_currency`."""

    account: str
    date: Date
    window: Window
    settlement_currency: str
    lines: tuple[SettlementLine, ...]
    total_net: int
    roll_up: RollUp
    rates: Mapping[str, str] | None
    """Base, as_of and source of the rate table that was used; None when no line needed one."""
    late: tuple[LatePeriod, ...] = ()
    """Earlier days of which rows are taken in here, oldest first."""
    notes: RunNotes = RunNotes()
    taken: str | None = None
    """None for one that was computed here; ITEMISED or TOTAL_ONLY for the processor's own, whose lines are its word."""


class PostedSettlement(msgspec.Struct, frozen=True, kw_only=True):
    """The processor's answer to a settlement, beside what was sent. `status` is the processor's word.

    `run_id` names the durable run that made it (empty without a store); `replayed`: it had been posted before.
    `warnings` are sentences about how this answer came about, for a person to read.
    """

    settlement_id: str
    status: str
    total_net: int
    currency: str
    idempotency_key: str
    settlement: Settlement
    run_id: str = ""
    replayed: bool = False
    warnings: tuple[str, ...] = ()
