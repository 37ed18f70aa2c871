"""The ledger of many tenants on one store: credits, accounts, transfers and what they come to.

Arguments are checked already (that is the edge's work); here is what needs the database. Currencies are in the
canonical form, amounts in minor units.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

import apsw
import msgspec

from paykit_settle.errors import AccountConflict, AccountNotFound, InvalidRequest
from paykit_settle.journal import BALANCE, TRANSFER, Transfer, credit_journal, transfer_journal
from paykit_settle.store.plan import Receipt
from paykit_settle.store.queries import load_queries
from paykit_settle.store.store import Store, clock_ms

_SQL = load_queries("ledger.sql")


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account of a tenant: its balance, and the floor that transfers keep it above, in minor units."""

    id: str
    currency: str
    balance: int = 0
    floor: int = 0


T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a list, and whether more follows."""

    items: Sequence[T]
    has_more: bool


class Ledger:
    """What tenants own. Every write is exactly once by its key, durable when it returns, and whole or absent."""

    def __init__(self, store: Store, *, now_ms: Callable[[], int] = clock_ms) -> None:
        self.store = store
        self._now_ms = now_ms

    def credit(
        self,
        tenant: str,
        key: str,
        *,
        currency: str,
        amounts: Iterable[int],
        fingerprint: bytes,
        details: str | None = None,
    ) -> Awaitable[Receipt]:
        """Raises the tenant's `balance` by the sum of the amounts; `details` (JSON) says what for.

        Raises `IdempotencyConflict`, `BalanceOutOfRange`, or `InvalidAmount` for a sum out of range.
        """
        journal = credit_journal(
            tenant,
            key,
            currency=currency,
            amounts=amounts,
            fingerprint=fingerprint,
            at_ms=self._now_ms(),
            details=details,
        )
        return self.store.post(journal)

    async def balance(self, tenant: str, currency: str) -> int:
        """What the tenant's `balance` stands at; 0 for a tenant with no entries."""
        found = await self.store.read(
            lambda connection: connection.execute(_SQL["balance"], (tenant, BALANCE, currency)).get
        )
        return found or 0

    def transfer(self, tenant: str, transfer: Transfer) -> Awaitable[Receipt]:
        """Moves money between two accounts of the tenant.

        Raises `IdempotencyConflict`, `UnknownAccount`, `InsufficientFunds` or `BalanceOutOfRange`.
        """
        return self.store.post(transfer_journal(tenant, transfer, at_ms=self._now_ms()))

    async def create_account(self, tenant: str, account: Account) -> tuple[Account, bool]:
        """Opens an account at 0 and gives it with True, or the one that exists on the same terms with False.

        `AccountConflict` when it exists with another currency or floor.
        """
        created_at_ms = self._now_ms()
        return await self.store.write(lambda connection: _create_account(connection, tenant, account, created_at_ms))

    async def account(self, tenant: str, id_: str, currency: str | None = None) -> Account:
        """The account of that name (`balance` has one per currency); `AccountNotFound` if there is none."""
        found = await self.store.read(lambda connection: _accounts(connection, "account", (tenant, id_)))
        if currency is not None:
            found = [account for account in found if account.currency == currency]
        if not found:
            raise AccountNotFound(f"there is no account {id_!r}" + (f" in {currency.upper()}" if currency else ""))
        return found[0]

    async def accounts(self, tenant: str, *, after: str = "", limit: int) -> Page[Account]:
        """The accounts of the next `limit` names in order, after a name."""
        found = await self.store.read(
            lambda connection: _accounts(connection, "accounts_page", (tenant, after, limit + 1))
        )
        names = sorted({account.id for account in found})
        has_more = len(names) > limit
        kept = [account for account in found if not has_more or account.id != names[-1]]
        return Page(items=kept, has_more=has_more)

    async def transfers(self, tenant: str, *, after: str | None = None, limit: int) -> Page[str]:
        """The answers (JSON) of the tenant's newest transfers older than the transfer `after`, newest first.

        `InvalidRequest` if there is no transfer `after`.
        """
        answers = await self.store.read(lambda connection: _transfers(connection, tenant, after, limit + 1))
        return Page(items=answers[:limit], has_more=len(answers) > limit)

    async def counter_balances(self, tenant: str) -> dict[tuple[str, str], int]:
        """What the tenant's counter-accounts stand at, by (account, currency): summed from its entries, on request."""
        return await self.store.read(lambda connection: counter_balances(connection, tenant))


def counter_balances(connection: apsw.Connection, tenant: str) -> dict[tuple[str, str], int]:
    """The exact sums of a tenant's entries on counter-accounts, by (account, currency)."""
    rows = connection.execute(_SQL["counter_balances"], (tenant,))
    return {(account, currency): (high << 32) + low for account, currency, high, low in rows}


def _create_account(
    connection: apsw.Connection, tenant: str, account: Account, created_at_ms: int
) -> tuple[Account, bool]:
    for existing in _accounts(connection, "account", (tenant, account.id)):
        if existing.currency == account.currency and existing.floor == account.floor:
            return existing, False
        if existing.currency == account.currency or account.id != BALANCE:
            raise AccountConflict(
                f"account {account.id!r} exists with other terms: {existing.currency.upper()}, floor {existing.floor}"
            )
    row = (tenant, account.id, account.currency, account.balance, account.floor, created_at_ms)
    connection.execute(_SQL["insert_account"], row)
    return account, True


def _accounts(connection: apsw.Connection, query: str, arguments: tuple[str | int, ...]) -> list[Account]:
    rows = connection.execute(_SQL[query], arguments)
    return [Account(id=id_, currency=currency, balance=balance, floor=floor) for id_, currency, balance, floor in rows]


def _transfers(connection: apsw.Connection, tenant: str, after: str | None, count: int) -> list[str]:
    before_id = 2**63 - 1
    if after is not None:
        found = connection.execute(_SQL["journal_id"], (tenant, TRANSFER, after)).get
        if found is None:
            raise InvalidRequest(f"starting_after: there is no transfer {after!r}")
        before_id = found
    return [answer for (answer,) in connection.execute(_SQL["transfers_page"], (tenant, before_id, count))]
