"""Walks a settlement down: lines, rate and rounding, rows by kind, what is not in it, pages, attempts, journal.

Pure over what was stored; it asks nobody and decides nothing. One walk serves machines (`explanation`) and people
(`explanation_text`, 80 columns).
"""

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from paykit_settle.difference_report import difference_json
from paykit_settle.explain_windows import day_json, day_warnings, windows_json, windows_text
from paykit_settle.models import RowGroup, Settlement, SettlementLine
from paykit_settle.money import format_amount
from paykit_settle.notes_text import earlier_days_lines, notes_lines, taken_text
from paykit_settle.run_shown import run_json, time_text
from paykit_settle.store.history import BookedEntry, History

WIDTH = 80


def explanation(history: History) -> dict[str, Any]:
    """Everything that leads from the total down to the rows, as JSON values; amounts are integers."""
    attempt = history.attempt
    return {
        **run_json(history),
        "program": attempt.program if attempt else None,
        "evidence_sha256": attempt.evidence_sha256 if attempt else None,
        "rate_table": attempt.rates_body.decode("utf-8", "replace") if attempt and attempt.rates_body else None,
        "scales": dict(attempt.scales) if attempt else {},
        **day_json(history),
        "windows": windows_json(history),
        "pages": [
            {
                "period": page.period,
                "number": page.number,
                "window": page.window,
                "rows": page.row_count,
                "has_more": page.has_more,
                "sha256": page.body_sha256,
                "received_at": time_text(page.received_at_ms),
                "kept": page.is_kept,
            }
            for page in history.pages
        ],
        "attempts": [
            {
                "number": each.number,
                "idempotency_key": each.idempotency_key,
                "body_sha256": each.body_sha256,
                "frozen_at": time_text(each.frozen_at_ms),
                "sent_at": time_text(each.sent_at_ms),
                "outcome": each.outcome,
                "detail": each.detail,
                "settlement_id": each.settlement_id,
                **({"taken": each.taken} if each.taken else {}),
            }
            for each in history.attempts
        ],
        "resolutions": [
            {
                "attempt": each.attempt,
                "decision": each.decision,
                "settlement_id": each.settlement_id,
                "reason": each.reason,
                "decided_by": each.decided_by,
                "decided_at": time_text(each.decided_at_ms),
            }
            for each in history.resolutions
        ],
        "late_rows": [{"period": period, "id": identity} for period, identity in history.late_rows],
        "corrections": [difference_json(each) for each in history.corrections],
        "journal": [_entry_json(entry) for entry in history.entries],
    }


def _entry_json(entry: BookedEntry) -> dict[str, Any]:
    return {
        "account": entry.account,
        "currency": entry.currency,
        "amount": entry.amount,
        "balance_before": entry.balance_before,
        "balance_after": entry.balance_after,
    }


def explanation_text(history: History) -> str:
    """The same for a person, top down, in lines of at most 80 columns where the amounts allow it."""
    run, attempt = history.run, history.attempt
    lines = [
        f"{run.settlement_id or 'No settlement yet'}: {run.account} for {run.date.isoformat()} ({run.id})",
        f"state      {run.state}, attempt {run.attempt}, asked for by {run.requested_by}",
        *([f"why        {run.error_code}: {run.error_detail}"] if run.error_code else []),
        *([f"attention  {run.attention}"] if run.attention else []),
    ]
    if attempt is not None:
        settlement = attempt.settlement
        lines += [
            f"window     {settlement.window.start:%Y-%m-%d %H:%M} to {settlement.window.end:%Y-%m-%d %H:%M} UTC "
            f"({run.zone})",
            f"total      {_money(settlement.total_net, settlement.settlement_currency)}",
            *([f"taken      {taken_text(settlement.taken)}"] if settlement.taken else []),
            *([f"covers     {run.covers}, of the rows below"] if run.covers else []),
        ]
    for warning in day_warnings(history):
        lines += wrap(warning, WIDTH, initial_indent="note       ", subsequent_indent=" " * 11)
    if attempt is not None:
        settlement = attempt.settlement
        lines += [
            "",
            *_conversions(settlement),
            "",
            *_rows(settlement),
        ]
    return "\n".join([*lines, "", *_evidence(history), "", *_attempts(history), *_journal(history.entries)])


