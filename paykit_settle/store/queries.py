"""Named queries, read from the SQL files beside this module: SQL lives in files, Python only names it."""

import re
from functools import cache
from importlib.resources import files

_HEAD = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


@cache
def load_queries(file_name: str) -> dict[str, str]:
    """The queries of one file of `sql/`, by name: what stands between one name and the next, without comments."""
    text = read_sql(file_name)
    parts = _HEAD.split(text)[1:]
    return {name: _COMMENT.sub("", sql).strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def read_sql(file_name: str) -> str:
    """The text of one file of `sql/`, with the line ends it was written with."""
    return (files(__package__) / "sql" / file_name).read_text(encoding="utf-8")
