"""Settlements that nobody here has sent, as another host or a person may have left them at the processor."""

from typing import Any

from fake_processor import FakeProcessor
from tests.fault.stage import ACCOUNT, DAY


def a_line(
    net: int, currency: str = "usd", converted: int | None = None, *, fees: int = 0, **members: object
) -> dict[str, Any]:
    """A line that adds up: a net of charges (or of refunds, below zero), exchanged as `converted` where it is given."""
    gross = net + fees
    parts = {"charged": max(gross, 0), "refunded": min(gross, 0), "fees": fees, "net": net}
    return {"currency": currency, **parts, "net_settlement": net if converted is None else converted, **members}


def foreign(
    fake: FakeProcessor, total: int, *lines: dict[str, Any], day: str = DAY, currency: str = "usd", **members: object
) -> str:
    """Puts a settlement there, with one line of its total unless lines are given; its id."""
    return fake.state.add_settlement(
        ACCOUNT,
        day,
        total_net=total,
        lines=list(lines or [a_line(total, currency)]),
        settlement_currency=currency,
        **members,
    )