def _conversions(settlement: Settlement) -> list[str]:
    target = settlement.settlement_currency
    lines = [f"From each net to {target}: the exact fraction, booked {target}, and what rounding left"]
    if settlement.taken:
        lines = [f"Lines as the processor has them: each net, and {target} for it at the ratio that it implies"]
    for line in settlement.lines:
        sum_ = f"{line.charged} {_signed(line.refunded)} {_signed(-line.fees)}"
        lines.append(f"  {_name(line):<15} {sum_} = net {line.net}")
        conversion = line.conversion
        if settlement.taken and line.currency != target:
            ratio = f"{conversion.numerator}/{conversion.denominator}"
            lines.append(f"  {'':<15} × {ratio} = {line.net_settlement} {target}, source: processor")
        if conversion.published:
            left = conversion.remainder
            rest = f" {_signed(left)}/{conversion.denominator}" if left else ", exactly"
            lines.append(
                f"  {'':<15} × {conversion.numerator}/{conversion.denominator} = {line.net_settlement} {target}{rest}"
            )
    if settlement.rates:
        published = {code: text for line in settlement.lines for code, text in line.conversion.published.items()}
        quotes = ", ".join(f"{text} {code}" for code, text in sorted(published.items()))
        lines += [
            f"  rates           1 {settlement.rates['base']} = {quotes}",
            f"                  of {settlement.rates['as_of']}, {settlement.rates['source'] or 'source not named'}",
        ]
    return lines


def _rows(settlement: Settlement) -> list[str]:
    roll_up = settlement.roll_up
    lines = [f"Rows       {roll_up.row_count} in the window, {roll_up.repeat_count} repeats"]
    lines += _groups("settled", roll_up.settled)
    lines += _groups("pending", roll_up.pending)
    lines += _groups("left out", roll_up.left_out)
    for late in settlement.late:
        lines += _groups(f"of {late.period.isoformat()}", late.roll_up.settled)
        lines += _groups(f"pending {late.period:%m-%d}", late.roll_up.pending)
        lines += _groups(f"left out {late.period:%m-%d}", late.roll_up.left_out)
    lines += [f"  {line}" for line in notes_lines(settlement)]
    unknown = {*roll_up.unknown_types, *(kind for late in settlement.late for kind in late.roll_up.unknown_types)}
    if unknown:
        lines.append(f"  unknown types, counted by sign: {', '.join(sorted(unknown))}")
    return lines


def _groups(label: str, groups: Iterable[RowGroup]) -> list[str]:
    lines = []
    for group in groups:
        kind = (
            group.type if group.reporting_category in (None, group.type) else f"{group.type}/{group.reporting_category}"
        )
        fees = f", fees {group.fees}" if group.fees else ""
        lines.append(f"  {label:<14} {group.count:>4} {kind:<27} {_money(group.net, group.currency)}{fees}")
        label = ""
    return lines


def _evidence(history: History) -> list[str]:
    attempt = history.attempt
    lines = [
        f"Evidence   {len(history.pages)} page{'s' * (len(history.pages) != 1)}"
        + (f", digest {attempt.evidence_sha256[:32]}…" if attempt else "")
    ]
    if attempt is not None:
        lines += [f"  read too: {line}" for line in earlier_days_lines(attempt.settlement.notes)]
    lines += windows_text(history)
    for page in history.pages:
        kept = "" if page.is_kept else ", pruned" if page.is_needed else ", digest only"
        more = ", more follow" if page.has_more else ", the last"
        lines.append(
            f"  {page.period} page {page.number:<4} {page.row_count:>4} rows  {page.body_sha256[:24]}…{more}{kept}"
        )
    lines += [f"  late row {identity} of {period}" for period, identity in history.late_rows]
    lines += [f"  correction {each.id} of {each.period}, said {each.decided_by}" for each in history.corrections]
    return lines


def _attempts(history: History) -> list[str]:
    lines = []
    for each in history.attempts:
        lines += [
            f"Attempt {each.number}  {'taken' if each.taken else 'frozen'} {time_text(each.frozen_at_ms)}, "
            f"by paykit-settle {each.program}",
            f"  key      {each.idempotency_key or 'not ours'}",
            f"  sent     {time_text(each.sent_at_ms) or 'never'}, body {each.body_sha256[:32]}…",
            f"  outcome  {each.outcome or 'open'}" + (f": {each.detail}" if each.detail else ""),
        ]
    lines += [
        f"Resolved   attempt {each.attempt} {each.decision} by {each.decided_by}: {each.reason}"
        for each in history.resolutions
    ]
    return lines


def _journal(entries: Sequence[BookedEntry]) -> list[str]:
    if not entries:
        return []
    lines = ["", "Journal    each currency sums to zero"]
    for entry in entries:
        after = "" if entry.balance_after is None else f"   balance {entry.balance_before} → {entry.balance_after}"
        lines.append(f"  {entry.account:<22} {entry.amount:>16} {entry.currency}{after}")
    return lines


def _name(line: SettlementLine) -> str:
    return line.currency if line.period is None else f"{line.currency} {line.period.isoformat()}"


def _signed(amount: int) -> str:
    return f"{'-' if amount < 0 else '+'} {abs(amount)}"


def _money(amount: int, currency: str) -> str:
    return f"{amount} {currency} ({format_amount(amount, currency)})"
