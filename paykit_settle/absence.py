"""When a key counts as spent, and since when the processor has nothing. Pure; times are unix milliseconds.

A list of settlements may lag behind what was written. So one that is empty is believed only when it was empty before,
long enough ago, and nothing was sent in between.
"""

KEY_KEPT_MS = 23 * 3600 * 1000
"""How long an idempotency key is trusted. A processor keeps it for 24 hours: the rest is for clocks and retries."""
CLOCK_SLACK_MS = 10 * 60 * 1000
"""How far a clock may have been set back: a send from further ahead is of an age that nobody knows."""


def is_spent(since_ms: int | None, *, now_ms: int) -> bool:
    """Whether a key that was first used then is too old to be sent again; None: it was not used."""
    return since_ms is not None and not -CLOCK_SLACK_MS <= now_ms - since_ms <= KEY_KEPT_MS


def empty_since(first_empty_at_ms: int | None, *, now_ms: int) -> int:
    """Since when the list is known to be empty, now that it is again; a time in the future counts as none."""
    return now_ms if first_empty_at_ms is None or first_empty_at_ms > now_ms else first_empty_at_ms
