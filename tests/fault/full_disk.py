"""A disk that is full when a test says so: the database's writer meets SQLite's own error, statement by statement."""

import apsw

from paykit_settle.store.store import Store

WRITING = ("INSERT", "UPDATE", "DELETE")


class Disk:
    """The disk under one store: `fill` makes every statement that writes fail, or only those that begin so; `empty`."""

    def __init__(self, store: Store) -> None:
        self._full_for: tuple[str, ...] = ()
        store.submit(lambda connection: connection.set_exec_trace(self._trace)).result()

    def fill(self, *beginnings: str) -> None:
        self._full_for = beginnings or WRITING

    def empty(self) -> None:
        self._full_for = ()

    def _trace(self, _cursor: object, sql: str, _bindings: object) -> bool:
        lines = [line for line in sql.strip().splitlines() if not line.startswith("--")]
        if self._full_for and "\n".join(lines).lstrip().upper().startswith(self._full_for):
            raise apsw.FullError("database or disk is full")
        return True
