"""What the fake processor knows: transactions, rate tables, settlements received, keys used.

No I/O: a test may drive it without a socket, and the HTTP shell adds nothing to what it decides. It never dedupes
settlements by account and date, because that is the caller's promise to keep and what the tests look for.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fake_processor.bodies import canonical, read_body
from fake_processor.clock import Clock
from fake_processor.generated_listing import GeneratedListing
from fake_processor.keys import IdempotencyKeys
from fake_processor.listing import Listing, Page, PageQuery, Row, Shown
from fake_processor.query import read_date
from fake_processor.settlement_book import LookUp, SettlementBook
from fake_processor.settlements import read_settlement
from fake_processor.wire import JSON_TYPE, Refusal, invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The processor's word on a posted settlement; `replayed` when the key had been used before."""

    settlement: dict[str, object]
    replayed: bool


class ProcessorState:
    """All that one fake processor remembers.

    `accounts` maps an account id to its rows in any order, or to a listing that generates them; `rates` maps a
    date to the table served for it. Rows and tables are copied, and served as they are, even when a test made
    them wrong. `clock` is the time by which keys are forgotten.
    """

    def __init__(
        self,
        accounts: Mapping[str, Iterable[Mapping[str, object]] | GeneratedListing] | None = None,
        rates: Mapping[str, Mapping[str, object]] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.keys = IdempotencyKeys(self.clock)
        self._listings: dict[str, Listing | GeneratedListing] = {
            account: rows if isinstance(rows, GeneratedListing) else Listing(rows)
            for account, rows in (accounts or {}).items()
        }
        self._rates = {day: dict(table) for day, table in (rates or {}).items()}
        self._settlements = SettlementBook(self.clock)
        self._shown: Callable[[Listing | GeneratedListing], Shown] | None = None
        self._asked: Callable[[LookUp], LookUp] | None = None

    # What a test arranges.

    def add_transactions(self, account: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Put rows into an account, which is made when it is new."""
        present = self._listings.get(account, Listing(()))
        self._listings[account] = present.add(rows)

    def update_transaction(self, account: str, transaction_id: str, /, **fields: object) -> None:
        """Replace fields of one row, for example `status="available"`. KeyError when it is missing."""
        self._listings[account] = self._listings[account].replace(transaction_id, fields)

    def remove_transaction(self, account: str, transaction_id: str) -> None:
        """Take one row away, as no honest processor does. KeyError when it is missing."""
        self._listings[account] = self._listings[account].replace(transaction_id, None)

    def release_pending(self, account: str) -> None:
        """Let every pending row of an account become available, for good. KeyError for an unknown account."""
        self._listings[account] = self._listings[account].release()

    def set_rates(self, day: str, table: Mapping[str, object]) -> None:
        """Publish `table` for a date, in place of an earlier one."""
        self._rates[day] = dict(table)

    def remove_rates(self, day: str) -> None:
        """Withdraw a date's table; KeyError when there is none."""
        del self._rates[day]

    def add_settlement(self, account: str, date: str, /, **members: object) -> str:
        """Put a settlement there that nobody posted here, with these members in place of empty ones; its id.

        It is shown as it is, right or wrong. ValueError when its id is taken.
        """
        body = {"account": account, "date": date, "settlement_currency": "usd", "lines": [], "total_net": 0}
        body |= {name: value for name, value in members.items() if name in body}
        digest = hashlib.sha256(json.dumps(body).encode("ascii")).hexdigest()
        settlement = {"id": self._settlements.next_id(), "object": "settlement", "status": "created", **body}
        settlement |= {"idempotency_key": f"foreign-{settlement['id']}", "body_sha256": digest, **members}
        self._settlements.add(settlement)
        return str(settlement["id"])

    def remove_settlement(self, settlement_id: str, *, forget_key: bool = False) -> None:
        """Lose a settlement, as no honest processor does. KeyError when it is missing.

        Its idempotency key still gets the first answer, unless it is to be forgotten with it.
        """
        removed = self._settlements.remove(settlement_id)
        if forget_key:
            self.keys.forget(str(removed["idempotency_key"]))

    # What a request asks.

    def seen_through(
        self,
        shown: Callable[[Listing | GeneratedListing], Shown] | None = None,
        *,
        asked: Callable[[LookUp], LookUp] | None = None,
    ) -> ProcessorState:
        """This state as a request is to see it, for reading only.

        Its pages and rows are those of what `shown` makes of a listing; `asked` is what it takes a look-up for.
        """
        seen = copy.copy(self)
        seen._shown, seen._asked = shown, asked
        return seen

    def has_account(self, account: str) -> bool:
        return account in self._listings

    def transactions(self, account: str) -> list[Row]:
        """Every row of an account, newest first; copies. A generated account makes them all for this."""
        return [dict(row) for row in self._listing(account, param="account").rows]

    def balance(self, account: str) -> dict[str, object]:
        """What is available and what is pending per currency: the sums of `net` over the account's rows."""
        totals = self._listing(account, param="account").totals()
        return {"object": "balance", **{status: _amounts(totals[status]) for status in totals}, "livemode": False}

    def page(self, account: str, query: PageQuery) -> Page:
        """One page of an account. Refusal: 404 unknown account, 400 unknown cursor."""
        return self._seen(account).page(query)

    def transaction(self, account: str, transaction_id: str) -> Row:
        """One row by id. Refusal: 404 when the account has none of that id."""
        row = self._seen(account).find(transaction_id)
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

    def settle(self, body: bytes, *, idempotency_key: str, content_type: str = JSON_TYPE) -> Created:
        """Take a settlement in, or give the first answer again for a key that was used before.

        Refusal: 400 naming the member for a body that is not right, 404 for an unknown account, 400
        `idempotency_error` for a used key with another body, and 500 when the key's first answer was one. Nothing
        is kept of a refused one.
        """
        value = read_body(body, content_type)
        content = canonical(value)
        saved = self.keys.find(idempotency_key, content=content)
        if saved is not None:
            if saved.status >= 500:
                raise failure(replayed=True)
            return Created(settlement=dict(saved.answer), replayed=True)
        settlement = read_settlement(value)
        self._listing(settlement.account, param="account")
        answer: dict[str, object] = {
            "id": self._settlements.next_id(),
            "object": "settlement",
            "status": "created",
            "account": settlement.account,
            "date": settlement.date,
            "settlement_currency": settlement.settlement_currency,
            "total_net": settlement.total_net,
        }
        received = {
            **answer,
            "lines": [line.as_received() for line in settlement.lines],
            "idempotency_key": idempotency_key,
            "body_sha256": hashlib.sha256(body).hexdigest(),
        }
        self._settlements.add(received)
        self.keys.save(idempotency_key, content=content, status=200, answer=answer)
        return Created(settlement=dict(answer), replayed=False)

    def fail(self, body: bytes, *, idempotency_key: str, content_type: str = JSON_TYPE) -> None:
        """Begin a settlement and fail before it has an effect: the key keeps a 500, and nothing else is kept.

        Refusal as in `settle`: what is refused before it began is not saved, and a saved answer stays.
        """
        value = read_body(body, content_type)
        content = canonical(value)
        if self.keys.find(idempotency_key, content=content) is None:
            self._listing(read_settlement(value).account, param="account")
            self.keys.save(idempotency_key, content=content, status=500, answer={})

    def settlements(self, *, account: str | None = None, date: str | None = None) -> list[dict[str, object]]:
        """The settlements received, in the order they came; of one account or date when named.

        Refusal: 404 for an unknown account, 400 for a bad date.
        """
        return self.look_up(LookUp(account=account, date=date))[0]

    def look_up(self, look_up: LookUp) -> tuple[list[dict[str, object]], bool]:
        """A page of settlements, and whether there are more. Refusal as above, and 400 for an unknown cursor."""
        if look_up.date is not None:
            look_up = look_up._replace(date=read_date(look_up.date, param="date").isoformat())
        if self._asked is not None:
            look_up = self._asked(look_up)
        if look_up.account is not None:
            self._listing(look_up.account, param="account")
        return self._settlements.page(look_up)

    def settlement(self, settlement_id: str) -> dict[str, object]:
        """One settlement received, by id. Refusal: 404 when there is none."""
        settlement = self._settlements.find(settlement_id)
        if settlement is None:
            raise _missing("settlement", settlement_id, param="id")
        return settlement

    def _seen(self, account: str) -> Shown:
        listing = self._listing(account, param="account")
        return listing if self._shown is None else self._shown(listing)

    def _listing(self, account: str, *, param: str) -> Listing | GeneratedListing:
        if account not in self._listings:
            raise _missing("account", account, param=param)
        return self._listings[account]


def _missing(what: str, name: str, *, param: str) -> Refusal:
    return Refusal(404, f"No such {what}: '{name}'", code="resource_missing", param=param)


def failure(*, replayed: bool = False) -> Refusal:
    """The 500 of a request whose execution had begun."""
    headers = {"Idempotent-Replayed": "true"} if replayed else {}
    return Refusal(
        500, "An error occurred inside the processor.", code="internal", error_type="api_error", headers=headers
    )


def _amounts(by_currency: Mapping[str, int]) -> list[dict[str, object]]:
    return [
        {"amount": amount, "currency": currency, "source_types": {"card": amount}}
        for currency, amount in sorted(by_currency.items())
    ]
