"""Random numbers that are the same on every machine and need no state: a keyed hash of integers.

The mixing function is SplitMix64, on Python's exact integers. It must never use a float, nor anything
that depends on the order of calls.
"""

from __future__ import annotations

_MASK = 2**64 - 1


def mix(*key: int) -> int:
    """A number of 64 bits that follows from the key alone, however close another key is."""
    state = 0
    for part in key:
        state = (state + (part & _MASK) * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


class Dice:
    """A row of throws that follows from the key alone."""

    def __init__(self, *key: int) -> None:
        self._state = mix(*key)

    def below(self, bound: int) -> int:
        """A number from 0 to bound - 1."""
        state = self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return (state ^ (state >> 31)) % bound

    def between(self, low: int, high: int) -> int:
        """A number from low to high, both possible."""
        return low + self.below(high - low + 1)

    def hits(self, per_mille: int) -> bool:
        """True in that many of a thousand throws."""
        return self.below(1000) < per_mille
