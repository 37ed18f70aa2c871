"""What of the evidence counts when `verify` recomputes: readings, windows, moved rows, answers, corrections, repeats.

Each test first shows that evidence of its kind is believed, and then that a slip in it is named: a check that never
fires looks exactly like a settlement that is right. Memory is bound here too, for evidence has as many rows as a day.
"""

import hashlib
import json
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from paykit_settle import verify_rows
from paykit_settle.verify import Basis, body_faults
from paykit_settle.verify_pages import WHOLE, Evidence, EvidenceDay, EvidencePage, EvidenceWindow, RowAnswer

DAY, BEFORE = "2026-01-15", "2026-01-14"
END = 1_000
"""Days of these tests are so many seconds long."""


def row(identity: str, amount: int = 100, *, at: int | None = 10, **other: object) -> dict[str, object]:
    """A row of the wire; without a time it has no `created` at all."""
    created = {} if at is None else {"created": at}
    base = {"id": identity, "type": "charge", "amount": amount, "fee": 0, "currency": "usd", "status": "available"}
    return base | created | other


def page(
    number: int,
    rows: Sequence[Mapping[str, object]],
    *,
    period: str = DAY,
    window: int = 0,
    span: tuple[int, int] = (0, END),
    more: bool = False,
    **other: object,
) -> EvidencePage:
    """A page whose chain is not told yet."""
    body = json.dumps({"data": rows, "has_more": more}).encode()
    made = EvidencePage(
        period=period,
        number=number,
        body=body,
        body_sha256=hashlib.sha256(body).hexdigest(),
        chain_sha256="",
        has_more=more,
        window=window,
        window_start_s=span[0],
        window_end_s=span[1],
    )
    return replace(made, **other)  # type: ignore[arg-type]  # the test's own fields


def day(*windows: tuple[int, int], **other: object) -> EvidenceDay:
    """A day that was read whole, in these windows or in one."""
    read = [
        EvidenceWindow(number=at, start_s=start, end_s=end) for at, (start, end) in enumerate(windows or [(0, END)])
    ]
    made = EvidenceDay(start_s=0, end_s=END, windows=read, first_page=1, outcome=WHOLE)
    return replace(made, **other)  # type: ignore[arg-type]  # the test's own fields


def answer(identity: str, body: Mapping[str, object], *, period: str = BEFORE) -> RowAnswer:
    sent = json.dumps(body).encode()
    return RowAnswer(transaction_id=identity, period=period, body=sent, body_sha256=hashlib.sha256(sent).hexdigest())


def chained(pages: Sequence[EvidencePage]) -> list[EvidencePage]:
    """The pages with the digests of their chains."""
    ends: dict[str, str] = {}
    done = []
    for each in pages:
        text = ends.get(each.period, "") + each.body_sha256
        ends[each.period] = hashlib.sha256(text.encode()).hexdigest()
        done.append(replace(each, chain_sha256=ends[each.period]))
    return done


def evidence(
    pages: Sequence[EvidencePage], days: Mapping[str, EvidenceDay] | None = None, answers: Sequence[RowAnswer] = ()
) -> Evidence:
    linked = chained(pages)
    return Evidence(
        days={period: day() for period in {DAY, *(each.period for each in pages)}} | dict(days or {}),
        pages=lambda period: (each for each in linked if each.period == period),
        answers=lambda: iter(answers),
    )


def basis(**changes: object) -> Basis:
    made = Basis(account="acct", date=DAY, settlement_currency="usd", rates=None, scales={})
    return replace(made, **changes)  # type: ignore[arg-type]  # the test's own fields


def body(*lines: tuple[str, str | None, int, int, int]) -> bytes:
    """A settlement of these lines: currency, period, charged, refunded, fees; only dollars are worth anything."""
    told: list[dict[str, object]] = []
    total = 0
    for currency, period, charged, refunded, fees in lines:
        net = charged + refunded - fees
        worth = net if currency == "usd" else 0
        total += worth
        line = {"currency": currency, "charged": charged, "refunded": refunded, "fees": fees}
        told.append(line | {"net": net, "net_settlement": worth} | ({"period": period} if period else {}))
    whole = {"account": "acct", "date": DAY, "settlement_currency": "usd", "lines": told, "total_net": total}
    return json.dumps(whole, separators=(",", ":")).encode()


