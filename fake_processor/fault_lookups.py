"""How an odd processor takes a look-up of settlements: late, too wide, or a few at a time.

Whoever looks up whether a post arrived decides by this what to do next; the settlements themselves stay as they are.
"""

from __future__ import annotations

from fake_processor.clock import NS_PER_S
from fake_processor.faults import Fired
from fake_processor.settlement_book import LookUp


def odd_look_up(look_up: LookUp, fault: Fired, *, now_ns: int) -> LookUp:
    """What the fault takes the look-up for."""
    match fault.name:
        case "lookup_lags":
            by_ns = now_ns - fault.number("lag_s") * NS_PER_S
            return look_up._replace(written_by_ns=min(by_ns, look_up.written_by_ns or by_ns))
        case "lookup_unfiltered":
            ignored = fault.text("ignore")
            return look_up._replace(
                account=look_up.account if ignored == "date" else None,
                date=look_up.date if ignored == "account" else None,
            )
        case _:
            rows = fault.number("rows")
            return look_up._replace(limit=rows if look_up.limit is None else min(rows, look_up.limit))
