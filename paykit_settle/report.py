"""A settlement for machines: plain JSON values, the same from the service and from the command line.

Amounts are integers of minor units, never formatted. The form for people is in `terminal.py`.
"""

from paykit_settle.models import PostedSettlement, RowGroup, Settlement, SettlementLine
from paykit_settle.notes_text import notes_json


def posted_json(posted: PostedSettlement) -> dict[str, object]:
    """What `POST /settlements/run` and `run --json` answer."""
    return {
        "settlement_id": posted.settlement_id,
        "status": posted.status,
        "total_net": posted.total_net,
        "currency": posted.currency,
        "idempotency_key": posted.idempotency_key,
        **({"run_id": posted.run_id, "replayed": posted.replayed} if posted.run_id else {}),
        **settlement_json(posted.settlement),
        "warnings": list(posted.warnings),
    }


def warnings_of(error: BaseException) -> list[str]:
    """Return what there is to say about a run that failed, beside why: the notes that were added to its error."""
    return list(getattr(error, "__notes__", ()))


def settlement_json(settlement: Settlement) -> dict[str, object]:
    """The settlement itself, with the rates it used and the rows that are not in it, by kind."""
    roll_up = settlement.roll_up
    return {
        "account": settlement.account,
        "date": settlement.date.isoformat(),
        "window": {"start": settlement.window.start.isoformat(), "end": settlement.window.end.isoformat()},
        "settlement_currency": settlement.settlement_currency,
        "total_net": settlement.total_net,
        "lines": [_line_json(line) for line in settlement.lines],
        "rates": dict(settlement.rates) if settlement.rates else None,
        "rows": roll_up.row_count,
        "repeats": roll_up.repeat_count,
        "pending": [_group_json(group) for group in roll_up.pending],
        "left_out": [_group_json(group) for group in roll_up.left_out],
        "unknown_types": list(roll_up.unknown_types),
        "late": [
            {
                "period": late.period.isoformat(),
                "rows": sum(group.count for group in late.roll_up.settled),
                "settled": [_group_json(group) for group in late.roll_up.settled],
                "pending": [_group_json(group) for group in late.roll_up.pending],
                "unknown_types": list(late.roll_up.unknown_types),
                "left_out": [_group_json(group) for group in late.roll_up.left_out],
                "changed_ids": list(late.changed_ids),
                "vanished_ids": list(late.vanished_ids),
                "wrong_ids": list(late.wrong_ids),
                "amended_ids": list(late.amended_ids),
            }
            for late in settlement.late
        ],
        **notes_json(settlement.notes),
        **({"taken": settlement.taken} if settlement.taken else {}),
    }


def _line_json(line: SettlementLine) -> dict[str, object]:
    conversion = line.conversion
    return {
        "currency": line.currency,
        "period": line.period.isoformat() if line.period else None,
        "charged": line.charged,
        "refunded": line.refunded,
        "fees": line.fees,
        "net": line.net,
        "net_settlement": line.net_settlement,
        "rates": dict(conversion.published),
        "fraction": f"{conversion.numerator}/{conversion.denominator}",
        "remainder": f"{conversion.remainder}/{conversion.denominator}",
    }


def _group_json(group: RowGroup) -> dict[str, object]:
    return {
        "currency": group.currency,
        "type": group.type,
        "reporting_category": group.reporting_category,
        "count": group.count,
        "net": group.net,
    }
