"""The settlements that a processor holds, in the order they came, and how they are looked up.

It keeps what it is given, two for one day as well. A settlement that is taken away was never there, for all who look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fake_processor.clock import Clock
from fake_processor.wire import invalid

Settlement = dict[str, object]


class LookUp(NamedTuple):
    """What is looked up; None stands for all. `written_by_ns`: only what was there by that time of the fake's clock."""

    account: str | None = None
    date: str | None = None
    limit: int | None = None
    starting_after: str | None = None
    written_by_ns: int | None = None


class SettlementBook:
    """The settlements of one processor; those that it gives are copies."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, tuple[int, Settlement]] = {}  # id → when it was written, and what
        self._ids_made = 0

    def next_id(self) -> str:
        """An id that no settlement had before, nor one that was taken away."""
        self._ids_made += 1
        return f"setl_{self._ids_made:04d}"

    def add(self, settlement: Mapping[str, object]) -> None:
        """Write one down. ValueError when its id is taken."""
        settlement_id = str(settlement["id"])
        if settlement_id in self._entries:
            raise ValueError(f"there is a settlement {settlement_id} already")
        self._entries[settlement_id] = (self._clock.now_ns, dict(settlement))

    def remove(self, settlement_id: str) -> Settlement:
        """Take one away, and give it back. KeyError when there is none of that id."""
        return self._entries.pop(settlement_id)[1]

    def find(self, settlement_id: str) -> Settlement | None:
        """The settlement of that id, or None."""
        found = self._entries.get(settlement_id)
        return None if found is None else dict(found[1])

    def page(self, look_up: LookUp) -> tuple[list[Settlement], bool]:
        """The settlements looked up, oldest first, and whether there are more. Refusal: 400 for an unknown cursor."""
        ids, first = list(self._entries), 0
        if look_up.starting_after is not None:
            if look_up.starting_after not in self._entries:
                message = f"No such settlement: '{look_up.starting_after}'"
                raise invalid(message, param="starting_after", code="resource_missing")
            first = ids.index(look_up.starting_after) + 1
        entries = (self._entries[settlement_id] for settlement_id in ids[first:])
        found = [dict(settlement) for written_ns, settlement in entries if _is_wanted(settlement, written_ns, look_up)]
        limit = len(found) if look_up.limit is None else look_up.limit
        return found[:limit], len(found) > limit


def _is_wanted(settlement: Settlement, written_ns: int, look_up: LookUp) -> bool:
    return (
        look_up.account in (None, settlement["account"])
        and look_up.date in (None, settlement["date"])
        and (look_up.written_by_ns is None or written_ns <= look_up.written_by_ns)
    )
