"""Balanced journals: what a credit, a transfer or an opening balance books, and the fingerprint of its request.

Pure: time, keys and fingerprints come in as arguments, nothing here knows how a journal is stored. A journal that does
not sum to zero per currency cannot be made.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii as _quote
from typing import Any, TypeGuard

import msgspec

from paykit_settle.errors import InvalidAmount, InvariantViolated
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.strict_json import JsonNumber

BALANCE = "balance"
"""The account of a tenant that credits and settlements raise; it opens with the first of them."""

COUNTER_PREFIX = "@"
EXTERNAL = "@external"
"""The counter-account of credits and opening balances: the world outside. It exists only as entries."""

CREDIT, TRANSFER, OPENING = "credit", "transfer", "opening"
"""Operations: a key belongs to (tenant, operation)."""

FINGERPRINT_BYTES = 32
TEXT_MAX = 255
"""Characters in a tenant, an account, an id or an idempotency key."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One movement: `amount` minor units of `currency` onto (positive) or off (negative) an account.

    `details` is JSON for people who ask why, or None.
    """

    account: str
    currency: str
    amount: int
    details: str | None = None


class Journal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A booking that happens as a whole, once per (tenant, operation, key), or not at all.

    `fingerprint` tells a retry from another request under the same key; `answer` is the JSON that the first request
    and every replay get. `event_at_ms` is when it counts, `recorded_at_ms` when we wrote it (UTC, unix milliseconds).
    Raises `InvariantViolated` unless its entries sum to zero in each currency and every amount is in range.
    """

    tenant: str
    operation: str
    key: str
    fingerprint: bytes
    entries: tuple[Entry, ...]
    answer: str
    event_at_ms: int
    recorded_at_ms: int
    details: str | None = None

    def __post_init__(self) -> None:
        if not _is_plain(self.entries):
            self._check_entries()
        if len(self.fingerprint) != FINGERPRINT_BYTES:
            raise InvariantViolated(f"{self.operation} {self.key!r}: the fingerprint is not a SHA-256")

    def _check_entries(self) -> None:
        sums: dict[str, int] = {}
        for entry in self.entries:
            amount = entry.amount
            if type(amount) is not int or not -AMOUNT_MAX <= amount <= AMOUNT_MAX:
                raise InvariantViolated(
                    f"{self.operation} {self.key!r}: an entry's amount is no amount: {amount!r:.40}"
                )
            sums[entry.currency] = sums.get(entry.currency, 0) + amount
        if any(sums.values()):
            raise InvariantViolated(f"{self.operation} {self.key!r} does not sum to zero: {sums}")


def _is_plain(entries: tuple[Entry, ...]) -> bool:
    """Two entries, as nearly all journals have, that are in range and cancel out."""
    if len(entries) != 2:
        return False
    one, other = entries
    amount, opposite = one.amount, other.amount
    return (
        type(amount) is int
        and type(opposite) is int
        and amount == -opposite
        and -AMOUNT_MAX <= amount <= AMOUNT_MAX
        and one.currency == other.currency
    )


_UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def is_plain_text(value: object) -> TypeGuard[str]:
    """True for what a tenant, an account, an id or a key may be: not blank, TEXT_MAX at most, all of it showable."""
    return (
        type(value) is str
        and len(value) <= TEXT_MAX
        and not value.isspace()
        and value != ""
        and (_UNSHOWABLE.search(value) is None)
    )


def is_counter_account(account: str) -> bool:
    """True for an account that exists only as entries: no row, no floor, its balance is a sum on request."""
    return account.startswith(COUNTER_PREFIX)