def own(charged: int, refunded: int = 0, fees: int = 0) -> tuple[str, None, int, int, int]:
    return "usd", None, charged, refunded, fees


def late(charged: int, refunded: int = 0, fees: int = 0, currency: str = "usd") -> tuple[str, str, int, int, int]:
    return currency, BEFORE, charged, refunded, fees


HALVES = day((0, 500), (500, END))


def half(number: int, rows: Sequence[Mapping[str, object]], **other: object) -> EvidencePage:
    """The only page of the first (0) or second (1) half of the day; its number is one more."""
    return page(number + 1, rows, window=number, span=(0, 500) if number == 0 else (500, END), **other)  # type: ignore[arg-type]


# What is counted where it stands.


def test_row_that_another_window_owns_is_counted_there() -> None:
    split = [half(0, [row("a", at=1), row("b", at=600)]), half(1, [row("b", at=600), row("c", at=700)])]
    assert body_faults(basis(), body(own(300)), evidence(split, {DAY: HALVES})) == []


def test_row_that_stands_on_a_page_and_is_counted_nowhere_is_named() -> None:
    lost = [half(0, [row("a", at=1), row("b", at=600)]), half(1, [row("c", at=700)])]
    found = body_faults(basis(), body(own(200)), evidence(lost, {DAY: HALVES}))
    assert found == ["b of 2026-01-15 stands on a page, and is counted nowhere"]


def test_row_that_moves_from_window_to_window_while_it_is_read_is_named() -> None:
    """Cut from both pages, because on each it claims the other's time."""
    moving = [half(0, [row("a", at=1), row("b", at=600)]), half(1, [row("b", at=2)])]
    found = body_faults(basis(), body(own(100)), evidence(moving, {DAY: HALVES}))
    assert found == ["b of 2026-01-15 stands on a page, and is counted nowhere"]
    both = [half(0, [row("a", at=1), row("b", at=2)]), half(1, [row("b", at=600)])]
    found = body_faults(basis(), body(own(200)), evidence(both, {DAY: HALVES}))
    assert found[0] == "b of 2026-01-15 is counted twice, with different content"


def test_rows_without_a_time_count_once_wherever_they_stand() -> None:
    timeless = [half(0, [row("a", at=None), row("b", at=1)]), half(1, [row("a", at=None)])]
    assert body_faults(basis(), body(own(200)), evidence(timeless, {DAY: HALVES})) == []


def test_row_outside_the_day_is_nobodys() -> None:
    outside = [page(1, [row("a"), row("b", at=-1), row("c", at=END)])]
    assert body_faults(basis(), body(own(100)), evidence(outside)) == []


@pytest.mark.parametrize(
    "again",
    [
        row("a", 101),
        row("a", fee=1),
        row("a", currency="eur"),
        row("a", status="pending"),
        row("a", type="payout"),
        row("a", at=11),
        row("a", net=100),
        row("a", reporting_category="charge"),
    ],
)
def test_copies_of_a_row_are_one_row_or_a_fault(again: Mapping[str, object]) -> None:
    copies = [page(1, [row("a"), row("a", available_on=5), row("a")])]
    assert body_faults(basis(), body(own(100)), evidence(copies)) == []
    found = body_faults(basis(), body(own(100)), evidence([page(1, [row("a"), again])]))
    assert found[0] == "a of 2026-01-15 is counted twice, with different content"


def test_repeats_beyond_one_look_are_taken_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_rows, "LOOKED_UP_AT_ONCE", 3)
    rows = [row(f"r{number % 10}", -7 if number % 3 == 1 else 5, fee=1) for number in range(10)]
    told = body(own(5 * 7, -7 * 3, 10))
    assert body_faults(basis(), told, evidence([page(1, rows * 3)])) == []


def test_many_rows_at_fault_are_named_in_part_and_counted() -> None:
    rows = [row(f"r{number}", at=600) for number in range(verify_rows.NAMED_MAX + 5)]
    found = body_faults(basis(), body(), evidence([half(0, rows), half(1, [])], {DAY: HALVES}))
    assert len(found) == verify_rows.NAMED_MAX + 1
    assert found[-1] == "5 more rows: each of 2026-01-15 stands on a page, and is counted nowhere"


