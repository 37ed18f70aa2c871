"""What people see on a terminal of 80 columns: the settlement as a statement. Prints nothing itself.

Every amount is formatted from its digits. The form for machines is in `report.py`.
"""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paykit_settle.corrections import CORRECTION
from paykit_settle.models import RowGroup, Settlement
from paykit_settle.money import format_amount
from paykit_settle.notes_text import notes_lines, taken_text


def settlement_table(settlement: Settlement) -> RenderableType:
    """The settlement as a statement: a row for each currency, the total, the rates, and what is not in it."""
    target = settlement.settlement_currency
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    for column in ("charged", "refunded", "fees", "net", f"in {target}", "minor units"):
        table.add_column(column, justify="right", no_wrap=True)
    for line in settlement.lines:
        amounts = (line.charged, line.refunded, line.fees, line.net)
        shown = [format_amount(amount, line.currency) for amount in amounts]
        name = line.currency if line.period is None else f"{line.currency} {line.period.isoformat()}"
        table.add_row(name, *shown, format_amount(line.net_settlement, target), str(line.net_settlement))
    table.add_section()
    total = format_amount(settlement.total_net, target)
    table.add_row("total", "", "", "", "", total, str(settlement.total_net), style="bold")
    title = Text(f"Settlement of {settlement.account} for {settlement.date.isoformat()}", style="bold")
    return Group(title, table, *(Text(note) for note in _notes(settlement)))


def _notes(settlement: Settlement) -> list[str]:
    roll_up = settlement.roll_up
    settled = sum(group.count for group in roll_up.settled)
    notes = [f"rows     {roll_up.row_count} in the window, {settled} of them settled"]
    if settlement.taken:
        notes = [f"taken    {taken_text(settlement.taken)}", f"rows     {roll_up.row_count} in the window"]
    if settlement.window.odd_length:
        notes.append(f"window   {settlement.window.odd_length}")
    if settlement.rates:
        published = {code: text for line in settlement.lines for code, text in line.conversion.published.items()}
        quotes = ", ".join(f"{text} {code}" for code, text in sorted(published.items()))
        rates = settlement.rates
        notes.append(f"rates    1 {rates['base']} = {quotes}")
        notes.append(f"         of {rates['as_of']}, {rates['source'] or 'source not named'}")
    notes += _named("pending", roll_up.pending)
    notes += _named("left out", roll_up.left_out)
    for late in settlement.late:
        settled_late = [group for group in late.roll_up.settled if group.reporting_category != CORRECTION]
        corrected = sum(group.count for group in late.roll_up.settled) - sum(group.count for group in settled_late)
        count = sum(group.count for group in settled_late)
        if count or late.roll_up.left_out:
            notes.append(f"late     {count} rows of {late.period.isoformat()}, which were not settled with it")
        if corrected:
            notes.append(f"correct  {corrected} rows of {late.period.isoformat()} that differ from what was settled")
    notes += notes_lines(settlement)
    if roll_up.unknown_types:
        notes.append(f"unknown  counted by their sign: {', '.join(roll_up.unknown_types)}")
    return notes


def _named(label: str, groups: tuple[RowGroup, ...]) -> list[str]:
    return [
        f"{label if index == 0 else '':<8} {group.count} {group.type}, net {format_amount(group.net, group.currency)}"
        for index, group in enumerate(groups)
    ]
