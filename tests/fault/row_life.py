"""The life of a few rows at a processor that changes its mind: what the model of rows draws, and the truth about each.

Each row has its own place in base 16, and so do its fees: what was settled of each row in all is read from the sums of
the processor's books, not from ours.
"""

from dataclasses import dataclass, field
from datetime import date as Date
from datetime import timedelta
from random import Random

from fake_processor import FakeProcessor
from tests.fault.stage import ACCOUNT, a_processor, wire_row

BASE = 16
ROWS_MAX = 13
FIRST_DAY = Date(2026, 1, 5)
CURRENCIES = ("usd", "usd", "eur", "gbp")
WRONG_CURRENCY = "xxq"

Worth = dict[str, tuple[int, int]]
"""What a row comes to, by currency: amount and fee, in units of its own place; nothing where it is not settled."""


def day_name(offset: int) -> str:
    """The name of a day of the model."""
    return (FIRST_DAY + timedelta(days=offset)).isoformat()


@dataclass(slots=True, kw_only=True)
class Row:
    """A row as the processor has it now. `seen` is everything that it ever came to."""

    identity: str
    place: int
    day: int
    amount: int
    fee: int
    currency: str
    status: str
    kind: str
    second: int
    available_day: int | None = None
    is_there: bool = True
    written_off: bool = False
    seen: list[Worth] = field(default_factory=list)

    @property
    def worth(self) -> Worth:
        """What is to be settled of it, as it is now."""
        counts = self.is_there and self.status == "available" and self.kind != "payout"
        return {self.currency: (self.amount, self.fee)} if counts and self.currency != WRONG_CURRENCY else {}

    def wire(self) -> dict[str, object]:
        """The row as the processor serves it."""
        unit = BASE**self.place
        served = wire_row(
            self.identity,
            self.amount * unit,
            day=day_name(self.day),
            fee=self.fee * unit,
            currency=self.currency,
            status=self.status,
            kind=self.kind,
            second=self.second,
        )
        if self.available_day is not None:
            served["available_on"] = wire_row("x", 0, day=day_name(self.available_day), second=0)["created"]
        return served


class Life:
    """A processor and the rows that it has."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.fake: FakeProcessor = a_processor(days=90)
        self.rows: dict[str, Row] = {}

    def add_row(self, day: int) -> Row | None:
        """Put a new row into a day."""
        if len(self.rows) >= ROWS_MAX:
            return None
        kind = self.dice.choice(["charge", "charge", "charge", "refund", "payout"])
        row = Row(
            identity=f"t{len(self.rows):02d}",
            place=len(self.rows),
            day=day,
            amount=-1 if kind != "charge" else self.dice.randint(1, 3),
            fee=self.dice.choice([0, 0, 1]),
            currency=self.dice.choice(CURRENCIES),
            status=self.dice.choice(["available", "available", "pending"]),
            kind=kind,
            second=self.dice.randrange(86_400),
        )
        if row.status == "pending" and self.dice.random() < 0.5:
            row.available_day = day + self.dice.randint(1, 3)
        self.rows[row.identity] = row
        self.fake.state.add_transactions(ACCOUNT, [row.wire()])
        row.seen.append(row.worth)
        return row

    def show(self, row: Row) -> None:
        """Serve the row as it is now."""
        if row.is_there:
            self.fake.state.update_transaction(ACCOUNT, row.identity, **row.wire())
        row.seen.append(row.worth)

    def any_row(self, *, there: bool = True) -> Row | None:
        """One of the rows that are there, or of those that are gone."""
        found = [row for row in self.rows.values() if row.is_there is there]
        return self.dice.choice(found) if found else None

    def turn_available(self) -> None:
        """One pending row turns available."""
        pending = [row for row in self.rows.values() if row.status == "pending" and row.is_there]
        if pending:
            row = self.dice.choice(pending)
            row.status, row.available_day = "available", None
            self.show(row)

    def turn_pending(self) -> None:
        """One row is pending again."""
        if (row := self.any_row()) is not None:
            row.status = "pending"
            self.show(row)

    def change(self) -> None:
        """One row has other content, or content that it had before."""
        if (row := self.any_row()) is None:
            return
        what = self.dice.choice(["amount", "amount", "fee", "currency", "back"])
        before = [worth for worth in row.seen if worth]
        if what == "back" and before:
            ((row.currency, (row.amount, row.fee)),) = self.dice.choice(before).items()
        elif what == "amount":
            row.amount = self.dice.randint(1, 3) * (1 if row.amount > 0 else -1)
        elif what == "fee":
            row.fee = 1 - row.fee
        else:
            row.currency = self.dice.choice(CURRENCIES)
        self.show(row)

    def vanish(self) -> None:
        """One row is gone."""
        if (row := self.any_row()) is not None:
            row.is_there = False
            self.fake.state.remove_transaction(ACCOUNT, row.identity)
            row.seen.append({})

    def settled(self) -> dict[str, Worth]:
        """What the processor's settlements come to for each row."""
        sums: dict[tuple[str, str], int] = {}
        for entry in self.fake.state.settlements():
            lines = entry["lines"]
            assert isinstance(lines, list)
            for line in lines:
                for column, amount in (("amount", line["charged"] + line["refunded"]), ("fee", line["fees"])):
                    sums[line["currency"], column] = sums.get((line["currency"], column), 0) + amount
        worths: dict[str, Worth] = {identity: {} for identity in self.rows}
        for currency in sorted({currency for currency, _ in sums}):
            amounts, fees = (_digits(sums[currency, column]) for column in ("amount", "fee"))
            for identity, row in self.rows.items():
                if (pair := (amounts[row.place], fees[row.place])) != (0, 0):
                    worths[identity][currency] = pair
        return worths


def _digits(total: int) -> list[int]:
    """The digits of a sum in base 16, from -8 to 7 each."""
    digits = []
    for _ in range(ROWS_MAX):
        digit = (total + BASE // 2) % BASE - BASE // 2
        digits.append(digit)
        total = (total - digit) // BASE
    assert total == 0
    return digits
