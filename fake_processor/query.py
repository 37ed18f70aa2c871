"""Reads query parameters as strictly as the processor does.

Every parameter is known, given once and not empty, or the request is refused with the parameter's
name. It must never fall back to a default when a value was given: a client that sends a wrong limit
has to hear of it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fake_processor.listing import PageQuery
from fake_processor.wire import invalid

LIMIT_DEFAULT = 10
LIMIT_MAX = 100
DAY_S = 86_400

CREATED_PARAMETERS = ("created[gte]", "created[gt]", "created[lt]", "created[lte]", "created")
BALANCE_TRANSACTION_PARAMETERS = frozenset(
    {"account", "limit", "starting_after", "ending_before", "currency", "type", "source", "payout", *CREATED_PARAMETERS}
)

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CURRENCY = re.compile(r"[a-z]{3}")
_EXPAND = re.compile(r"expand\[[0-9]{0,3}\]")


def read_parameters(pairs: Sequence[tuple[str, str]], *, known: frozenset[str]) -> dict[str, str]:
    """The parameters by name. An unknown, repeated or empty one is refused (400)."""
    found = plain_parameters(pairs, known=known)
    if found is not None:
        return found
    found = {}
    for name, value in pairs:
        if name not in known:
            raise invalid(f"Received unknown parameter: {name}", param=name, code="parameter_unknown")
        if name in found:
            raise invalid(f"Parameter {name} was given more than once.", param=name, code="parameters_exclusive")
        if value == "":
            raise invalid(f"Parameter {name} is empty.", param=name, code="parameter_invalid_empty")
        found[name] = value
    return found


def plain_parameters(pairs: Sequence[tuple[str, str]], *, known: frozenset[str]) -> dict[str, str] | None:
    """The parameters by name when nothing is wrong with them, as with most; else None."""
    found = dict(pairs)
    return found if len(found) == len(pairs) and found.keys() <= known and "" not in found.values() else None


def split_expand(
    pairs: Sequence[tuple[str, str]], *, known: frozenset[str]
) -> tuple[Sequence[tuple[str, str]], frozenset[str]]:
    """The other parameters, and what is to be expanded. 400 for a property that cannot be."""
    wanted = [pair for pair in pairs if pair[0].startswith("expand") and _EXPAND.fullmatch(pair[0])]
    if not wanted:
        return pairs, frozenset()
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
    given = parameters.get
    start_s, end_s = _created_window(*map(given, CREATED_PARAMETERS))
    return PageQuery(
        limit=read_limit(given("limit")),
        starting_after=given("starting_after"),
        ending_before=given("ending_before"),
        start_s=start_s,
        end_s=end_s,
        currency=read_currency(parameters["currency"], param="currency") if "currency" in parameters else None,
        type=given("type"),
        source=given("source"),
        payout=given("payout"),
    )


# All pages of a window ask for the same limit and the same time, so what these texts mean is remembered.
@lru_cache(maxsize=256)
def read_limit(text: str | None) -> int:
    """How many rows a page may have, 10 when nothing is said. Refusal: 400 for a limit outside of 1 to 100."""
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


@lru_cache(maxsize=256)
def _created_window(*texts: str | None) -> tuple[int | None, int | None]:
    """The half-open range of seconds `[start, end)` that all given bounds agree on; None is open.

    `texts` are the values of CREATED_PARAMETERS, None for those not given.
    """
    starts: list[int] = []
    ends: list[int] = []
    *bounds, whole = texts
    # gt n is gte n + 1 and lte n is lt n + 1, because `created` has whole seconds only.
    kinds = ((starts, 0), (starts, 1), (ends, 0), (ends, 1))
    for param, text, (limits, step) in zip(CREATED_PARAMETERS, bounds, kinds, strict=False):
        if text is not None:
            limits.append(_integer(text, param=param) + step)
    if whole is not None:
        if starts or ends:
            raise invalid(
                "created is given both as a value and as a range.",
                param="created",
                code="parameters_exclusive",
            )
        return _whole(whole)
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
