"""Finds the rows of a run's own day that are dealt with already: held by another run, or written off by a person.

They are passed over, whatever day they claim now. Digests are compared first; each hit is confirmed by the exact id.
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial

import apsw

from paykit_settle.accumulator import Accumulator
from paykit_settle.paging import Rows
from paykit_settle.store.differences import live_ids
from paykit_settle.store.earlier_plan import all_written_off, owed_ids
from paykit_settle.store.elsewhere import expected_on
from paykit_settle.store.runs import Run
from paykit_settle.store.settled import (
    IDS_PER_BATCH,
    Holder,
    find_digests,
    frozen_count,
    holders,
    mark_indexed,
    runs_to_index,
    settled_ids_of,
    write_digests,
)
from paykit_settle.store.store import Store

StoredRows = Callable[[apsw.Connection], Iterator[Rows]]


async def index_older_runs(store: Store, account: str, digest: Callable[[str], int]) -> None:
    """Write the digests of runs that older versions settled, in batches; those of one run are written once."""
    for run in await store.read(partial(runs_to_index, account=account)):
        digests = await store.read(partial(_digests_of, run=run, digest=digest))
        for start in range(0, len(digests), IDS_PER_BATCH):
            await store.write(partial(write_digests, run=run, digests=digests[start : start + IDS_PER_BATCH]))
        await store.write(partial(mark_indexed, run=run))


def _digests_of(connection: apsw.Connection, run: Run, digest: Callable[[str], int]) -> list[int]:
    return sorted({digest(identity) for identity in settled_ids_of(connection, run)})


class OwnIds:
    """The ids of a run's own day, once it was read whole: written to the index, and held against what others hold."""

    def __init__(self, store: Store, run: Run, own: Accumulator, stored_rows: StoredRows) -> None:
        self._store = store
        self._run = run
        self._own = own
        self._stored_rows = stored_rows
        self._digest = own.ids.hash_of
        self._pending = {row.id for row in own.pending_rows}
        self._first: tuple[set[int], int] | None = None

    async def write(self) -> None:
        """Put every row that is not owed into the index; it counts once the run is frozen."""
        count = await self._store.read(partial(frozen_count, run=self._run))
        owed = {self._digest(identity) for identity in self._pending}
        hits = await self._store.read(partial(find_digests, run=self._run, digests=sorted(owed)))
        for batch in self._own.ids.in_order(IDS_PER_BATCH):
            digests = [digest for digest in batch if digest not in owed]
            hits |= await self._store.write(partial(write_digests, run=self._run, digests=digests))
        self._first = hits, count

    async def held(self) -> tuple[dict[str, Holder | None], int]:
        """Return the rows that are dealt with, with the run that holds each (None: written off), and a count.

        The count grows with every freeze of another run of the account: unchanged, the answer still holds.
        """
        hits, count = await self._hits()
        written_off = await self._store.read(partial(all_written_off, account=self._run.account))
        suspects = {identity for identity in written_off if identity in self._own.ids}
        if not hits and not suspects:
            return {}, count
        ids = await self._store.read(lambda connection: self._ids(connection, hits, suspects))
        found: dict[str, Holder | None] = dict.fromkeys(ids & suspects)
        exact = await self._store.read(partial(holders, run=self._run, ids=ids, digest=self._digest))
        return found | exact, count

    async def _hits(self) -> tuple[set[int], int]:
        """The digests that other runs have too, and the count; the first time as they were found when writing."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        count = await self._store.read(partial(frozen_count, run=self._run))
        hits: set[int] = set()
        for batch in self._own.ids.in_order(IDS_PER_BATCH):
            hits |= await self._store.read(partial(find_digests, run=self._run, digests=batch))
        return hits, count

    async def among(self, ids: set[str]) -> set[str]:
        """Return those of the ids that stand on the run's own day, settled or owed there."""
        suspects = {identity for identity in ids if identity in self._own.ids}
        if not suspects:
            return set()
        return await self._store.read(lambda connection: self._ids(connection, set(), suspects))

    async def owed(self) -> list[str]:
        """Return the rows of the day that the account owes, and that are settled with it now."""
        owed = await self._store.read(partial(owed_ids, account=self._run.account))
        return sorted(await self.among({identity for identity in owed if identity not in self._pending}))

    async def known_otherwise(self, moved: Collection[str]) -> tuple[set[str], set[str]]:
        """Return rows of the day that are not passed over and have an open difference, and rows that it had once.

        The latter are rows of other days that this one was the last to show, and shows no more.
        """
        account = self._run.account
        live = await self._store.read(partial(live_ids, account=account))
        expected = await self._store.read(partial(expected_on, account=account, day=self._run.date))
        return await self.among(live) - set(moved), expected - await self.among(expected)

    def _ids(self, connection: apsw.Connection, hits: set[int], suspects: set[str]) -> set[str]:
        found: set[str] = set()
        for rows in self._stored_rows(connection):
            found |= {row.id for row in rows if row.id in suspects or self._digest(row.id) in hits}
        return found
