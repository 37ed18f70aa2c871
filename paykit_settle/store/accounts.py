"""The accounts that are settled here: tenant, zone and processor in force, and what older runs disagree about.

The tenant is fixed once anything is frozen; zone and processor change only when a person says so. Functions take the
connection of a unit of work.
"""

from collections.abc import Callable
from dataclasses import dataclass

import apsw

from paykit_settle.endpoint import ProcessorIdentity, known_processor
from paykit_settle.errors import RunInProgress, SettlementConflict
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, one, rows

_SQL = load_queries("accounts.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledAccount:
    """An account as the database has it; processor and key mode are None until a claim has kept them."""

    number: int
    account: str
    tenant: str
    zone: str
    processor_url: str | None
    key_mode: str | None
    disagreement: str | None

    @property
    def processor(self) -> ProcessorIdentity | None:
        return known_processor(self.processor_url, self.key_mode)

    @property
    def disagreement_text(self) -> str | None:
        """What older runs of the account were settled with beside what is in force, as a sentence."""
        if self.disagreement is None:
            return None
        return (
            f"{self.account} is settled for tenant {self.tenant} in zone {self.zone}, but older runs of it have "
            f"{self.disagreement}"
        )


def account_of(connection: apsw.Connection, account: str) -> SettledAccount | None:
    """Return the account of that name, None before its first claim."""
    found = one(connection, _SQL["account"], account=account)
    return None if found is None else SettledAccount(**found)


def disagreements(connection: apsw.Connection, account: str = "") -> list[SettledAccount]:
    """Return the accounts whose older runs disagree with what is in force."""
    return [SettledAccount(**row) for row in rows(connection, _SQL["disagreements"], account=account)]


def insert_account(
    connection: apsw.Connection, account: str, *, tenant: str, zone: str, processor: ProcessorIdentity
) -> None:
    """Keep an account's tenant, zone and processor at its first claim."""
    change(
        connection,
        _SQL["insert_account"],
        account=account,
        tenant=tenant,
        zone=zone,
        processor_url=processor.url,
        key_mode=processor.key_mode,
    )


def change_account(
    connection: apsw.Connection, account: SettledAccount, *, tenant: str, zone: str, processor: ProcessorIdentity
) -> None:
    """Change what is in force for an account."""
    change(
        connection,
        _SQL["change_account"],
        tenant=tenant,
        zone=zone,
        processor_url=processor.url,
        key_mode=processor.key_mode,
        account=account.account,
    )


def has_frozen(connection: apsw.Connection, account: str) -> bool:
    """Return whether a settlement of the account was ever frozen."""
    return one(connection, _SQL["has_frozen"], account=account) is not None


def check_processor(account: SettledAccount | None, processor: ProcessorIdentity, *, what: str) -> None:
    """Pass when the account is settled at that processor, or none is known; `SettlementConflict` names both."""
    known = None if account is None else account.processor
    if account is not None and known is not None and known != processor:
        raise SettlementConflict(
            f"{what}: {account.account} is settled at {known}, not at {processor}; if the processor has moved, say so "
            "with --processor-moved"
        )


def move_processor(
    connection: apsw.Connection,
    account: SettledAccount,
    processor: ProcessorIdentity,
    *,
    owner: str,
    is_alive: Callable[[str], bool],
) -> None:
    """Take the account's unfinished runs to another processor; `RunInProgress` while another process works on one."""
    for held in rows(connection, _SQL["held_runs"], account=account.account):
        if held["owner"] != owner and is_alive(held["owner"]):
            raise RunInProgress(
                f"the processor of {account.account} cannot be moved while run_{held['number']:06d} is in progress"
            )
    change(
        connection,
        _SQL["move_unfinished"],
        processor_url=processor.url,
        key_mode=processor.key_mode,
        account=account.account,
    )
