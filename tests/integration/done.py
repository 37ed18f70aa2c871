"""A command that has ended, as tests of the command line look at it."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """Its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> list[dict[str, Any]]:
        """Each line of its output, as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]
