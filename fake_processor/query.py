"""Reads query parameters as strictly as the processor does.

Every parameter is known, given once and not empty, or the request is refused with the parameter's
name. It must never fall back to a default when a value was given: a client that sends a wrong limit
has to hear of it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence

from fake_processor.listing import PageQuery
from fake_processor.wire import invalid

LIMIT_DEFAULT = 10
LIMIT_MAX = 100
DAY_S = 86_400

BALANCE_TRANSACTION_PARAMETERS = frozenset(
    {"account", "limit", "starting_after", "ending_before", "currency", "type", "source", "payout", "created"}
    | {f"created[{bound}]" for bound in ("gte", "gt", "lt", "lte")}
)

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CURRENCY = re.compile(r"[a-z]{3}")
_EXPAND = re.compile(r"expand\[[0-9]{0,3}\]")


def read_parameters(pairs: Sequence[tuple[str, str]], *, known: frozenset[str]) -> dict[str, str]:
    """The parameters by name. An unknown, repeated or empty one is refused (400)."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise invalid(f"Received unknown parameter: {name}", param=name, code="parameter_unknown")
        if name in found:
            raise invalid(f"Parameter {name} was given more than once.", param=name, code="parameters_exclusive")
        if value == "":
            raise invalid(f"Parameter {name} is empty.", param=name, code="parameter_invalid_empty")
        found[name] = value
    return found


def split_expand(
    pairs: Sequence[tuple[str, str]], *, known: frozenset[str]
) -> tuple[list[tuple[str, str]], frozenset[str]]:
    """The other parameters, and what is to be expanded. 400 for a property that cannot be."""
    wanted = [(name, value) for name, value in pairs if name.startswith("expand") and _EXPAND.fullmatch(name)]
    if not wanted:
        return list(pairs), frozenset()
    for name, value in wanted:
        if value not in known:
            raise invalid(f"This property cannot be expanded ({value}).", param=name)
    return [pair for pair in pairs if pair not in wanted], frozenset(value for _, value in wanted)


def page_query(parameters: Mapping[str, str]) -> PageQuery:
    """What to list: at most `limit` rows from a cursor on, filtered by time, currency, type, source and payout.

    `created` is one whole UTC day (`2026-01-15`), one second, or a range of `created[gte]` and its
    kin in unix seconds.
    """
    if "starting_after" in parameters and "ending_before" in parameters:
        raise invalid(
            "You may only specify one of these parameters: starting_after, ending_before.",
            param="ending_before",
            code="parameters_exclusive",
        )
    start_s, end_s = _created_window(parameters)
    return PageQuery(
        limit=_limit(parameters.get("limit")),
        starting_after=parameters.get("starting_after"),
        ending_before=parameters.get("ending_before"),
        start_s=start_s,
        end_s=end_s,
        currency=read_currency(parameters["currency"], param="currency") if "currency" in parameters else None,
        type=parameters.get("type"),
        source=parameters.get("source"),
        payout=parameters.get("payout"),
    )


def _limit(text: str | None) -> int:
    if text is None:
        return LIMIT_DEFAULT
    limit = _integer(text, param="limit")
    if limit < 1:
        raise _out_of_range("limit", f"greater than or equal to 1 (it currently is '{text}')")
    if limit > LIMIT_MAX:
        raise _out_of_range("limit", f"less than or equal to {LIMIT_MAX} (it currently is '{text}')")
    return limit


def _out_of_range(param: str, rule: str) -> Exception:
    return invalid(f"This value must be {rule}.", param=param, code="parameter_invalid_integer")


def _created_window(parameters: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The half-open range of seconds `[start, end)` that all given bounds agree on; None is open."""
    starts: list[int] = []
    ends: list[int] = []
    # gt n is gte n + 1 and lte n is lt n + 1, because `created` has whole seconds only.
    for param, limits, step in (
        ("created[gte]", starts, 0),
        ("created[gt]", starts, 1),
        ("created[lt]", ends, 0),
        ("created[lte]", ends, 1),
    ):
        if param in parameters:
            limits.append(_integer(parameters[param], param=param) + step)
    if "created" in parameters:
        if starts or ends:
            raise invalid(
                "created is given both as a value and as a range.",
                param="created",
                code="parameters_exclusive",
            )
        return _whole(parameters["created"])
    return max(starts, default=None), min(ends, default=None)


def _whole(text: str) -> tuple[int, int]:
    if _INTEGER.fullmatch(text):
        return int(text), int(text) + 1
    day = read_date(text, param="created")
    start = dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC)
    start_s = int((start - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).total_seconds())
    return start_s, start_s + DAY_S


def _integer(text: str, *, param: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise invalid(f"Invalid integer: {text}", param=param, code="parameter_invalid_integer")
    return int(text)


def read_date(text: object, *, param: str) -> dt.date:
    """A calendar date written `YYYY-MM-DD`, or a refusal that names `param`."""
    if isinstance(text, str) and _DATE.fullmatch(text):
        try:
            return dt.date.fromisoformat(text)
        except ValueError:
            pass  # February 30 looks like a date and is none: the same refusal
    raise invalid(f"Invalid date, expected YYYY-MM-DD: {text}", param=param)


def read_currency(text: object, *, param: str) -> str:
    """A three-letter code in lower case; the wire knows no other form."""
    if isinstance(text, str) and _CURRENCY.fullmatch(text):
        return text
    raise invalid(f"Invalid currency: {text}. It must be a three-letter ISO code, in lowercase.", param=param)
