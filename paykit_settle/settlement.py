"""The roll-up: transactions in, exact totals per currency and named problems out; then one conversion per line.

Pure. The sign of an amount decides its column, never the type; nothing is dropped: a row is settled, pending, left out
by name, or a problem that refuses the whole run.
"""

from collections.abc import Iterable
from datetime import date as Date

from paykit_settle.errors import InvalidAmount, InvariantViolated, Problem, RunRefused, UnsupportedCurrency
from paykit_settle.models import (
    BalanceTransaction,
    CurrencyTotals,
    RollUp,
    RowGroup,
    Settlement,
    SettlementLine,
)
from paykit_settle.money import AMOUNT_MAX, ScaleProfile, canonical_currency
from paykit_settle.rates import Rates
from paykit_settle.transaction_types import KNOWN_TYPES, MOVES_BALANCE
from paykit_settle.window import Window

PROBLEMS_MAX = 100
"""How many problems a refused run lists; the rest are counted."""

_ISO_SCALE = ScaleProfile()


def roll_up(
    transactions: Iterable[BalanceTransaction],
    *,
    window: Window | None = None,
    scale: ScaleProfile = _ISO_SCALE,
) -> RollUp:
    """Sums the rows of one window exactly; the order and the paging of the rows change nothing.

    Amounts come in the processor's `scale` and go out in ISO 4217 minor units. With a `window`, a row created outside
    it is a problem. Raises `RunRefused` listing every row at fault (the first PROBLEMS_MAX, and a count).
    """
    accumulator = Accumulator(window=window, scale=scale)
    accumulator.add(transactions)
    return accumulator.finish()


class Accumulator:
    """A roll-up in progress, for rows that arrive page by page: `add` as often as needed, then `finish` once."""

    def __init__(self, *, window: Window | None = None, scale: ScaleProfile = _ISO_SCALE) -> None:
        self._window = window
        self._scale = scale
        self._seen: dict[str, BalanceTransaction] = {}
        self._repeat_count = 0
        # (currency, type, category, status) → [charged count, charged, refunded count, refunded, fees]
        self._sums: dict[tuple[str, str, str | None, str], list[int]] = {}
        self._problems: list[Problem] = []
        self._problem_count = 0

    def add(self, transactions: Iterable[BalanceTransaction]) -> None:
        """Counts the rows, an identical repeat of an id once; problems are kept for `finish`."""
        for row in transactions:
            first = self._seen.get(row.id)
            if first is not None:
                self._add_repeat(first, row)
                continue
            self._seen[row.id] = row
            try:
                currency = canonical_currency(row.currency)
                amount = self._scale.from_wire(row.amount, currency)
                fee = self._scale.from_wire(row.fee, currency)
            except (UnsupportedCurrency, InvalidAmount) as error:
                self._problem("row", row.id, str(error))
                continue
            if (fault := self._fault_of(row)) is not None:
                self._problem("row", row.id, fault)
                continue
            key = (currency, row.type, row.reporting_category, row.status)
            sums = self._sums.get(key)
            if sums is None:
                sums = self._sums[key] = [0, 0, 0, 0, 0]
            column = 0 if amount >= 0 else 2
            sums[column] += 1
            sums[column + 1] += amount
            sums[4] += fee

    def finish(self) -> RollUp:
        """The totals; `RunRefused` if any row had a problem or a sum leaves the range of an amount."""
        groups = [
            RowGroup(
                currency=currency,
                type=kind,
                reporting_category=category,
                status=status,
                charged_count=sums[0],
                charged=sums[1],
                refunded_count=sums[2],
                refunded=sums[3],
                fees=sums[4],
            )
            for (currency, kind, category, status), sums in sorted(self._sums.items(), key=_group_order)
        ]
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
            row_count=len(self._seen),
            repeat_count=self._repeat_count,
        )

    def _add_repeat(self, first: BalanceTransaction, row: BalanceTransaction) -> None:
        if first == row:
            self._repeat_count += 1
        else:
            self._problem("row", row.id, "came twice with different content")

    def _fault_of(self, row: BalanceTransaction) -> str | None:
        if row.net is not None and row.net != row.amount - row.fee:
            return f"net {row.net} is not amount {row.amount} - fee {row.fee}"
        if row.status not in ("available", "pending"):
            return f"status {row.status!r:.40} is neither available nor pending"
        if self._window is not None and row.created is not None:
            start, end = self._window.start_unix_s, self._window.end_unix_s
            if not start <= row.created < end:
                return f"created {row.created} is outside the window [{start}, {end})"
        return None

    def _problem(self, kind: str, subject: str, detail: str) -> None:
        self._problem_count += 1
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(Problem(kind=kind, subject=subject, detail=detail))


