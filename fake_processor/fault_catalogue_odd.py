"""The faults of processors that are odd rather than broken: good answers to a question that was not quite asked.

A filter that lets too much through, an order that is another, a row that moves. What they do is in `fault_lists`.
"""

from __future__ import annotations

from fake_processor.fault_kinds import LIST, ROWS, FaultKind

FAR = -(2**53)
"""The least number of an option that may be negative."""

_BOUNDS = ("both", "gte", "lt")

ODD_KINDS = (
    # Which rows a list holds, and in which order.
    FaultKind(
        name="filter_ignored",
        stage="list",
        description="Ignores one bound of created, gte or lt, or both of them.",
        route=LIST,
        options={"bound": "both"},
        choices={"bound": _BOUNDS},
    ),
    FaultKind(
        name="filter_off_by_one",
        stage="list",
        description="Takes a bound (gte, lt, both) a second wrong, on its inner side (too few) or outer (too many).",
        route=LIST,
        options={"bound": "both", "side": "inner"},
        choices={"bound": _BOUNDS, "side": ("inner", "outer")},
    ),
    FaultKind(
        name="list_order",
        stage="list",
        description="Lists in an order of its own: shuffled, oldest_first, nearly (one row astray), ties (by no id).",
        route=LIST,
        options={"order": "shuffled"},
        choices={"order": ("shuffled", "oldest_first", "nearly", "ties")},
    ),
    FaultKind(
        name="page_short",
        stage="list",
        description="Sends at most rows rows on a page, whatever limit was asked for; has_more tells of the rest.",
        route=LIST,
        options={"rows": 1},
        lowest={"rows": 1},
    ),
    # Rows that are not what they were.
    FaultKind(
        name="created_missing",
        stage="list",
        description="Leaves created out of one row in every (by the seed); unfiltered=1 ignores the bounds as well.",
        route=ROWS,
        options={"every": 1, "unfiltered": 0},
        choices={"unfiltered": (0, 1)},
        lowest={"every": 1},
    ),
    FaultKind(
        name="row_moves",
        stage="list",
        description="Shows the row id (none: one by the seed) by_s seconds later, and lists it there.",
        route=ROWS,
        options={"id": "", "by_s": 86_400},
        lowest={"by_s": FAR},
    ),
    FaultKind(
        name="row_vanishes",
        stage="list",
        description="Shows the row id (none: one by the seed) in no list, and answers 404 to its id.",
        route=ROWS,
        options={"id": ""},
    ),
    FaultKind(
        name="row_amended",
        stage="list",
        description="Shows the row id (none: one by the seed) with amount and net more by by minor units.",
        route=ROWS,
        options={"id": "", "by": 1},
        lowest={"by": FAR},
    ),
)
