"""Ids as hashes: every repeat is found, a row that was left to others and counted by nobody too, and little is kept.

Without it, a row that came on two pages would be settled twice, or one that each window left to the other not at all.
"""

from paykit_settle.id_hashes import IdHashes


def test_hashes_of_ids_find_every_repeat_and_nothing_else() -> None:
    ids = IdHashes()
    ids.add(f"t{number}" for number in range(10_000))
    assert ids.repeated() == set()
    ids.add(["t7", "t9999", "t7", "new"])
    assert ids.repeated() == {hash("t7"), hash("t9999")}


def test_ids_that_others_should_have_counted_are_looked_for_among_all() -> None:
    counted, cut = IdHashes(), IdHashes()
    counted.add(f"t{number}" for number in range(1_000))
    assert not counted.lacks_any(cut)
    cut.add(["t7", "t999", "t7"])
    assert not counted.lacks_any(cut)
    cut.add(["t1000"])
    assert counted.lacks_any(cut)
    assert cut.lacks_any(counted)


def test_id_is_found_by_its_hash() -> None:
    ids = IdHashes(hash_of=len)
    ids.add(["a", "bcd"])
    assert "z" in ids
    assert "zz" not in ids
    assert ids.repeated() == set()
    ids.add(["xyz"])
    assert ids.repeated() == {3}


def test_hashes_come_in_order_each_once_and_so_many_at_a_time() -> None:
    numbers = {"a": -(2**63), "b": 2**63 - 1, "c": 0, "d": -1, "e": 5, "f": 2**60}
    hashes = IdHashes(hash_of=numbers.__getitem__)
    hashes.add(["e", "a", "b", "c", "d", "f", "e"])
    batches = list(hashes.in_order(4))
    assert [number for batch in batches for number in batch] == sorted(numbers.values())
    assert [len(batch) for batch in batches] == [4, 2]
    assert list(IdHashes().in_order(4)) == []
