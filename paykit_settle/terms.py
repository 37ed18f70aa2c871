"""The terms of a run: everything that decides its rows and amounts beside its window, kept with the claim.

Pure. Whoever goes on with a run uses the terms that it was begun on; what differs in his own settings is named.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

RowsWithoutCreated = Literal["refuse", "accept"]
"""What becomes of a day whose rows have no `created` when the processor does not filter by it."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are read and amounts computed: wire scales by currency, the base of the rates, a rate table's age."""

    scales: Mapping[str, int]
    rates_base: str
    rate_age_max_h: int
    rate_ahead_max_h: int
    rows_without_created: RowsWithoutCreated = "refuse"

    def encode(self) -> str:
        """Return the terms as JSON, in one spelling."""
        return msgspec.json.encode(self, order="sorted").decode()

    @classmethod
    def decode(cls, text: str) -> "Terms":
        """Return the terms that `encode` wrote."""
        return msgspec.json.decode(text, type=cls)

    def shown(self) -> dict[str, object]:
        """Return the terms as JSON values, by the names of their settings."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def differing(own: Terms, others: Terms) -> list[str]:
    """Return what a run's own terms have where another's settings differ, as `name = own, not other`."""
    return [
        f"{name} = {_text(getattr(own, name))}, not {_text(getattr(others, name))}"
        for name in own.__struct_fields__
        if getattr(own, name) != getattr(others, name)
    ]


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={number}" for name, number in sorted(value.items())) or "none"
    return str(value)
