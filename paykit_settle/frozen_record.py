"""What a freeze stores of a settlement (bytes, key, rates, rows taken in or owed), and what a posted one answers."""

import hashlib
from collections.abc import Sequence

import msgspec

from paykit_settle.corrections import Correction
from paykit_settle.errors import InvariantViolated
from paykit_settle.models import PostedSettlement, Settlement
from paykit_settle.money import ScaleProfile
from paykit_settle.pull import Pulled
from paykit_settle.rates import Rates
from paykit_settle.store.freezing import Frozen
from paykit_settle.store.relisting import OwedRow
from paykit_settle.store.runs import Attempt, Run
from paykit_settle.version import __version__
from paykit_settle.wire import encode_body, settlement_key, settlement_payload


def frozen_record(
    run: Run,
    settlement: Settlement,
    rates: Rates | None,
    *,
    pulled: Pulled,
    corrections: Sequence[Correction],
    scale: ScaleProfile,
) -> Frozen:
    """Return the record of a run's current attempt; `InvalidAmount` if `scale` cannot express an amount."""
    body = encode_body(settlement_payload(settlement, scale))
    return Frozen(
        idempotency_key=settlement_key(run.account, run.date, attempt=run.attempt),
        body=body,
        body_sha256=hashlib.sha256(body).hexdigest(),
        settlement=msgspec.json.encode(settlement).decode(),
        rates_body=rates.document() if rates is not None else None,
        scales=scale.overrides,
        program=__version__,
        outstanding=[
            OwedRow(
                transaction_id=row.id,
                period=period,
                type=row.type,
                currency=row.currency.lower(),
                amount=scale.from_wire(row.amount, row.currency.lower()),
                fee=scale.from_wire(row.fee, row.currency.lower()),
                available_on_s=pulled.available_on.get(row.id),
            )
            for period, row in pulled.pending
        ],
        late_rows=pulled.late_ids,
        corrections=corrections,
        frozen_count=pulled.frozen_count,
        moved=[
            (identity, holder.run.number if holder else None, identity in pulled.different_ids)
            for identity, holder in pulled.moved.items()
        ],
        settled_owed=pulled.settled_owed,
        listings=pulled.listings,
        differences=pulled.differences,
        moved_ids=pulled.moved_ids,
        shown_ids=pulled.shown_ids,
        written_off_available=pulled.written_off_available,
    )


def answer_of(run: Run, attempt: Attempt, *, replayed: bool, warnings: Sequence[str]) -> PostedSettlement:
    """Return what a posted run answers to whoever asked for it."""
    if run.settlement_id is None:
        raise InvariantViolated(f"{run.id} is posted without an id")
    said = [attempt.settlement.window.odd_length, run.attention]
    return PostedSettlement(
        settlement_id=run.settlement_id,
        status=attempt.status or "",
        total_net=attempt.settlement.total_net,
        currency=attempt.settlement.settlement_currency,
        idempotency_key=attempt.idempotency_key,
        settlement=attempt.settlement,
        run_id=run.id,
        replayed=replayed,
        warnings=(*warnings, *(each for each in said if each)),
    )
