"""What a run is asked for: account, date, settlement currency; read from JSON or from arguments, checked once."""

import unicodedata
from dataclasses import dataclass
from datetime import date as Date

from paykit_settle.errors import InvalidRequest
from paykit_settle.faults import FieldError
from paykit_settle.money import canonical_currency
from paykit_settle.strict_json import Required, json_type, read_fields
from paykit_settle.window import parse_date

NAME_LENGTH_MAX = 255
REASON_LENGTH_MAX = 1_000
"""Characters of the reason that a person gives."""

# What a terminal or a log would act on rather than show: control, half characters, line ends, and turns of direction.
_NOT_TEXT = {"Cc", "Cs", "Zl", "Zp"}
_DIRECTIONS = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
DAY_MIN = Date(1990, 1, 1)
"""The first day that can be settled; an earlier one was mistyped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One account's day, to be settled in one currency (canonical form)."""

    account: str
    date: Date
    settlement_currency: str = "usd"


def read_run_request(value: object) -> RunRequest:
    """A run request from its parsed JSON; `InvalidRequest` names every missing, wrong or unknown field."""
    members = read_fields(
        value,
        {
            "account": (check_name, Required),
            "date": (read_day, Required),
            "settlement_currency": (canonical_currency, "usd"),
        },
    )
    return RunRequest(**members)  # type: ignore[arg-type]  # the readers above give these very types


def read_posted_request(value: object) -> tuple[RunRequest, bool]:
    """A run request, and its `retry_rejected` (default false): whether a rejected day may be tried anew."""
    rest = dict(value) if isinstance(value, dict) else value
    retry = rest.pop("retry_rejected", False) if isinstance(rest, dict) else False
    if not isinstance(retry, bool):
        fault = FieldError(field="retry_rejected", detail=f"must be true or false, got {json_type(retry)}")
        raise InvalidRequest(f"{fault.field} {fault.detail}", fields=[fault])
    return read_run_request(rest), retry


def make_run_request(account: str, date: Date | str, settlement_currency: str) -> RunRequest:
    """The same from Python values; `InvalidRequest` names every wrong one."""
    text = date.isoformat() if isinstance(date, Date) else date
    return read_run_request({"account": account, "date": text, "settlement_currency": settlement_currency})


def read_day(value: object) -> Date:
    """Return a day that can be settled; `ValueError` for one before 1990, which is a mistype."""
    day = parse_date(value)
    if day < DAY_MIN:
        raise ValueError(f"must not be before {DAY_MIN.isoformat()}: {day.isoformat()} is a mistype")
    return day


def check_name(value: object) -> str:
    """An account's name: 1 to 255 characters, none of them a control character; `ValueError` otherwise."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, got {json_type(value)}")
    if not 1 <= len(value) <= NAME_LENGTH_MAX or not value.strip():
        raise ValueError(f"must be 1 to {NAME_LENGTH_MAX} characters, not all blank")
    if any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000 for char in value):
        raise ValueError("must hold no control character")
    return value


def check_decision(*, by: str, reason: str | None = None) -> None:
    """Refuse (`InvalidRequest`) who or why when it is blank, too long, or holds control characters; None: no reason."""
    check_text("who decides", by)
    if reason is not None:
        check_text("the reason", reason, length_max=REASON_LENGTH_MAX)


def check_text(what: str, text: str, *, length_max: int = NAME_LENGTH_MAX) -> None:
    """Refuse (`InvalidRequest`) a text that a person gives when it is blank, too long, or holds control characters."""
    if len(text) > length_max or all(unicodedata.category(char)[0] in "CZ" for char in text):
        raise InvalidRequest(f"{what} must be 1 to {length_max} characters, not all blank")
    if any(unicodedata.category(char) in _NOT_TEXT or char in _DIRECTIONS for char in text):
        raise InvalidRequest(f"{what} must hold no control character")
