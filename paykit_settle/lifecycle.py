"""The life of a run as data: its states, and what may happen in each. A pair that is missing here is the error.

Pure. Whoever stores a state asks `next_state` first, so that no code path can move a run in a way nobody thought of.
"""

from enum import StrEnum

from paykit_settle.errors import InvariantViolated


class State(StrEnum):
    """Where a run is."""

    PULLING = "pulling"
    """Claimed; pages come in. Nothing was sent."""
    FROZEN = "frozen"
    """The settlement, its exact bytes and its key are stored; they may have been sent."""
    POSTED = "posted"
    """The processor has it and the ledger has booked it. Final."""
    FAILED = "failed"
    """Nothing was taken by the processor, and the content is not why: it may simply be run again."""
    REJECTED = "rejected"
    """The processor refused the content for certain; a new attempt only on request."""
    UNKNOWN = "unknown"
    """Sent, and no certain answer: the processor is asked before anything else happens."""


class Event(StrEnum):
    """What happens to a run."""

    FREEZE = "freeze"
    FAIL = "fail"
    ACCEPT = "accept"
    REJECT = "reject"
    LOSE = "lose"
    CLAIM = "claim"
    """Somebody takes it up, and its settlement is not frozen yet."""
    CLAIM_FROZEN = "claim frozen"
    """Somebody takes it up, and its settlement is frozen."""
    RETRY_REJECTED = "retry rejected"
    GIVE_BACK = "give back"
    """Whoever worked on it stops before its end; the next one goes on from there."""
    DECLARE_ABSENT = "declare absent"
    """A person says that the processor does not have it."""


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.PULLING, Event.CLAIM): State.PULLING,
    (State.PULLING, Event.FREEZE): State.FROZEN,
    (State.PULLING, Event.FAIL): State.FAILED,
    (State.PULLING, Event.GIVE_BACK): State.PULLING,
    (State.FROZEN, Event.CLAIM_FROZEN): State.FROZEN,
    (State.FROZEN, Event.ACCEPT): State.POSTED,
    (State.FROZEN, Event.REJECT): State.REJECTED,
    (State.FROZEN, Event.FAIL): State.FAILED,
    (State.FROZEN, Event.LOSE): State.UNKNOWN,
    (State.FROZEN, Event.GIVE_BACK): State.FROZEN,
    (State.FAILED, Event.CLAIM): State.PULLING,
    (State.FAILED, Event.CLAIM_FROZEN): State.FROZEN,
    (State.UNKNOWN, Event.CLAIM_FROZEN): State.UNKNOWN,
    (State.UNKNOWN, Event.ACCEPT): State.POSTED,
    (State.UNKNOWN, Event.REJECT): State.REJECTED,
    (State.UNKNOWN, Event.LOSE): State.UNKNOWN,
    (State.UNKNOWN, Event.FAIL): State.UNKNOWN,
    (State.UNKNOWN, Event.GIVE_BACK): State.UNKNOWN,
    (State.UNKNOWN, Event.DECLARE_ABSENT): State.FAILED,
    (State.REJECTED, Event.RETRY_REJECTED): State.PULLING,
    (State.REJECTED, Event.ACCEPT): State.POSTED,
}

UNFINISHED = frozenset({State.PULLING, State.FROZEN, State.UNKNOWN})
"""What is gone on with by itself."""


def next_state(state: State, event: Event) -> State:
    """The state after the event; `InvariantViolated` when the table has no such pair."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvariantViolated(f"a run that is {state} cannot {event}") from None


class Step(StrEnum):
    """The named moments of a run, in order: where a crash is tried, each before or after something durable."""

    BEFORE_CLAIM = "before claim"
    CLAIMED = "claimed"
    PAGE_STORED = "page stored"
    ROWS_STORED = "rows stored"
    INDEXED = "indexed"
    BEFORE_FREEZE = "before freeze"
    FROZEN = "frozen"
    BEFORE_LOOK_UP = "before look-up"
    BEFORE_POST = "before post"
    ANSWERED = "answered"
    BEFORE_BOOKING = "before booking"
    BOOKED = "booked"
    BEFORE_GIVE_BACK = "before give-back"
    """The run has ended otherwise: its claim is given back with the error."""
    GIVEN_BACK = "given back"
