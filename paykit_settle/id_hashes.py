"""The ids so far as 64-bit hashes, 8 bytes each: finds those that may have come twice without keeping any. Pure.

A hash raises a question and never answers it: whoever finds one twice looks at the rows themselves.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator

HashOf = Callable[[str], int]
"""A signed 64-bit hash of an id. The interpreter's is keyed anew in every process, so nobody can choose ids for it."""


class IdHashes:
    """The ids that were added, repeats included."""

    _BUCKETS = 256

    def __init__(self, *, hash_of: HashOf = hash) -> None:
        self.hash_of = hash_of
        self._buckets = [array("q") for _ in range(self._BUCKETS)]
        self._appends = [bucket.append for bucket in self._buckets]

    def add(self, ids: Iterable[str]) -> None:
        """Add ids, each as often as it comes."""
        appends = self._appends
        for number in map(self.hash_of, ids):
            appends[(number >> 56) + 128](number)

    def __contains__(self, identity: str) -> bool:
        number = self.hash_of(identity)
        return number in self._buckets[(number >> 56) + 128]

    def in_order(self, size: int) -> Iterator[list[int]]:
        """Yield the distinct hashes in order, so many at a time."""
        batch: list[int] = []
        for bucket in self._buckets:  # by their highest byte: each bucket's hashes are above those of the one before
            batch += sorted(set(bucket))
            while len(batch) >= size:
                yield batch[:size]
                del batch[:size]
        if batch:
            yield batch

    def repeated(self) -> set[int]:
        """Return the hashes that came more than once. One bucket at a time, so that memory stays small."""
        found: set[int] = set()
        for bucket in self._buckets:
            if len(distinct := set(bucket)) != len(bucket):
                for number in bucket:
                    found.add(number) if number not in distinct else distinct.remove(number)
        return found

    def lacks_any(self, other: "IdHashes") -> bool:
        """Return whether one of the other's ids, hashed alike, was never added here."""
        return any(
            wanted and not set(wanted) <= set(own) for own, wanted in zip(self._buckets, other._buckets, strict=True)
        )
