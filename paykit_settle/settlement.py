"""The conversion: exact totals in, a settlement out. Each line's net is converted once, and the results are added up.

Pure. What the totals are made of is in `accumulator.py`.
"""

from collections.abc import Iterable, Sequence
from datetime import date as Date

from paykit_settle.accumulator import Accumulator
from paykit_settle.errors import InvariantViolated, RunRefused
from paykit_settle.faults import Problem
from paykit_settle.models import (
    BalanceTransaction,
    CurrencyTotals,
    LatePeriod,
    RollUp,
    RunNotes,
    Settlement,
    SettlementLine,
)
from paykit_settle.money import AMOUNT_MAX, ScaleProfile, canonical_currency
from paykit_settle.rates import Rates
from paykit_settle.window import Window

_ISO_SCALE = ScaleProfile()
_NOTHING_NOTED = RunNotes()


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
    rows = list(transactions)
    accumulator = Accumulator(window=window, scale=scale)
    accumulator.add(rows)
    return accumulator.finish(lambda: [rows])


def needs_rates(totals: RollUp, settlement_currency: str, *, late: Sequence[LatePeriod] = ()) -> bool:
    """Whether any line has money to convert; a line in the settlement currency, or with a net of 0, needs no rate."""
    lines = [line for roll in (totals, *(period.roll_up for period in late)) for line in roll.lines]
    return any(line.net and line.currency != settlement_currency for line in lines)


def settle(
    totals: RollUp,
    rates: Rates | None,
    *,
    account: str,
    date: Date,
    window: Window,
    settlement_currency: str,
    late: Sequence[LatePeriod] = (),
    notes: RunNotes = _NOTHING_NOTED,
) -> Settlement:
    """Converts each line's net once and adds the results up.

    `late` are earlier days of which rows are taken in, each with lines of its own; `notes` is what else was seen.
    `rates` may be None when `needs_rates` is false. Raises `RunRefused` naming every currency whose rate is missing or
    unusable, or a total beyond the range of an amount.
    """
    target = canonical_currency(settlement_currency)
    table = rates if rates is not None else Rates(target, {})
    lines: list[SettlementLine] = []
    problems: dict[str, Problem] = {}
    periods: list[tuple[Date | None, RollUp]] = [(None, totals), *((each.period, each.roll_up) for each in late)]
    for period, roll in periods:
        for line in roll.lines:
            try:
                lines.append(_settlement_line(line, table, target, period))
            except RunRefused as refused:
                problems |= {str(problem): problem for problem in refused.problems}
    total_net = sum(line.net_settlement for line in lines)
    if abs(total_net) > AMOUNT_MAX:
        problems["total"] = Problem(kind="line", subject=target, detail=f"total is beyond ±{AMOUNT_MAX}")
    if problems:
        raise RunRefused(problems.values())
    used = rates is not None and needs_rates(totals, target, late=late)
    settlement = Settlement(
        account=account,
        date=date,
        window=window,
        settlement_currency=target,
        lines=tuple(lines),
        total_net=total_net,
        roll_up=totals,
        rates=rates.provenance() if rates is not None and used else None,
        late=tuple(late),
        notes=notes,
    )
    check_settlement(settlement)
    return settlement


def _settlement_line(line: CurrencyTotals, rates: Rates, target: str, period: Date | None) -> SettlementLine:
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
        period=period,
    )


def check_settlement(settlement: Settlement) -> None:
    """The identities of a settlement, computed a second way from the groups; `InvariantViolated` if one fails."""
    groups = {None: settlement.roll_up.settled} | {each.period: each.roll_up.settled for each in settlement.late}
    for line in settlement.lines:
        own = [group for group in groups[line.period] if group.currency == line.currency]
        if line.net != line.charged + line.refunded - line.fees or line.net != sum(group.net for group in own):
            raise InvariantViolated(f"line {line.currency}: net is not the sum of its parts")
        if line.charged < 0 or line.refunded > 0:
            raise InvariantViolated(f"line {line.currency}: a column has the wrong sign")
        if line.currency == settlement.settlement_currency and line.net_settlement != line.net:
            raise InvariantViolated(f"line {line.currency}: converted although it is the settlement currency")
    if settlement.total_net != sum(line.net_settlement for line in settlement.lines):
        raise InvariantViolated("total is not the sum of its lines")