def _group_order(item: tuple[tuple[str, str, str | None, str], list[int]]) -> tuple[str, str, str, str]:
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


def needs_rates(totals: RollUp, settlement_currency: str) -> bool:
    """Whether any line has money to convert; a line in the settlement currency, or with a net of 0, needs no rate."""
    return any(line.net and line.currency != settlement_currency for line in totals.lines)


def settle(
    totals: RollUp,
    rates: Rates | None,
    *,
    account: str,
    date: Date,
    window: Window,
    settlement_currency: str,
) -> Settlement:
    """Converts each line's net once and adds the results up.

    `rates` may be None when `needs_rates` is false. Raises `RunRefused` naming every currency whose rate is missing or
    unusable, or a total beyond the range of an amount.
    """
    target = canonical_currency(settlement_currency)
    table = rates if rates is not None else Rates(target, {})
    lines: list[SettlementLine] = []
    problems: list[Problem] = []
    for line in totals.lines:
        try:
            lines.append(_settlement_line(line, table, target))
        except RunRefused as refused:
            problems += refused.problems
    total_net = sum(line.net_settlement for line in lines)
    if abs(total_net) > AMOUNT_MAX:
        problems.append(Problem(kind="line", subject=target, detail=f"total is beyond ±{AMOUNT_MAX}"))
    if problems:
        raise RunRefused(problems)
    settlement = Settlement(
        account=account,
        date=date,
        window=window,
        settlement_currency=target,
        lines=tuple(lines),
        total_net=total_net,
        roll_up=totals,
        rates=rates.provenance() if rates is not None and needs_rates(totals, target) else None,
    )
    check_settlement(settlement)
    return settlement


def _settlement_line(line: CurrencyTotals, rates: Rates, target: str) -> SettlementLine:
    # A net of 0 converts to 0 at any rate, so it is converted as if it were in the target already.
    source = line.currency if line.net else target
    conversion = rates.conversion(line.net, source, target)
    return SettlementLine(
        currency=line.currency,
        charged=line.charged,
        refunded=line.refunded,
        fees=line.fees,
        net=line.net,
        net_settlement=conversion.result,
        conversion=conversion,
    )


def check_settlement(settlement: Settlement) -> None:
    """The identities of a settlement, computed a second way from the groups; `InvariantViolated` if one fails."""
    groups = settlement.roll_up.settled
    for line in settlement.lines:
        own = [group for group in groups if group.currency == line.currency]
        if line.net != line.charged + line.refunded - line.fees or line.net != sum(group.net for group in own):
            raise InvariantViolated(f"line {line.currency}: net is not the sum of its parts")
        if line.charged < 0 or line.refunded > 0:
            raise InvariantViolated(f"line {line.currency}: a column has the wrong sign")
        if line.currency == settlement.settlement_currency and line.net_settlement != line.net:
            raise InvariantViolated(f"line {line.currency}: converted although it is the settlement currency")
    if settlement.total_net != sum(line.net_settlement for line in settlement.lines):
        raise InvariantViolated("total is not the sum of its lines")
