"""Every way in which the fake can misbehave, by name, with one line that says what it does.

The list is data: the control plane shows it, the documentation repeats it (a test compares), and the code that does it
looks here for the options. A fault acts in one stage of a request's life.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from fake_processor.fault_catalogue_odd import ODD_KINDS
from fake_processor.fault_kinds import ANY, LIST, POST, RATES, FaultKind

__all__ = ["ANY", "FAULTS", "LIST", "POST", "RATES", "FaultKind", "fault_kind"]

_KINDS = (
    # Slow.
    FaultKind(name="latency", stage="wait", description="Waits wait_ms before it works.", options={"wait_ms": 100}),
    FaultKind(
        name="latency_jittered",
        stage="wait",
        description="Waits between wait_min_ms and wait_max_ms, by the seed, before it works.",
        options={"wait_min_ms": 1, "wait_max_ms": 100},
    ),
    FaultKind(
        name="drip",
        stage="send",
        description="Sends the body in pieces of piece_bytes, wait_ms apart.",
        options={"piece_bytes": 64, "wait_ms": 20},
    ),
    # Refusals; the first one that fires decides.
    FaultKind(
        name="rate_limit",
        stage="limit",
        description="A token bucket of per_second requests and at most in_flight at once (0: no bound); over it, 429.",
        options={"per_second": 25, "burst": 0, "in_flight": 0, "should_retry": 0},
    ),
    FaultKind(
        name="too_many_requests",
        stage="refuse",
        description="Answers 429 with Retry-After in seconds (retry_after_s).",
        options={"retry_after_s": 1, "should_retry": 0},
    ),
    FaultKind(
        name="too_many_requests_date",
        stage="refuse",
        description="Answers 429 with Retry-After as an HTTP date, retry_after_s ahead.",
        options={"retry_after_s": 1, "should_retry": 0},
    ),
    FaultKind(
        name="error_500",
        stage="refuse",
        description="Answers 500 with no effect; a POST's key keeps the 500 and replays it for 24 hours.",
    ),
    FaultKind(name="error_502", stage="refuse", description="Answers 502 with the HTML page of a gateway, no effect."),
    FaultKind(
        name="error_503",
        stage="refuse",
        description="Answers 503 with Retry-After (none when retry_after_s is 0), no effect.",
        options={"retry_after_s": 1},
    ),
    FaultKind(name="unauthorized", stage="refuse", description="Answers 401, as if the key had just been revoked."),
    FaultKind(name="forbidden", stage="refuse", description="Answers 403: the key may not do this."),
    FaultKind(
        name="in_flight",
        stage="refuse",
        description="Answers 409: another request with this idempotency key is in progress.",
        route=POST,
    ),
    FaultKind(
        name="deleted_cursor",
        stage="refuse",
        description="Answers 400 to a request with a cursor, as if the cursor's row had been deleted.",
        route=LIST,
    ),
    FaultKind(
        name="redirect",
        stage="refuse",
        description="Answers 302 to location.",
        options={"location": "/v1/elsewhere"},
    ),
    # Effect and answer come apart.
    FaultKind(
        name="error_500_after_effect",
        stage="after",
        description="Stores the settlement, then answers 500; its key keeps the 500 and replays it for 24 hours.",
        route=POST,
    ),
    FaultKind(
        name="reset_before_headers",
        stage="before",
        description="Breaks the connection before any answer, with no effect.",
    ),
    FaultKind(
        name="reset_after_effect",
        stage="after",
        description="Does what was asked, then breaks the connection before any answer.",
    ),
    FaultKind(name="reset_mid_body", stage="send", description="Breaks the connection after half of the body."),
    # Bytes that are no good answer.
    FaultKind(
        name="truncated_json", stage="body", description="Cuts the JSON in half; the length agrees with the cut."
    ),
    FaultKind(name="html", stage="body", description="Sends a page of HTML with status 200 in place of the JSON."),
    FaultKind(name="wrong_content_type", stage="body", description="Sends the right JSON as text/plain."),
    FaultKind(name="gzip", stage="body", description="Compresses the body with gzip, asked for or not."),
    FaultKind(name="gzip_truncated", stage="body", description="Compresses the body with gzip and cuts it in half."),
    FaultKind(name="bom", stage="body", description="Puts a byte order mark before the JSON."),
    FaultKind(name="invalid_utf8", stage="body", description="Puts bytes that are no UTF-8 into the first text."),
    FaultKind(name="duplicate_member", stage="body", description="Repeats the first member of the JSON object."),
    # Paging that goes wrong.
    FaultKind(
        name="duplicated_page",
        stage="page",
        description="Sends the page that ended at the cursor once more, in place of the next one.",
        route=LIST,
    ),
    FaultKind(
        name="overlapping_page",
        stage="page",
        description="Starts the page with the cursor's own row, as offset paging does after an insert.",
        route=LIST,
    ),
    FaultKind(
        name="repeated_cursor",
        stage="page",
        description="Ends the page with the cursor's own row, so that the next request is this one again.",
        route=LIST,
    ),
    FaultKind(name="no_rows_but_more", stage="page", description="Sends has_more with no rows.", route=LIST),
    FaultKind(name="missing_has_more", stage="page", description="Leaves has_more out of the page.", route=LIST),
    FaultKind(
        name="false_has_more",
        stage="page",
        description="Says that nothing follows although rows do: a lie that no single page betrays.",
        route=LIST,
    ),
    # Data that moves.
    FaultKind(
        name="rows_inserted",
        stage="truth",
        description="Adds rows new charges, created at created_s (0: now), before it answers.",
        route=LIST,
        options={"rows": 1, "created_s": 0},
    ),
    FaultKind(
        name="late_rows",
        stage="page",
        description="Hides the newest rows rows of what was asked for; they show once the fault is over.",
        route=LIST,
        options={"rows": 1},
    ),
    FaultKind(
        name="pending_turns_available",
        stage="truth",
        description="Lets every pending row of the account become available, for good, before it answers.",
        route=LIST,
    ),
    # Wrong types in one row.
    *(
        FaultKind(
            name=f"row_{name}",
            stage="page",
            description=f"Writes field of one row of the page as {what}.",
            route=LIST,
            options={"field": "amount"},
        )
        for name, what in (
            ("float", "a number with a point (12.0)"),
            ("exponent", "a number with an exponent (1e2)"),
            ("bool", "true"),
            ("string", "a text of its digits"),
            ("null", "null"),
            ("beyond_64_bits", "2^63, one more than fits"),
            ("missing", "nothing: the member is left out"),
        )
    ),
    FaultKind(
        name="row_contradicts_itself",
        stage="page",
        description="Makes net of one row differ from amount - fee by one.",
        route=LIST,
    ),
    FaultKind(
        name="row_changes",
        stage="page",
        description="Repeats one row of the page with another amount under the same id.",
        route=LIST,
    ),
    # Rates that cannot be used. Without currency, every rate of the table.
    *(
        FaultKind(
            name=f"rate_{name}",
            stage="rates",
            description=f"Publishes the rate of currency (none: of every one) {what}.",
            route=RATES,
            options={"currency": ""},
        )
        for name, what in (
            ("missing", "not at all"),
            ("zero", 'as "0"'),
            ("negative", "with a minus sign"),
            ("nan", 'as "NaN"'),
        )
    ),
    FaultKind(
        name="rate_stale",
        stage="rates",
        description="Dates the rate table days days back.",
        route=RATES,
        options={"days": 30},
    ),
    *ODD_KINDS,
)

FAULTS: Mapping[str, FaultKind] = {kind.name: kind for kind in _KINDS}


def fault_kind(name: str) -> FaultKind:
    """The fault of that name. ValueError, with the name that comes nearest, when there is none."""
    kind = FAULTS.get(name)
    if kind is None:
        near = get_close_matches(name[:60], FAULTS, n=1)
        raise ValueError(f"unknown fault {name!r:.60}" + (f"; did you mean {near[0]}?" if near else ""))
    return kind
