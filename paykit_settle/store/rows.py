"""Rows by the names of their columns: a statement names its parameters and its columns, and nothing goes by position.

A column that is added to a table therefore changes no statement, and shifts no value into another's place.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apsw


def rows(connection: apsw.Connection, sql: str, **parameters: object) -> list[dict[str, Any]]:
    """Return all rows of a statement, each as a mapping from column to value."""
    cursor = connection.cursor()
    cursor.row_trace = _by_name
    return list(cursor.execute(sql, parameters))


def stream(connection: apsw.Connection, sql: str, **parameters: object) -> Iterator[dict[str, Any]]:
    """Yield the rows of a statement one at a time: there may be more than memory should hold."""
    cursor = connection.cursor()
    cursor.row_trace = _by_name
    yield from cursor.execute(sql, parameters)


def one(connection: apsw.Connection, sql: str, **parameters: object) -> dict[str, Any] | None:
    """Return the first row of a statement, or None when it has none."""
    found = rows(connection, sql, **parameters)
    return found[0] if found else None


def change(connection: apsw.Connection, sql: str, **parameters: object) -> int:
    """Execute a statement that writes, and return how many rows it changed."""
    before = connection.total_changes()
    connection.execute(sql, parameters)
    return connection.total_changes() - before


def change_many(connection: apsw.Connection, sql: str, parameters: Iterable[Mapping[str, object]]) -> None:
    """Execute a statement that writes once for each set of parameters."""
    connection.executemany(sql, parameters)


def _by_name(cursor: apsw.Cursor, row: tuple[Any, ...]) -> Any:
    return {name: value for (name, *_), value in zip(cursor.get_description(), row, strict=True)}
