"""Which rows are settled: every id that any run of an account has settled, kept for good, and who holds a row now.

An id is kept as a digest of 8 bytes, keyed by the database, so a year of rows stays small and nobody can choose ids
that collide. A digest that is found proves nothing: a hit is confirmed by the exact id in the evidence of the run that
wrote it. So digests may be written before their run is frozen, and those of a pull that was given up do no harm.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date as Date

import apsw

from paykit_settle.corrections import content_of
from paykit_settle.errors import InvariantViolated
from paykit_settle.store.differences import settled_content
from paykit_settle.store.evidence_rows import available_among, available_ids, covered_ids, own_pages, settled_rows
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, change_many, one, rows
from paykit_settle.store.runs import Run, run_by_number

_SQL = load_queries("settled.sql")

DIGEST_BYTES = 8
IDS_PER_BATCH = 4_000
"""Ids in one unit of work: the writer has others to serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The run that holds a row, and the day under which it was settled there.

    `content` is what is settled of it by now, corrections included (None: nothing any more), if that `is_kept`.
    """

    run: Run
    period: Date
    content: bytes | None
    is_kept: bool = True

    def is_other(self, now: bytes | None) -> bool:
        """Return whether a row that is shown like this is not as it was settled, as far as that is known."""
        return self.is_kept and content_of(self.content) != content_of(now)


def digest_function(connection: apsw.Connection) -> Callable[[str], int]:
    """Return the function that digests an id for this database: a signed integer of 64 bits."""
    found = one(connection, _SQL["digest_key"])
    if found is None:
        raise InvariantViolated("the database has no digest key")
    key = found["digest_key"]

    def digest(identity: str) -> int:
        hashed = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES, key=key)
        return int.from_bytes(hashed.digest(), "big", signed=True)

    return digest


def account_number(connection: apsw.Connection, account: str) -> int:
    """Return the number of an account that has been claimed."""
    found = one(connection, _SQL["account_number"], account=account)
    if found is None:
        raise InvariantViolated(f"account {account!r} was never claimed")
    return int(found["number"])


def write_digests(connection: apsw.Connection, run: Run, digests: Sequence[int]) -> set[int]:
    """Write digests of rows of a run, and return those that another run, which holds its rows, has written too.

    They count once the run is frozen. Give them in order: neighbours in the index are then written together.
    """
    number = account_number(connection, run.account)
    change_many(
        connection,
        _SQL["insert_settled_id"],
        [{"account": number, "digest": digest, "run": run.number} for digest in digests],
    )
    return find_digests(connection, run, digests)


def find_digests(connection: apsw.Connection, run: Run, digests: Sequence[int]) -> set[int]:
    """Return those of the digests that another run, which holds its rows, has written."""
    number = account_number(connection, run.account)
    found = rows(connection, _SQL["digest_hits"], account=number, run=run.number, digests=json.dumps(digests))
    return {row["digest"] for row in found}


def frozen_count(connection: apsw.Connection, run: Run) -> int:
    """Return how often other runs of the account were frozen: unchanged, nobody has taken a row since."""
    found = one(connection, _SQL["frozen_count"], account=run.account, run=run.number)
    return int(found["frozen"]) if found else 0


def holders(
    connection: apsw.Connection, run: Run, ids: Collection[str], digest: Callable[[str], int]
) -> dict[str, Holder]:
    """Return, for each of the ids that another run holds, the run that does: exactly, from that run's evidence."""
    return find_holders(connection, run.account, ids, digest, except_run=run.number)


def find_holders(
    connection: apsw.Connection,
    account: str,
    ids: Collection[str],
    digest: Callable[[str], int],
    *,
    except_run: int = 0,
) -> dict[str, Holder]:
    """Return the same for whoever asks. Runs of older files count once a later run has put them into the index."""
    if not ids:
        return {}
    by_digest: dict[int, list[str]] = {}
    for identity in ids:
        by_digest.setdefault(digest(identity), []).append(identity)
    hits = rows(
        connection,
        _SQL["digest_hits"],
        account=account_number(connection, account),
        run=except_run,
        digests=json.dumps(list(by_digest)),
    )
    by_run: dict[int, list[str]] = {}
    for hit in hits:
        by_run.setdefault(hit["run"], []).extend(by_digest[hit["digest"]])
    found: dict[str, Holder] = {}
    for number, wanted in sorted(by_run.items()):
        found = held_by(connection, run_by_number(connection, number), wanted) | found
    for identity, content in settled_content(connection, account, found).items():
        found[identity] = replace(found[identity], content=content, is_kept=True)
    return found


def held_by(connection: apsw.Connection, run: Run, ids: Sequence[str]) -> dict[str, Holder]:
    """Return those of the ids that this run holds: on its own day or taken in late, and not passed over."""
    wanted = json.dumps(list(ids))
    late = rows(connection, _SQL["late_rows_held"], account=run.account, run=run.number, ids=wanted)
    by_period: dict[str, list[str]] = {}
    for row in late:
        by_period.setdefault(row["period"], []).append(row["transaction_id"])
    found: dict[str, Holder] = {}
    for period, taken in by_period.items():
        sent = settled_rows(connection, run, period, taken)
        day = Date.fromisoformat(period)
        found |= {identity: _holder(run, day, sent.get(identity)) for identity in taken}
    left = set(ids) - set(found)
    passed = rows(connection, _SQL["passed_over"], run=run.number, ids=wanted)
    left -= {row["transaction_id"] for row in passed}
    covered = covered_ids(connection, run)
    if covered is not None:
        left &= covered
        # One that was pending when it was read has no content that was settled.
        found |= {identity: Holder(run=run, period=run.date, content=None) for identity in left}
    if left:
        for page in own_pages(connection, run):
            for identity, content in available_among(page, left).items():
                found[identity] = _holder(run, run.date, content)
    return found


def _holder(run: Run, period: Date, content: bytes | None) -> Holder:
    return Holder(run=run, period=period, content=content, is_kept=content is not None)


def settled_ids_of(connection: apsw.Connection, run: Run) -> Iterable[str]:
    """Yield the ids that a run of an older file has settled: of its own day, and of those that it took in late."""
    for page in own_pages(connection, run):
        yield from available_ids(page)
    for row in rows(connection, load_queries("runs.sql")["late_rows_of"], run=run.number):
        yield row["transaction_id"]


def runs_to_index(connection: apsw.Connection, account: str) -> list[Run]:
    """Return the runs of an account whose rows are not in the index yet: those of older files, oldest first."""
    found = rows(connection, _SQL["runs_to_index"], account=account)
    return [run_by_number(connection, row["number"]) for row in found]


def mark_indexed(connection: apsw.Connection, run: Run) -> None:
    """Note that all rows of the run's pull are in the index."""
    change(connection, _SQL["mark_indexed"], pull=run.pull, run=run.number)


def passed_over_ids(connection: apsw.Connection, run: Run) -> set[str]:
    """Return the rows of the run's own day that it passed over, for somebody else had dealt with them."""
    return {row["transaction_id"] for row in rows(connection, _SQL["moved_rows_of"], run=run.number)}
