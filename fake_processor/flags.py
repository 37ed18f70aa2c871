"""The flags of `python -m fake_processor`, and what they ask to be served."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Sequence

from fake_processor.fault_catalogue import fault_kind
from fake_processor.generated import generated_state
from fake_processor.generator import LAST_DAY, Plan
from fake_processor.state import ProcessorState

PORT_DEFAULT = 8787
DEFAULTS = Plan()


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line; each flag says what it does and what it is without it."""
    parser = argparse.ArgumentParser(
        prog="python -m fake_processor", description="A payment processor for tests, on a local socket."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=_port, default=PORT_DEFAULT, help="port, 0 for a free one (default: %(default)s)"
    )
    data = parser.add_argument_group("generated data, in place of the fixtures")
    data.add_argument("--transactions", type=int, metavar="N", help="how many rows; asking for it turns this on")
    data.add_argument("--seed", type=int, default=1, help="the same seed gives the same bytes (default: %(default)s)")
    data.add_argument("--days", type=int, default=DEFAULTS.days, help="days they lie in (default: %(default)s)")
    data.add_argument(
        "--currencies",
        type=_codes,
        default=DEFAULTS.currencies,
        help=f"codes with commas between, the main one first (default: {','.join(DEFAULTS.currencies)})",
    )
    data.add_argument("--last-day", type=_day, default=LAST_DAY, help="the newest day (default: %(default)s)")
    faults = parser.add_argument_group("misbehaviour from the start (more by POST /_fake/faults)")
    faults.add_argument("--fault", action="append", default=[], type=_fault, metavar="NAME", help="a fault; repeatable")
    faults.add_argument(
        "--fault-per-mille",
        type=int,
        default=1000,
        metavar="N",
        help="the chance of each, in a thousand, by --seed (default: %(default)s)",
    )
    oracle = parser.add_argument_group("the right settlement of a day, printed in place of serving")
    oracle.add_argument("--settlement", metavar="DATE", help="the day, as 2026-01-15")
    oracle.add_argument("--account", default="acct_123", help="whose (default: %(default)s)")
    oracle.add_argument("--settlement-currency", default="usd", metavar="CODE", help="in (default: %(default)s)")
    return parser


def read_state(options: argparse.Namespace) -> ProcessorState | None:
    """Generated data when it is asked for, else None. ValueError for a plan that cannot be."""
    if options.transactions is None:
        return None
    plan = Plan(
        seed=options.seed,
        transactions=options.transactions,
        days=options.days,
        currencies=options.currencies,
        last_day=options.last_day,
    )
    return generated_state(plan, account=options.account, prepared=True)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"{text} is no port (0 to 65535)")
    return int(text)


def _fault(text: str) -> str:
    try:
        return fault_kind(text).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _codes(text: str) -> Sequence[str]:
    return tuple(code.strip().lower() for code in text.split(","))


def _day(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no date like 2026-01-15") from None
