"""Named queries, read from the SQL files beside this module: SQL lives in files, Python only names it.

A part that several queries of a file share (the columns of a table, say) is written once, under `-- part: NAME`, and
stands as `{NAME}` where it belongs.
"""

import re
from functools import cache
from importlib.resources import files

_HEAD = re.compile(r"^-- (name|part): (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_PART = re.compile(r"\{(\w+)\}")


@cache
def load_queries(file_name: str) -> dict[str, str]:
    """Return the queries of one file of `sql/`, by name: the text between one name and the next, without comments."""
    text = read_sql(file_name)
    pieces = _HEAD.split(text)[1:]
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for kind, name, sql in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        found[kind][name] = _COMMENT.sub("", sql).strip()
    return {name: _PART.sub(lambda part: found["part"][part[1]], sql) for name, sql in found["name"].items()}


def read_sql(file_name: str) -> str:
    """The text of one file of `sql/`, with the line ends it was written with."""
    return (files(__package__) / "sql" / file_name).read_text(encoding="utf-8")