def credit_journal(
    tenant: str,
    key: str,
    *,
    currency: str,
    amounts: Iterable[int],
    fingerprint: bytes,
    at_ms: int,
    details: str | None = None,
) -> Journal:
    """Money from outside onto the tenant's `balance`, as one entry for the sum of the amounts.

    One entry, so that lines whose running sum leaves the range still book when their sum is within it.
    `details` (JSON) is what it was for. `InvalidAmount` when the sum is beyond the range.
    """
    total = sum(amounts)
    if not -AMOUNT_MAX <= total <= AMOUNT_MAX:
        raise InvalidAmount(f"the sum of the lines is beyond ±{AMOUNT_MAX}")
    return Journal(
        tenant=tenant,
        operation=CREDIT,
        key=key,
        fingerprint=fingerprint,
        entries=(Entry(EXTERNAL, currency, -total), Entry(BALANCE, currency, total)),
        answer=f'{{"currency":"{currency.upper()}","amount_minor":{total}}}',
        event_at_ms=at_ms,
        recorded_at_ms=at_ms,
        details=details,
    )


class Transfer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Money that moves between two accounts of a tenant; `amount` is positive minor units of `currency`."""

    id: str
    source: str
    target: str
    amount: int
    currency: str


def transfer_journal(tenant: str, transfer: Transfer, *, at_ms: int) -> Journal:
    """The debit and the credit of a transfer, in that order. Its answer is the transfer as the API shows it."""
    source, target, currency, amount = transfer.source, transfer.target, transfer.currency, transfer.amount
    if amount <= 0 or source == target:
        raise InvariantViolated(f"transfer {transfer.id!r} moves nothing: {transfer}")
    from_, to = _quote(source), _quote(target)
    answer = (
        f'{{"id":{_quote(transfer.id)},"object":"transfer","source":{from_},"target":{to},'
        f'"amount_minor":{amount},"currency":{_quote(currency.upper())},"created":{at_ms // 1000}}}'
    )
    return Journal(
        tenant=tenant,
        operation=TRANSFER,
        key=transfer.id,
        fingerprint=digest(f"[{from_},{to},{amount},{_quote(currency)}]"),  # all but the id, which is the key
        entries=(Entry(source, currency, -amount), Entry(target, currency, amount)),
        answer=answer,
        event_at_ms=at_ms,
        recorded_at_ms=at_ms,
    )


def opening_journal(tenant: str, account: str, *, currency: str, amount: int, at_ms: int) -> Journal:
    """The amount, zero or more, that an account opens with; it comes from outside."""
    if amount < 0:
        raise InvariantViolated(f"account {account!r} cannot open with {amount}")
    return Journal(
        tenant=tenant,
        operation=OPENING,
        key=account,
        fingerprint=fingerprint([account, currency, amount]),
        entries=(Entry(EXTERNAL, currency, -amount), Entry(account, currency, amount)),
        answer="{}",
        event_at_ms=at_ms,
        recorded_at_ms=at_ms,
    )


def fingerprint(value: object) -> bytes:
    """SHA-256 of a parsed JSON value in canonical form: member order, white space and escapes make no difference."""
    return digest(canonical(value))


def digest(text: str) -> bytes:
    """SHA-256 of a text that is canonical already."""
    return hashlib.sha256(text.encode("ascii")).digest()


def canonical(value: object) -> str:
    """The one text of a strictly parsed JSON value: sorted members, no white space, ASCII.

    A number with a fraction or an exponent stays digit for digit, so `1.0` is neither `1` nor the text `"1.0"`.
    Stored fingerprints depend on this form: it must never change.
    """
    write = _FORMS.get(type(value))
    if write is None:
        raise InvariantViolated(f"a {type(value).__name__} has no canonical form")
    return write(value)


def _canonical_array(value: list[object]) -> str:
    return "[" + ",".join([canonical(item) for item in value]) + "]"


def _canonical_object(value: dict[str, object]) -> str:
    return "{" + ",".join([f"{_quote(name)}:{canonical(value[name])}" for name in sorted(value)]) + "}"


_FORMS: dict[type, Callable[[Any], str]] = {
    str: _quote,
    int: str,
    JsonNumber: str,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
    list: _canonical_array,
    dict: _canonical_object,
}