def test_ids_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_rows, "hash", lambda _text: 7, raising=False)
    rows = [row("a"), row("b", 20), row("a"), row("c", -3)]
    assert body_faults(basis(), body(own(120, -3)), evidence([page(1, rows)])) == []


@pytest.mark.parametrize(
    "sent", [b"", b"[]", b'{"data":1}', b'{"data":[{}]}', b'{"data":[1]}', b'{"data":[{"id":"a","created":"x"}]}']
)
def test_page_that_cannot_be_read_is_named(sent: bytes) -> None:
    broken = replace(page(1, []), body=sent, body_sha256=hashlib.sha256(sent).hexdigest())
    found = body_faults(basis(late_ids={BEFORE: ["a"]}), body(), evidence([broken]))
    assert "page 1 of 2026-01-15 cannot be read" in found


@pytest.mark.parametrize(
    "odd", [row("a", currency="xxx"), row("a") | {"amount": "1"}, row("a") | {"amount": None}, row("a", fee=1.5)]
)
def test_row_that_cannot_be_summed_is_a_fault_and_no_crash(odd: Mapping[str, object]) -> None:
    assert body_faults(basis(), body(own(100)), evidence([page(1, [odd])])) != []


@pytest.mark.parametrize("rates", [b"", b"[]", b"{}", b'{"base":"usd","rates":[]}', b'{"base":1,"rates":{}}'])
def test_rates_that_cannot_be_read_are_a_fault_and_no_crash(rates: bytes) -> None:
    foreign = evidence([page(1, [row("a", currency="eur")])])
    assert body_faults(basis(rates=rates), body(own(100)), foreign) != []


# Readings.


def test_pages_of_a_reading_that_was_given_up_do_not_count() -> None:
    """The day was begun anew as one list: what came before stays in the chain, under the same window's number."""
    pages = [half(0, [row("a"), row("x", at=600)]), half(1, [row("b", at=700)]), page(3, [row("a"), row("c")])]
    anew = day(first_page=3)
    assert body_faults(basis(), body(own(200)), evidence(pages, {DAY: anew})) == []
    without = [replace(pages[0], body=None), *pages[1:]]
    assert body_faults(basis(), body(own(200)), evidence(without, {DAY: anew})) == []
    found = body_faults(basis(), body(own(200)), evidence(pages, {DAY: day(first_page=4)}))
    assert "window 0 of 2026-01-15 ends although more rows follow" in found
    found = body_faults(basis(), body(own(200)), evidence(pages, {DAY: day(first_page=1)}))
    assert any(each.startswith("the body differs") for each in found)


@pytest.mark.parametrize("outcome", [None, "given up"])
def test_own_day_must_have_been_read_whole(outcome: str | None) -> None:
    found = body_faults(basis(), body(), evidence([page(1, [row("a")])], {DAY: day(outcome=outcome)}))
    assert found == ["2026-01-15 was not read whole"]
    absent = Evidence(days={}, pages=lambda _period: ())
    assert body_faults(basis(), body(), absent) == ["2026-01-15 was not read whole"]


@pytest.mark.parametrize("outcome", [None, "given up"])
def test_nothing_of_an_earlier_day_that_was_given_up_counts(outcome: str | None) -> None:
    pages = [page(1, [row("l")], period=BEFORE, more=True), page(1, [row("a")])]
    days = {BEFORE: day(outcome=outcome)}
    assert body_faults(basis(), body(own(100)), evidence(pages, days)) == []
    found = body_faults(basis(late_ids={BEFORE: ["l"]}), body(own(100)), evidence(pages, days))
    assert found == ["l was taken in late, and stands on no page of 2026-01-14 that counts"]


# Windows, and the span that was asked for.


