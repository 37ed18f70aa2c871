"""How a run stands whose outcome is open, or is another's, in a sentence for whoever has to go on with it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from paykit_settle.errors import OutcomeUnknown, SettlementConflict
from paykit_settle.found_settlements import FoundSettlement, SortedOut
from paykit_settle.store.runs import Run

IDS_NAMED_MAX = 3
"""Settlements of a day that are named in an error."""


def named(found: Sequence[FoundSettlement]) -> str:
    """Return the ids of settlements, the first few and how many more."""
    more = len(found) - IDS_NAMED_MAX
    return ", ".join(each.id for each in found[:IDS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def beside(others: Sequence[FoundSettlement]) -> str | None:
    """What somebody should look at although a run is posted: settlements of the day beside its own; None: none."""
    return f"the processor has other settlements for this day beside it: {named(others)}" if others else None


def conflict(run: Run, sorted_out: SortedOut) -> SettlementConflict:
    """The processor has only settlements that are not the current attempt's."""
    which = ""
    if sorted_out.earlier is not None:
        which = f", the one of attempt {sorted_out.earlier.number} ({sorted_out.earlier.key})"
    return SettlementConflict(
        f"the processor has another settlement for {run.account} on {run.date}: {named(sorted_out.others)}{which}; "
        "a person has to look"
    )


def waiting(run: Run, believed_at_ms: int) -> OutcomeUnknown:
    """Nothing is there, which is not believed before that time."""
    at = datetime.fromtimestamp(-(-believed_at_ms // 1000), UTC)
    return OutcomeUnknown(
        f"{run.id} was sent, its key is used up, and the processor does not show it, which is not believed at once: it "
        f"can go on at {at:%Y-%m-%d %H:%M:%S} UTC"
    )


def forgotten(run: Run) -> OutcomeUnknown:
    """The key is spent, and nobody can look."""
    return OutcomeUnknown(
        f"{run.id} may have been sent, its key cannot be used any more, and the processor lists no settlements: a "
        "person has to find out and resolve it"
    )


def worn_out(run: Run) -> OutcomeUnknown:
    """Key after key was taken, and nothing ever arrived."""
    return OutcomeUnknown(
        f"{run.id} was sent under {run.attempt} keys, and the processor kept nothing of any: a person has to find "
        "out why"
    )


def may_be_posted(run: Run) -> SettlementConflict:
    """A restored database may have forgotten it, and nobody can look."""
    return SettlementConflict(
        f"{run.account} on {run.date} may have been posted by a run that this restored database has forgotten, and the "
        "processor lists no settlements: make sure that it was not, and say so with --after-restore-checked, or "
        "resolve it"
    )
