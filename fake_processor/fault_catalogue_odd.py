"""The faults of processors that are odd rather than broken: good answers to a question that was not quite asked.

A filter that lets too much through, an order that is another, a row that moves; a look-up that is late, or not there.
What they do is in `fault_lists` and `fault_lookups`.
"""

from __future__ import annotations

from fake_processor.fault_kinds import LIST, LOOK_UP, ONE_ROW, ROWS, FaultKind

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
    FaultKind(
        name="other_row",
        stage="list",
        description="Answers an id with the row beside it; keep_id=1 puts the id that was asked for on that.",
        route=ONE_ROW,
        options={"keep_id": 0},
        choices={"keep_id": (0, 1)},
    ),
    FaultKind(
        name="no_such_route",
        stage="refuse",
        description="Answers status (404, 405 or 501), as a processor that shows no single row.",
        route=ONE_ROW,
        options={"status": 404},
        choices={"status": (404, 405, 501)},
    ),
    # Settlements that cannot be looked up as they should.
    FaultKind(
        name="lookup_lags",
        stage="lookup",
        description="Lists a settlement only lag_s seconds, by the fake's clock, after it was written.",
        route=LOOK_UP,
        options={"lag_s": 10},
    ),
    FaultKind(
        name="lookup_unfiltered",
        stage="lookup",
        description="Ignores what the settlements are asked for by (ignore): date, account or both.",
        route=LOOK_UP,
        options={"ignore": "date"},
        choices={"ignore": ("date", "account", "both")},
    ),
    FaultKind(
        name="lookup_paged",
        stage="lookup",
        description="Lists at most rows settlements at once; has_more and starting_after lead to the rest.",
        route=LOOK_UP,
        options={"rows": 1},
        lowest={"rows": 1},
    ),
    FaultKind(
        name="lookup_missing",
        stage="refuse",
        description="Answers status (404, 405, 410 or 501), as a processor that lists no settlements.",
        route=LOOK_UP,
        options={"status": 404},
        choices={"status": (404, 405, 410, 501)},
    ),
)
