"""The life of a run is a table: what it allows is listed here a second time, and everything else must raise.

Without it, one more entry could let a posted run be sent again, or an unknown one be forgotten, and no test would see.
"""

import itertools

import pytest

from paykit_settle.errors import InvariantViolated
from paykit_settle.lifecycle import TRANSITIONS, Event, State, Step, next_state

ALLOWED = """
pulling   claim           pulling
pulling   freeze          frozen
pulling   fail            failed
pulling   give back       pulling
frozen    claim frozen    frozen
frozen    accept          posted
frozen    reject          rejected
frozen    fail            failed
frozen    lose            unknown
frozen    give back       frozen
failed    claim           pulling
failed    claim frozen    frozen
unknown   claim frozen    unknown
unknown   accept          posted
unknown   reject          rejected
unknown   lose            unknown
unknown   fail            unknown
unknown   give back       unknown
unknown   declare absent  failed
rejected  retry rejected  pulling
rejected  accept          posted
"""


def allowed() -> dict[tuple[State, Event], State]:
    rows = [line for line in ALLOWED.splitlines() if line]
    return {(State(row[:10].strip()), Event(row[10:26].strip())): State(row[26:]) for row in rows}


def test_table_is_the_one_that_was_agreed() -> None:
    assert allowed() == TRANSITIONS


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair_that_is_not_in_the_table_raises(state: State, event: Event) -> None:
    if (state, event) in allowed():
        assert next_state(state, event) is allowed()[state, event]
    else:
        with pytest.raises(InvariantViolated, match=f"a run that is {state} cannot {event}"):
            next_state(state, event)


def test_posted_is_final() -> None:
    assert [event for event in Event if (State.POSTED, event) in TRANSITIONS] == []


def test_every_other_state_has_a_way_to_posted() -> None:
    reaches = {State.POSTED}
    for _ in State:
        reaches |= {state for (state, _), after in TRANSITIONS.items() if after in reaches}
    assert reaches == set(State)


def test_only_a_frozen_settlement_can_be_posted() -> None:
    assert {state for (state, _), after in TRANSITIONS.items() if after is State.POSTED} == {
        State.FROZEN,
        State.UNKNOWN,
        State.REJECTED,
    }


def test_steps_have_names_of_their_own() -> None:
    assert len({str(step) for step in Step}) == len(Step)
