"""A generated account lists exactly as the same rows would in a plain list, whatever is asked and whatever was changed.

The generator finds pages by arithmetic, the plain listing sorts and scans. Where the two differ, one of them would
blame a right client.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fake_processor import Plan
from fake_processor.generated_listing import GeneratedListing
from fake_processor.generator import GeneratedRows
from fake_processor.listing import Listing, PageQuery

PLANS = [
    Plan(seed=5, transactions=180, days=3, currencies=("usd", "jpy")),
    Plan(seed=6, transactions=45, days=4, currencies=("eur", "usd", "gbp")),
    Plan(seed=7, transactions=400, days=1, currencies=("usd",)),
]
GENERATED = [GeneratedListing(GeneratedRows(plan)) for plan in PLANS]
PLAIN = [Listing(listing.rows) for listing in GENERATED]
DAY_START_S = 1768435200  # 2026-01-15T00:00:00Z

SECONDS = st.none() | st.integers(DAY_START_S - 4 * 86_400, DAY_START_S + 2 * 86_400)


@settings(deadline=None)
@given(
    which=st.integers(0, len(PLANS) - 1),
    limit=st.integers(1, 100),
    start_s=SECONDS,
    end_s=SECONDS,
    currency=st.none() | st.sampled_from(["usd", "jpy", "eur", "chf"]),
    kind=st.none() | st.sampled_from(["charge", "refund", "payout", "adjustment"]),
    data=st.data(),
)
def test_generated_pages_are_those_of_a_plain_list(
    which: int,
    limit: int,
    start_s: int | None,
    end_s: int | None,
    currency: str | None,
    kind: str | None,
    data: st.DataObject,
) -> None:
    generated, plain = GENERATED[which], PLAIN[which]
    for change in data.draw(st.lists(st.sampled_from(["remove", "update", "add", "release"]), max_size=3)):
        position = data.draw(st.integers(0, len(PLAIN[which].rows) - 1))
        row_id = str(PLAIN[which].rows[position]["id"])
        if plain.find(row_id) is None:
            continue
        if change == "release":
            generated, plain = generated.release(), plain.release()
        elif change == "add":
            second = PLAIN[which].rows[position]["created"]
            row = {"id": f"txn_{change}_{position}", "created": second, "currency": "usd", "type": "charge"}
            generated, plain = generated.add([row]), plain.add([row])
        else:
            fields = None if change == "remove" else {"currency": "chf", "net": 1}
            generated, plain = generated.replace(row_id, fields), plain.replace(row_id, fields)
    cursor = data.draw(st.none() | st.sampled_from([str(row["id"]) for row in plain.rows]))
    backwards = cursor is not None and data.draw(st.booleans())
    query = PageQuery(
        limit=limit,
        start_s=start_s,
        end_s=end_s,
        currency=currency,
        type=kind,
        starting_after=None if backwards else cursor,
        ending_before=cursor if backwards else None,
    )
    ours, theirs = generated.page(query), plain.page(query)
    assert (ours.rows, ours.has_more) == (theirs.rows, theirs.has_more)
    assert ours.edges == theirs.edges
    assert generated.rows == plain.rows
    assert {status: _kept(totals) for status, totals in generated.totals().items()} == {
        status: _kept(totals) for status, totals in plain.totals().items()
    }


@settings(deadline=None)
@given(which=st.integers(0, len(PLANS) - 1), data=st.data())
def test_source_and_payout_select_the_same_rows(which: int, data: st.DataObject) -> None:
    generated, plain = GENERATED[which], PLAIN[which]
    row = data.draw(st.sampled_from(plain.rows))
    limit = data.draw(st.integers(1, 100))
    source = PageQuery(limit=limit, source=str(row["source"]))
    assert generated.page(source).rows == plain.page(source).rows == [row]
    payouts = [row["source"] for row in plain.rows if row["type"] == "payout"]
    if payouts:
        cursor = data.draw(st.none() | st.sampled_from([str(row["id"]) for row in plain.rows]))
        backwards = cursor is not None and data.draw(st.booleans())
        query = PageQuery(
            limit=limit,
            payout=str(data.draw(st.sampled_from(payouts))),
            starting_after=None if backwards else cursor,
            ending_before=cursor if backwards else None,
        )
        ours, theirs = generated.page(query), plain.page(query)
        assert (ours.rows, ours.has_more) == (theirs.rows, theirs.has_more)


def _kept(totals: dict[str, int]) -> dict[str, int]:
    return {currency: net for currency, net in totals.items() if net}
