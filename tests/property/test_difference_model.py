"""The register of differences against what it must come to, for any order of changes, decisions, runs and new pulls.

Without it a correction could be settled twice, or a row that changes back and forth be settled at an amount it never
had, in some order of events that no example thinks of.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date as Date
from datetime import timedelta

import apsw
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from paykit_settle.corrections import Correction, content_of, corrected, correction_groups, decode_row, is_counted
from paykit_settle.errors import InvalidRequest, RunNotFound
from paykit_settle.money import ScaleProfile
from paykit_settle.person import Person
from paykit_settle.store.database import connect
from paykit_settle.store.decisions import dismiss_difference, settle_difference
from paykit_settle.store.differences import (
    Difference,
    Seen,
    corrections_for,
    note_differences,
    revisions_of,
    settled_content,
    take_corrections,
)
from paykit_settle.store.migrations import migrate
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change
from paykit_settle.store.runs import Run, run_by_number
from tests.rows import row

ACCOUNT, ROW = "acct", "t1"
PERIOD = Date(2026, 1, 10)
SCALE = ScaleProfile(overrides={"isk": 2})
Sums = dict[str, tuple[int, int]]

CONTENTS = st.builds(
    lambda amount, fee, currency, kind, status: msgspec.json.encode(
        row(ROW, amount, fee, currency=currency, kind=kind, status=status)
    ),
    st.sampled_from([0, 100, 2500, -100]),
    st.sampled_from([0, 100]),
    st.sampled_from(["usd", "USD", "isk"]),
    st.sampled_from(["charge", "refund", "payout"]),
    st.sampled_from(["available", "available", "pending"]),
)
# The first is settled; few others, so that rows change back to what they were, or to what was dismissed.
SHOWN = st.tuples(
    CONTENTS.filter(lambda content: is_counted(decode_row(content))),
    CONTENTS,
    st.none() | CONTENTS,
    st.none() | CONTENTS,
)
STEPS = st.sampled_from(
    [
        *(("see", number) for number in range(4)),
        *(("correct", number) for number in range(4)),
        *((name, 0) for name in ("settle", "settle", "dismiss", "run", "reject", "reject", "free", "free", "again")),
    ]
)


@contextmanager
def database() -> Iterator[apsw.Connection]:
    connection = connect(":memory:", create=True)
    try:
        migrate(connection, now_ms=0)
        yield connection
    finally:
        connection.close()


def add_run(connection: apsw.Connection, day: Date, state: str = "posted") -> Run:
    connection.execute(
        """INSERT INTO runs (account, date, tenant, state, settlement_currency, zone, window_start_s, window_end_s,
               attempt, pull, pull_started_at_ms, requested_by, created_at_ms, changed_at_ms)
           VALUES (?, ?, 't', ?, 'usd', 'Etc/UTC', 0, 1, 1, 1, 0, 'test', 0, 0)""",
        (ACCOUNT, day.isoformat(), state),
    )
    return run_by_number(connection, connection.last_insert_rowid())


def value(content: bytes | None) -> Sums:
    """What a row comes to, by currency: amount and fee, in ISO minor units; nothing where it is not counted."""
    if content is None or not is_counted(decode_row(content)):
        return {}
    found = decode_row(content)
    currency = found.currency.lower()
    return without_zeros({currency: (SCALE.from_wire(found.amount, currency), SCALE.from_wire(found.fee, currency))})


def plus(sums: Sums, correction: Difference | Correction) -> Sums:
    added = Correction(transaction_id=ROW, revision=1, period=PERIOD, was=correction.was, is_now=correction.is_now)
    total = dict(sums)
    for group in correction_groups(added, SCALE):
        amount, fee = total.get(group.currency, (0, 0))
        total[group.currency] = (amount + group.charged + group.refunded, fee + group.fees)
    return without_zeros(total)


def without_zeros(sums: Sums) -> Sums:
    return {currency: pair for currency, pair in sums.items() if pair != (0, 0)}


class Story:
    """One row, settled on its day; the processor shows it otherwise, a person decides, runs follow."""

    def __init__(self, connection: apsw.Connection, contents: Sequence[bytes | None]) -> None:
        self.connection = connection
        self.contents = contents
        self.first = self.shown = contents[0]
        self.holder = add_run(connection, PERIOD)
        self.day = PERIOD
        self.rejected: list[Run] = []
        self.freed: list[Run] = []
        self.now_ms = 0

    def do(self, name: str, number: int = 0) -> None:
        self.now_ms += 1
        if name in ("see", "correct"):
            self.shown = self.contents[number]
            self.note(None)
            if name == "correct":
                self.decide("settle")
                self.do("reject")
        elif name in ("settle", "dismiss"):
            self.decide(name)
        elif name in ("run", "reject"):
            self.day += timedelta(days=1)
            taker = add_run(self.connection, self.day, "posted" if name == "run" else "rejected")
            self.freeze(taker)
            self.rejected += [taker] * (name == "reject")
        elif name == "free" and self.rejected:
            taker = self.rejected.pop(0)
            change(self.connection, load_queries("runs.sql")["forget_corrections"], run=taker.number)
            self.freed.append(taker)
        elif name == "again" and self.freed:
            self.freeze(self.freed.pop())

    def decide(self, name: str) -> None:
        who = {"by": Person(principal="ada"), "reason": "seen", "now_ms": self.now_ms}
        try:
            if name == "settle":
                settle_difference(self.connection, ACCOUNT, ROW, scale=SCALE, **who)  # type: ignore[arg-type]
            else:
                dismiss_difference(self.connection, ACCOUNT, ROW, **who)  # type: ignore[arg-type]
        except (InvalidRequest, RunNotFound):
            pass  # nothing is open

    def freeze(self, taker: Run) -> None:
        wanted = corrections_for(self.connection, taker)
        done = corrected([], wanted, scale=SCALE)
        assert (list(done.taken), list(done.left_out)) == (wanted, [])
        assert take_corrections(self.connection, taker, wanted)
        if wanted:
            assert not take_corrections(self.connection, taker, wanted)
        self.note(taker)

    def note(self, run: Run | None) -> None:
        seen = Seen(
            account=ACCOUNT,
            transaction_id=ROW,
            kind="vanished" if self.shown is None else "changed",
            period=PERIOD,
            held_by_run=self.holder.number,
            was=self.first,
            is_now=self.shown,
        )
        note_differences(self.connection, run, [seen], now_ms=self.now_ms)

    def check(self) -> None:
        known = revisions_of(self.connection, ACCOUNT, [ROW]).get(ROW, [])
        settled = settled_content(self.connection, ACCOUNT, [ROW]).get(ROW, self.first)
        # Whether they count already or wait for a run that is pulled anew, corrections come to what is settled.
        chain = [each for each in known if each.decision == "settle" and not (each is known[-1] and each.is_live)]
        total = value(self.first)
        for correction in chain:
            total = plus(total, correction)
        assert total == value(settled)
        if all(each.taken_by_run for each in chain):
            total = value(self.first)
            for correction in known:
                total = plus(total, correction) if correction.taken_by_run else total
            assert total == value(settled)
        # Nothing is lost: what the processor shows is what is settled, or waits for somebody, or was dismissed.
        if content_of(self.shown) != content_of(settled):
            assert known[-1].is_live or known[-1].decision == "dismiss"
            assert content_of(known[-1].is_now) == content_of(self.shown)
        else:
            assert not known or not known[-1].is_live


@settings(max_examples=400)
@given(contents=SHOWN, steps=st.lists(STEPS, max_size=25))
def test_what_was_settled_for_a_row_comes_to_its_last_settled_content(
    contents: tuple[bytes | None, ...], steps: list[tuple[str, int]]
) -> None:
    with database() as connection:
        story = Story(connection, contents)
        for step in steps:
            story.do(*step)
            story.check()
        # Every run that was pulled anew takes what it had, one more run the rest: then all is in.
        for taker in story.freed:
            story.freeze(taker)
        story.do("run")
        story.check()
        assert corrections_for(connection, add_run(connection, story.day + timedelta(days=1))) == []
