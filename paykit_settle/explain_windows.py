"""Shows that days were read whole: the windows that tile each of them, and whether each was read to its end.

It also says what is odd about a day itself. Pure.
"""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from paykit_settle.store.evidence import StoredWindow
from paykit_settle.store.history import History, PageDigest
from paykit_settle.terms import Terms


def windows_json(history: History) -> list[dict[str, Any]]:
    """The windows of the last pull as JSON values, by day and time."""
    return [_window_json(history, window) for window in history.windows]


def _window_json(history: History, window: StoredWindow) -> dict[str, Any]:
    pages = _pages_of(history, window)
    return {
        "period": window.period,
        "number": window.number,
        "start": _time(window.start_s),
        "end": _time(window.end_s),
        "pages": len(pages),
        "rows": sum(page.row_count for page in pages),
        "is_read": _is_read(history, window),
        "serial_reason": window.serial_reason,
    }


def windows_text(history: History) -> list[str]:
    """The proof that the days were read whole: their windows tile them, and each ended with no more rows to come."""
    lines = []
    for period in sorted({window.period for window in history.windows}):
        own = [window for window in history.windows if window.period == period]
        read = sum(_is_read(history, window) for window in own)
        gaps = sum(before.end_s != after.start_s for before, after in pairwise(own))
        meet = "tile the day" if not gaps else f"leave {gaps} gaps"
        why = f"; one list: {own[0].serial_reason}" if own[0].serial_reason else ""
        lines.append(f"  {period} windows {len(own)}: they {meet}, {read} read to the end{why}")
    return lines


def day_json(history: History) -> dict[str, Any]:
    """Return what the run was settled on, and what is odd about its day, as JSON values."""
    run = history.run
    return {
        "processor": run.processor_url,
        "key_mode": run.key_mode,
        "terms": Terms.decode(run.terms).shown() if run.terms is not None else None,
        "rates_given": run.rates_given is not None,
        "gap_before_s": history.gap_before_s,
        "warnings": day_warnings(history),
    }


def day_warnings(history: History) -> list[str]:
    """Return what there is to say about the day and its account, beside the settlement."""
    run, account = history.run, history.account
    notes = []
    if run.window.odd_length:
        notes.append(run.window.odd_length)
    if history.gap_before_s:
        minutes = history.gap_before_s // 60
        notes.append(
            f"no run's window holds the {minutes // 60} h {minutes % 60} min before it: an older version left them "
            "after a change of zone; their rows are taken in as late rows of this day"
        )
    if account is not None and account.disagreement_text:
        notes.append(account.disagreement_text)
    return notes


def _is_read(history: History, window: StoredWindow) -> bool:
    pages = _pages_of(history, window)
    return bool(pages) and not pages[-1].has_more


def _pages_of(history: History, window: StoredWindow) -> list[PageDigest]:
    return [page for page in history.pages if (page.period, page.window) == (window.period, window.number)]


def _time(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
