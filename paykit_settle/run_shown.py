"""One run as machines are shown it: in a list, and by itself with its settlement. Pure over what was stored."""

from datetime import UTC, datetime
from typing import Any

from paykit_settle.lifecycle import State
from paykit_settle.models import RowGroup
from paykit_settle.report import settlement_json
from paykit_settle.store.history import History
from paykit_settle.store.runs import Run


def run_summary(run: Run) -> dict[str, Any]:
    """One run in a list."""
    return {
        "run_id": run.id,
        "settlement_id": run.settlement_id,
        "state": str(run.state),
        "account": run.account,
        "date": run.date.isoformat(),
        "settlement_currency": run.settlement_currency,
        "error": run.error_code,
        **({"attention": run.attention} if run.attention else {}),
    }


def run_json(history: History) -> dict[str, Any]:
    """The run's state and, once it is frozen, its settlement: what `show` and `GET /settlements/{id}` give."""
    run, attempt = history.run, history.attempt
    shown: dict[str, Any] = {
        "run_id": run.id,
        "state": str(run.state),
        "account": run.account,
        "tenant": run.tenant,
        "date": run.date.isoformat(),
        "zone": run.zone,
        "settlement_currency": run.settlement_currency,
        "settlement_id": run.settlement_id,
        "attempt": run.attempt,
        "requested_by": run.requested_by,
        "created_at": time_text(run.created_at_ms),
        "changed_at": time_text(run.changed_at_ms),
        "error": run.error_code,
        "detail": run.error_detail,
        **({"retry_at": time_text(run.retry_at_ms)} if run.retry_at_ms is not None else {}),
        **({"needs_person": True} if run.needs_person else {})
        | ({"attention": run.attention} if run.attention else {}),
        **({"covers": run.covers} if run.covers else {}),
    }
    if run.state is State.PULLING:
        own = [page for page in history.pages if page.period == run.date.isoformat() and page.is_counted]
        shown["progress"] = {
            "rows": sum(page.row_count for page in own),
            "pages": len(own),
            "windows": sum(window.period == run.date.isoformat() for window in history.windows),
        }
    if attempt is not None:
        shown |= settlement_json(attempt.settlement)
        shown |= {
            "status": attempt.status,
            "idempotency_key": attempt.idempotency_key,
            "body_sha256": attempt.body_sha256,
            "categories": [group_json(group) for group in attempt.settlement.roll_up.settled],
        }
    return shown


def group_json(group: RowGroup) -> dict[str, Any]:
    """A group of rows of one kind."""
    return {
        "currency": group.currency,
        "type": group.type,
        "reporting_category": group.reporting_category,
        "count": group.count,
        "charged": group.charged,
        "refunded": group.refunded,
        "fees": group.fees,
        "net": group.net,
    }


def time_text(at_ms: int | None) -> str | None:
    """A time in UTC, None for none."""
    return None if at_ms is None else datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
