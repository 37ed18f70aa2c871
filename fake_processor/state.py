"""What the fake processor knows: transactions, rate tables, settlements received, keys used.

No I/O and no clock: a test may drive it without a socket, and the HTTP shell adds nothing to what
it decides. It never dedupes settlements by account and date, because that is the caller's promise
to keep and what the tests look for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from fake_processor.listing import Listing, Page, PageQuery, Row
from fake_processor.query import read_date
from fake_processor.settlements import canonical, decode, read_settlement
from fake_processor.wire import Refusal, invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The processor's word on a posted settlement; `replayed` when the key had been used before."""

    settlement: dict[str, object]
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _UsedKey:
    """What a key was first used for, and what was answered."""

    content: str
    answer: dict[str, object]


class ProcessorState:
    """All that one fake processor remembers.

    `accounts` maps an account id to its rows in any order; `rates` maps a date to the table served
    for it. Rows and tables are copied, and served as they are, even when a test made them wrong.
    """

    def __init__(
        self,
        accounts: Mapping[str, Iterable[Mapping[str, object]]] | None = None,
        rates: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self._listings = {account: Listing(rows) for account, rows in (accounts or {}).items()}
        self._rates = {day: dict(table) for day, table in (rates or {}).items()}
        self._settlements: list[dict[str, object]] = []
        self._keys: dict[str, _UsedKey] = {}

    # What a test arranges.

    def add_transactions(self, account: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Put rows into an account, which is made when it is new."""
        present = self._listings[account].rows if account in self._listings else []
        self._listings[account] = Listing([*present, *rows])

    def update_transaction(self, account: str, transaction_id: str, /, **fields: object) -> None:
        """Replace fields of one row, for example `status="available"`. KeyError when it is missing."""
        listing = self._listings[account]
        if listing.find(transaction_id) is None:
            raise KeyError(transaction_id)
        self._listings[account] = Listing(
            {**row, **fields} if row.get("id") == transaction_id else row for row in listing.rows
        )

    def remove_transaction(self, account: str, transaction_id: str) -> None:
        """Take one row away, as no honest processor does. KeyError when it is missing."""
        listing = self._listings[account]
        if listing.find(transaction_id) is None:
            raise KeyError(transaction_id)
        self._listings[account] = Listing(row for row in listing.rows if row.get("id") != transaction_id)

    def set_rates(self, day: str, table: Mapping[str, object]) -> None:
        """Publish `table` for a date, in place of an earlier one."""
        self._rates[day] = dict(table)

    def remove_rates(self, day: str) -> None:
        """Withdraw a date's table; KeyError when there is none."""
        del self._rates[day]

    # What a request asks.

    def transactions(self, account: str) -> list[Row]:
        """Every row of an account, newest first; copies."""
        return [dict(row) for row in self._listing(account, param="account").rows]

    def page(self, account: str, query: PageQuery) -> Page:
        """One page of an account. Refusal: 404 unknown account, 400 unknown cursor."""
        return self._listing(account, param="account").page(query)

    def transaction(self, account: str, transaction_id: str) -> Row:
        """One row by id. Refusal: 404 when the account has none of that id."""
        row = self._listing(account, param="account").find(transaction_id)
        if row is None:
            raise _missing("balance transaction", transaction_id, param="id")
        return row

    def rates(self, base: str, *, day: str | None = None) -> dict[str, object]:
        """The table of a date, or the newest. 1 `base` is worth each rate of its quote currency.

        Refusal: 404 when no table was published for the date; 400 for a base that has none, since a
        published rate is never inverted.
        """
        if day is not None:
            day = read_date(day, param="date").isoformat()
        wanted = max(self._rates, default=None) if day is None else day
        if wanted is None or wanted not in self._rates:
            raise _missing("rate table", wanted or "newest", param="date")
        table = self._rates[wanted]
        published = table.get("base")
        if isinstance(published, str) and published != base:
            raise invalid(f"No rates are published for base {base}; rates are never inverted.", param="base")
        return dict(table)

    def settle(self, body: bytes, *, idempotency_key: str) -> Created:
        """Take a settlement in, or give the first answer again for a key that was used before.

        Refusal: 400 naming the member for a body that is not right, 404 for an unknown account, and
        400 `idempotency_error` for a used key with another body. Nothing is kept of a refused one.
        """
        value = decode(body)
        content = canonical(value)
        used = self._keys.get(idempotency_key)
        if used is not None:
            if used.content != content:
                raise _key_reused(idempotency_key)
            return Created(settlement=dict(used.answer), replayed=True)
        settlement = read_settlement(value)
        self._listing(settlement.account, param="account")
        answer: dict[str, object] = {
            "id": f"setl_{len(self._settlements) + 1:04d}",
            "object": "settlement",
            "status": "created",
            "account": settlement.account,
            "date": settlement.date,
            "settlement_currency": settlement.settlement_currency,
            "total_net": settlement.total_net,
        }
        received = {
            **answer,
            "lines": [asdict(line) for line in settlement.lines],
            "idempotency_key": idempotency_key,
            "body_sha256": hashlib.sha256(body).hexdigest(),
        }
        self._settlements.append(received)
        self._keys[idempotency_key] = _UsedKey(content=content, answer=answer)
        return Created(settlement=dict(answer), replayed=False)

    def settlements(self, *, account: str | None = None, date: str | None = None) -> list[dict[str, object]]:
        """The settlements received, in the order they came; of one account or date when named.

        Refusal: 404 for an unknown account, 400 for a bad date.
        """
        if account is not None:
            self._listing(account, param="account")
        if date is not None:
            date = read_date(date, param="date").isoformat()
        return [
            dict(settlement)
            for settlement in self._settlements
            if account in (None, settlement["account"]) and date in (None, settlement["date"])
        ]

    def settlement(self, settlement_id: str) -> dict[str, object]:
        """One settlement received, by id. Refusal: 404 when there is none."""
        for settlement in self._settlements:
            if settlement["id"] == settlement_id:
                return dict(settlement)
        raise _missing("settlement", settlement_id, param="id")

    def _listing(self, account: str, *, param: str) -> Listing:
        if account not in self._listings:
            raise _missing("account", account, param=param)
        return self._listings[account]


def _missing(what: str, name: str, *, param: str) -> Refusal:
    return Refusal(404, f"No such {what}: '{name}'", code="resource_missing", param=param)


def _key_reused(key: str) -> Refusal:
    return Refusal(
        400,
        "Keys for idempotent requests can only be used with the same parameters they were first used "
        f"with. Try using a key other than '{key}' if you meant to execute a different request.",
        code="idempotency_key_reused",
        error_type="idempotency_error",
    )
