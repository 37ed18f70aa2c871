"""Ends a run that needs a person: asks the processor first, and takes what it has, ours or its own.

Nothing is claimed while it is asked: a crash before the one unit of work at the end changes nothing, and of two people
who decide at once the second is refused. What a person vouches for unseen is ours alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import apsw

from paykit_settle.client import ProcessorClient
from paykit_settle.errors import InvalidRequest, ProcessorError, ProtocolError, SettlementConflict
from paykit_settle.found_settlements import FoundSettlement, LookUpMode
from paykit_settle.looking_up import LookUp
from paykit_settle.models import TOTAL_ONLY
from paykit_settle.money import ScaleProfile, format_amount
from paykit_settle.open_outcomes import beside
from paykit_settle.open_outcomes import named as ids_named
from paykit_settle.run_request import check_text
from paykit_settle.store.accounts import account_of, check_processor
from paykit_settle.store.coverage import CoveredRows, Covers, find_covered
from paykit_settle.store.resolving import (
    Decision,
    IsAlive,
    Taken,
    book_ours,
    book_taken,
    declare_absent,
    resolvable,
)
from paykit_settle.store.runs import Attempt, Run
from paykit_settle.store.store import Store
from paykit_settle.taken import take_settlement


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person says along: which rows a settlement that is not ours holds, that its total alone may be taken.

    `unseen`: that they vouch for what the processor does not show.
    """

    covers: Covers | None = None
    total_only: bool = False
    unseen: bool = False


class Resolver:
    """Ends runs of one store at one processor, as a person decides. `is_alive` tells whether an owner lives."""

    def __init__(
        self, client: ProcessorClient, store: Store, *, is_alive: IsAlive, lookup: LookUpMode = "list"
    ) -> None:
        self._processor = client.identity
        self._look_up = LookUp(client, store, mode=lookup)
        self._store = store
        self._is_alive = is_alive

    async def posted(self, identity: str, settlement_id: str, wish: Wish, decision: Decision) -> Run:
        """Book the run with the processor's settlement of that id, and return it.

        What we froze is booked where it is that; else the processor's is taken, and `wish.covers` must say which rows
        it holds. `InvalidRequest` when the run cannot be ended so, or more has to be said; `SettlementConflict` when
        the processor does not have it; a `ProcessorError` when it cannot be asked; `ProtocolError` when what it has
        cannot be read.
        """
        decision.check()
        check_text("a settlement's id", settlement_id)
        run, attempt = await self._resolvable(identity, is_absent=False)
        found = await self._ask(run, unseen=wish.unseen)
        named = next((each for each in found if each.id == settlement_id), None)
        others = [each for each in found if each.id != settlement_id]
        if named is None and not wish.unseen:
            raise SettlementConflict(
                f"the processor has no settlement {settlement_id} of {run.account} on {run.date}"
                + (f", but {ids_named(others)}" if others else "")
                + "; if it is there all the same, and is what was frozen here, --unseen says that you vouch for it"
            )
        attention = beside(others)
        if named is None or named.is_of(attempt.body, attempt.idempotency_key):
            work = partial(
                book_ours,
                asked=run,
                settlement_id=settlement_id,
                status="resolved" if named is None else named.status,
                attention=attention,
                decision=decision,
                is_alive=self._is_alive,
            )
            return await self._store.write(work)
        taken = await self._taken(run, attempt, named, wish, attention)
        return await self._store.write(
            partial(book_taken, asked=run, taken=taken, decision=decision, is_alive=self._is_alive)
        )

    async def absent(self, identity: str, *, unseen: bool, decision: Decision) -> Run:
        """End an unknown run as one that the processor does not have, and return it with its next key.

        `SettlementConflict` when the processor has any settlement of the day. One that lists none is believed to have
        none, on this person's word.
        """
        decision.check()
        run, _ = await self._resolvable(identity, is_absent=True)
        found = await self._ask(run, unseen=unseen, may_list_none=True)
        if found:
            raise SettlementConflict(
                f"the processor has {ids_named(found)} of {run.account} on {run.date}: resolve {run.id} with --posted"
            )
        return await self._store.write(partial(declare_absent, asked=run, decision=decision, is_alive=self._is_alive))

    async def _resolvable(self, identity: str, *, is_absent: bool) -> tuple[Run, Attempt]:
        def read(connection: apsw.Connection) -> tuple[Run, Attempt]:
            run, attempt = resolvable(connection, identity, is_absent=is_absent, is_alive=self._is_alive)
            account = account_of(connection, run.account)
            if run.processor is not None and run.processor != self._processor:
                check_processor(account, self._processor, what=run.id)
            return run, attempt

        return await self._store.read(read)

    async def _ask(self, run: Run, *, unseen: bool, may_list_none: bool = False) -> Sequence[FoundSettlement]:
        """What the processor has of the day; nothing, where a person vouches for what it does not tell."""
        try:
            found = await self._look_up.settlements(run.account, run.date)
        except ProcessorError as error:
            if unseen:
                return []
            detail = f"the processor could not be asked for {run.account} on {run.date}: {error}"
            told = f"{detail}; --unseen says that you vouch for it"
            raise type(error)(told, status=error.status, body=error.body) from error
        if found is None and not (unseen or may_list_none):
            raise InvalidRequest(
                "the processor lists no settlements, so it cannot be asked; --unseen says that you vouch for what was "
                "frozen here"
            )
        return found or []

    async def _taken(
        self, run: Run, attempt: Attempt, named: FoundSettlement, wish: Wish, attention: str | None
    ) -> Taken:
        try:
            read = take_settlement(named.members, attempt.settlement, scale=ScaleProfile(overrides=attempt.scales))
        except ValueError as error:
            raise ProtocolError(f"{named.id} of {run.account} on {run.date} cannot be booked: {error}") from None
        total = format_amount(read.settlement.total_net, read.settlement.settlement_currency)
        ours = format_amount(attempt.settlement.total_net, attempt.settlement.settlement_currency)
        not_ours = f"{named.id} ({total}) is not what {run.id} froze ({ours})"
        if wish.unseen:
            raise InvalidRequest(f"{not_ours}: nobody can vouch for that unseen; leave --unseen out")
        if wish.covers is None:
            raise InvalidRequest(f"{not_ours}: say with --covers all, none or FILE which rows it holds")
        if read.why_not_itemised is not None and not wish.total_only:
            raise InvalidRequest(f"{not_ours}, and {read.why_not_itemised}; --total-only takes it by its total")
        covered = CoveredRows()
        if wish.covers.kind == "listed":
            covered = await self._store.read(partial(find_covered, run=run, ids=wish.covers.ids))
        said = [attention]
        if read.settlement.taken == TOTAL_ONLY:
            said.append(f"{named.id} was taken by its total only: {read.why_not_itemised}")
        if attempt.may_be_taken:
            said.append(f"what was sent as attempt {attempt.number} may still turn up at the processor beside it")
        return Taken(
            settlement_id=named.id,
            status=named.status,
            settlement=read.settlement,
            received=named.received,
            covers=wish.covers,
            covered=covered,
            attention="; ".join(filter(None, said)) or None,
        )
