"""What a fault is, as data: its name, where it acts, its options and what they may be.

The catalogue is a list of these. Nothing here knows a single fault, nor does anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Stage = Literal[
    "wait", "limit", "refuse", "before", "after", "truth", "list", "lookup", "page", "rates", "body", "send"
]
"""Where a fault acts: waits first; limits and refusals instead of an answer; `before` and `after` the effect; `truth`
changes the data; `list` and `lookup` change what is read of it; `page` and `rates` change an answer of that kind,
`body` the bytes of any, `send` how they travel."""

LIST = "GET /v1/balance_transactions"
ROWS = "GET /v1/balance_transactions*"  # in lists and by id
ONE_ROW = "GET /v1/balance_transactions/*"
RATES = "GET /v1/fx/rates"
POST = "POST /v1/settlements"
LOOK_UP = "GET /v1/settlements"
ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One way to misbehave: `route` is where it acts unless told otherwise, `options` are its settings' defaults.

    `choices` are all that an option may be, where they are few; `lowest` is its least number, where that is not 0.
    """

    name: str
    stage: Stage
    description: str
    route: str = ANY
    options: Mapping[str, int | str] = field(default_factory=dict)
    choices: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    lowest: Mapping[str, int] = field(default_factory=dict)

    def check(self, option: str, value: object) -> None:
        """ValueError, with what it may be, for an option that this fault has not, or a value that it cannot have."""
        if option not in self.options:
            known = ", ".join(self.options) or "none"
            raise ValueError(f"fault {self.name} has no option {option!r:.60}; its options: {known}")
        default, lowest = self.options[option], self.lowest.get(option, 0)
        if type(value) is not type(default) or (isinstance(value, int) and value < min(lowest, 0)):
            raise ValueError(f"option {option} must be like {default!r}")
        if isinstance(value, int) and value < lowest:
            raise ValueError(f"option {option} of {self.name} must be {lowest} or more")
        if option in self.choices and value not in self.choices[option]:
            known = ", ".join(str(choice) for choice in self.choices[option])
            raise ValueError(f"option {option} of {self.name} must be one of {known}, not {value!r:.60}")