@pytest.mark.parametrize(
    ("asked", "is_whole"),
    [
        ((None, None), True),
        ((500, END), True),
        ((499, END + 1), True),
        ((0, END), True),
        ((501, END), False),
        ((500, END - 1), False),
        ((None, END - 1), False),
    ],
)
def test_page_ends_a_window_only_if_it_was_asked_for_all_of_it(asked: tuple[int, int], *, is_whole: bool) -> None:
    last = half(1, [row("b", at=600)], asked_start_s=asked[0], asked_end_s=asked[1])
    found = body_faults(basis(), body(own(200)), evidence([half(0, [row("a")]), last], {DAY: HALVES}))
    assert found == ([] if is_whole else ["window 1 of 2026-01-15 was not read to its end"])


def test_list_of_an_earlier_day_may_begin_where_the_day_before_ended() -> None:
    """Hours that an older file left between two days are read with the later one."""
    pages = [page(1, [row("l", at=-50)], period=BEFORE, span=(-60, END)), page(1, [row("a")])]
    took = basis(late_ids={BEFORE: ["l"]})
    told = body(own(100), late(100))
    wider = day((-60, END))
    assert body_faults(took, told, evidence(pages, {BEFORE: replace(wider, gap_start_s=-60)})) == []
    found = body_faults(took, told, evidence(pages, {BEFORE: wider}))
    assert "the windows of 2026-01-14 do not meet at 0" in found
    found = body_faults(took, told, evidence(pages, {BEFORE: replace(wider, gap_start_s=-70)}))
    assert "the windows of 2026-01-14 do not meet at 0" in found


# Bytes that were dropped.


def test_page_of_an_earlier_day_is_needed_only_where_it_holds_a_row_of_interest() -> None:
    dull = page(1, [row("x")], period=BEFORE, more=True, body=None, is_needed=False)
    pages = [dull, page(2, [row("l")], period=BEFORE), page(1, [row("a")])]
    took = basis(late_ids={BEFORE: ["l"]})
    told = body(own(100), late(100))
    assert body_faults(took, told, evidence(pages)) == []
    gone = "1 of 3 pages were pruned: the lines cannot be recomputed any more"
    assert body_faults(took, told, evidence([replace(dull, is_needed=True), *pages[1:]])) == [gone]
    found = body_faults(took, told, evidence([pages[0], replace(pages[1], body=None, is_needed=False), pages[2]]))
    assert found[0] == "l was taken in late, and stands on no page of 2026-01-14 that counts"
    assert body_faults(took, told, evidence([*pages[:2], replace(pages[2], body=None, is_needed=False)])) == [gone]


# Rows that another run holds.


def test_row_that_another_run_holds_is_left_out_of_the_lines() -> None:
    held = basis(moved_ids=["m"])
    pages = [page(1, [row("a"), row("m", 900), row("m", 900)])]
    assert body_faults(held, body(own(100)), evidence(pages)) == []
    found = body_faults(held, body(own(1000)), evidence(pages))
    assert [each[:16] for each in found] == ["the body differs"]
    found = body_faults(replace(held, moved_ids=["m", "n"]), body(own(100)), evidence(pages))
    assert found == ["n was passed over, and stands on no page of 2026-01-15 that counts"]


@pytest.mark.parametrize("at_once", [1, 50])
def test_row_that_is_settled_on_its_own_day_and_as_a_late_one_is_named(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(verify_rows, "LOOKED_UP_AT_ONCE", at_once)
    pages = [page(1, [row("l"), row("k")], period=BEFORE), page(1, [row("a"), row("k"), row("l")])]
    took = basis(late_ids={BEFORE: ["l", "k"]})
    found = body_faults(took, body(own(300), late(200)), evidence(pages))
    assert sorted(found) == [f"{each} is settled as a row of 2026-01-15, and as one of 2026-01-14" for each in "kl"]
    held = replace(took, moved_ids=["l", "k"])
    assert body_faults(held, body(own(100), late(200)), evidence(pages)) == []
    owed = [pages[0], page(1, [row("a"), row("k", status="pending"), row("l", status="pending")])]
    assert body_faults(took, body(own(100), late(200)), evidence(owed)) == []


# Rows that were asked for by id.


def test_answer_about_a_row_counts_as_a_row_of_its_day() -> None:
    answers = [answer("l", row("l", 40, at=5 * END)), answer("p", row("p", status="pending"))]
    took = basis(late_ids={BEFORE: ["l"]})
    pages = [page(1, [row("a")])]
    assert body_faults(took, body(own(100), late(40)), evidence(pages, answers=answers)) == []
    found = body_faults(took, body(own(100)), evidence(pages))
    assert found == ["l was taken in late, and stands on no page of 2026-01-14 that counts"]


def test_row_that_is_listed_and_answered_counts_once() -> None:
    pages = [page(1, [row("l", 40)], period=BEFORE), page(1, [row("a")])]
    took = basis(late_ids={BEFORE: ["l"]})
    told = body(own(100), late(40))
    assert body_faults(took, told, evidence(pages, answers=[answer("l", row("l", 40))])) == []
    waiting = answer("l", row("l", 40, status="pending"))  # it turned available before the day was listed
    assert body_faults(took, told, evidence(pages, answers=[waiting])) == []
    found = body_faults(took, told, evidence(pages, answers=[answer("l", row("l", 41))]))
    assert found[0] == "l of 2026-01-14 is counted twice, with different content"


def test_answer_that_was_changed_or_is_about_another_row_is_named() -> None:
    pages = [page(1, [row("a")])]
    took = basis(late_ids={BEFORE: ["l"]})
    told = body(own(100), late(40))
    true = answer("l", row("l", 40))
    changed = replace(true, body=true.body.replace(b"40", b"41"))
    found = body_faults(took, told, evidence(pages, answers=[changed]))
    assert found[0] == "the answer about l is not the one that was received"
    found = body_faults(took, told, evidence(pages, answers=[answer("l", row("k", 40))]))
    assert found[0] == "the answer about l cannot be read"


def test_answers_are_part_of_the_evidence_digest() -> None:
    pages = [page(1, [row("a")])]
    answers = [answer("k", row("k", 1)), answer("l", row("l", 40))]
    chain = chained(pages)[0].chain_sha256
    lines = "".join(f"{each.transaction_id}:{each.body_sha256}\n" for each in answers)
    parts = [[DAY, chain], ["rows", hashlib.sha256(lines.encode()).hexdigest()]]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    took = basis(late_ids={BEFORE: ["l"]})
    told = body(own(100), late(40))
    assert body_faults(took, told, evidence(pages, answers=answers), evidence_sha256=digest) == []
    other = "the pages are not the ones that the settlement was made from"
    for wrong in (answers[1:], answers[::-1], [*answers, answer("m", row("m"))]):
        assert body_faults(took, told, evidence(pages, answers=wrong), evidence_sha256=digest) == [other]


# Corrections.


def raw(identity: str = "c", amount: int = 100, **other: object) -> bytes:
    return json.dumps(row(identity, amount, **other)).encode()  # type: ignore[arg-type]  # the test's own fields


@pytest.mark.parametrize(
    ("was", "is_now", "lines"),
    [
        (raw(amount=100, fee=3), raw(amount=130, fee=4), [late(30, 0, 1)]),
        (raw(amount=100, fee=3), raw(amount=60, fee=1), [late(0, -40, -2)]),
        (raw(amount=100, fee=3), raw(amount=100, fee=5), [late(0, 0, 2)]),
        (raw(amount=100), raw(amount=100, type="refund"), []),
        (raw(amount=100, fee=3), None, [late(0, -100, -3)]),
        (raw(amount=-100, fee=-3), None, [late(100, 0, 3)]),
        (raw(amount=100), raw(amount=100, status="pending"), [late(0, -100)]),
        (raw(amount=100), raw(amount=100, type="payout"), [late(0, -100)]),
        (raw(amount=-500, type="payout"), raw(amount=20), [late(20)]),
        (raw(amount=-500, type="payout"), None, []),
        (raw(amount=9), raw(amount=7, currency="EUR"), [late(7, currency="eur"), late(0, -9)]),
    ],
)
def test_correction_counts_as_a_row_of_its_day(
    was: bytes, is_now: bytes | None, lines: list[tuple[str, str, int, int, int]]
) -> None:
    corrected = basis(corrections={BEFORE: [(was, is_now)]})
    pages = [page(1, [row("a")])]
    assert body_faults(corrected, body(own(100), *lines), evidence(pages)) == []
    changed = basis(corrections={BEFORE: [(was, is_now), (raw(amount=1), None)]})
    assert body_faults(changed, body(own(100), *lines), evidence(pages)) != []


def test_corrections_and_late_rows_of_one_day_are_one_line() -> None:
    pages = [page(1, [row("l", 40)], period=BEFORE), page(1, [row("a")])]
    both = basis(late_ids={BEFORE: ["l"]}, corrections={BEFORE: [(raw(amount=100), raw(amount=90))]})
    assert body_faults(both, body(own(100), late(40, -10)), evidence(pages)) == []


@pytest.mark.parametrize("side", [b"", b"[1]", raw(currency=None), raw(fee="1"), b'{"status":"available"}'])
def test_correction_that_cannot_be_read_is_named(side: bytes) -> None:
    found = body_faults(basis(corrections={BEFORE: [(raw(), side)]}), body(own(100)), evidence([page(1, [row("a")])]))
    assert found[0] == "a correction of 2026-01-14 cannot be read"


# Memory.


def endless(count: int, period: str, *, copies: int = 1) -> Callable[[str], Iterator[EvidencePage]]:
    """Pages of a hundred rows that are made while they are read: only who reads them can keep anything."""

    def pages(wanted: str) -> Iterator[EvidencePage]:
        before = ""
        for number, first in enumerate(range(0, count if wanted == period else 0, 100), start=1):
            ids = (number // copies for number in range(first, first + 100))
            rows = [row(f"txn_{identity:022d}", at=identity % END) for identity in ids]
            made = page(number, rows, period=period, more=first + 100 < count)
            before = hashlib.sha256((before + made.body_sha256).encode()).hexdigest()
            yield replace(made, chain_sha256=before)

    return pages


class Ids:
    """The ids of those rows, made anew each time."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[str]:
        return (f"txn_{identity:022d}" for identity in range(self._count))


def peak(check: Callable[[], list[str]]) -> int:
    tracemalloc.start()
    try:
        found = check()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        assert found == []


FEW, MANY = 2_000, 20_000


@pytest.mark.parametrize(
    ("bytes_per_row", "basis_of", "body_of"),
    [
        (12, lambda _count: basis(), lambda count: body(own(100 * count))),
        (24, lambda count: basis(late_ids={BEFORE: Ids(count)}), lambda count: body(late(100 * count))),
        (24, lambda count: basis(moved_ids=Ids(count)), lambda _count: body()),
    ],
    ids=["own", "late", "moved"],
)
def test_memory_grows_by_some_bytes_a_row_and_not_by_rows(
    bytes_per_row: int, basis_of: Callable[[int], Basis], body_of: Callable[[int], bytes]
) -> None:
    """A million rows then cost less than 64 MiB: eight bytes for an id, as much again for one that was named before."""

    def used(count: int) -> int:
        asked = basis_of(count)
        period = BEFORE if asked.late_ids else DAY
        days = {DAY: day(windows=()), period: day()} if period != DAY else {DAY: day()}
        given = Evidence(days=days, pages=endless(count, period))
        windows = ["the windows of 2026-01-15 end at 0, not at 1000"] if period != DAY else []
        return peak(lambda: [each for each in body_faults(asked, body_of(count), given) if each not in windows])

    used(FEW)  # what is made once, such as compiled patterns, is made now
    assert used(MANY) - used(FEW) <= bytes_per_row * (MANY - FEW)


def test_memory_does_not_grow_by_rows_that_came_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_rows, "LOOKED_UP_AT_ONCE", 1_000)

    def used(count: int) -> int:
        given = Evidence(days={DAY: day()}, pages=endless(count, DAY, copies=2))
        return peak(lambda: body_faults(basis(), body(own(50 * count)), given))

    used(FEW)
    assert used(5 * FEW) - used(FEW) <= 32 * 4 * FEW


def test_hashes_find_what_is_there_twice_and_nothing_else() -> None:
    cut = verify_rows.Hashes(["c", "d"])
    ids = verify_rows.Hashes(["a", "b", "a", "c", "a"])
    assert set(ids.in_question(cut)) == {hash("a"), hash("c"), hash("d")}
    assert len(ids.in_question(cut)) == 3
    assert [hash(each) in ids for each in "abcd"] == [True, True, True, False]
