"""One request from its arrival to the answer that is to be sent, faults included; everything but the socket.

The order is a real processor's: access, rate limits, idempotency, the work, the bytes. A fault takes the place of one
step and leaves the others as they are, so what a client sees is what such a failure would show.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from fake_processor.fault_bodies import spoiled
from fake_processor.fault_lists import OddListing
from fake_processor.fault_lookups import odd_look_up
from fake_processor.fault_pages import account_of, spoiled_page, spoiled_rates
from fake_processor.fault_refusals import refusal_of
from fake_processor.faults import FaultBook, Fired, of_stage
from fake_processor.keys import read_key
from fake_processor.listing import PageQuery
from fake_processor.query import BALANCE_TRANSACTION_PARAMETERS, page_query, read_parameters, split_expand
from fake_processor.records import RequestRecord, keep
from fake_processor.routes import EXPANDABLE, answer
from fake_processor.settlement_book import LookUp
from fake_processor.state import ProcessorState, failure
from fake_processor.wire import Answer, Refusal, Request, refusal_answer

LIST_PATH = "/v1/balance_transactions"
RATES_PATH = "/v1/fx/rates"
ECHOED_HEADERS = (("Idempotency-Key", "idempotency-key"), ("Stripe-Version", "stripe-version"))

logger = logging.getLogger(__name__)


class Reply(NamedTuple):
    """What is to be sent. `answer` None: nothing, the connection breaks. `reset_mid_body`: it breaks halfway.

    `drip` are the bytes of one piece and the milliseconds between two.
    """

    answer: Answer | None
    reset_mid_body: bool = False
    drip: tuple[int, int] | None = None


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request that is being worked on. Wait `wait_ms` first, then ask for the `reply`, once."""

    request: Request
    fired: list[Fired]
    wait_ms: int
    reply: Callable[[], Reply]


@dataclass(slots=True, kw_only=True)
class Processor:
    """A processor without a socket: what it knows, what it was asked, and how it is told to misbehave."""

    state: ProcessorState
    api_keys: Collection[str] | None = None
    faults: FaultBook = field(default_factory=FaultBook)
    requests: list[RequestRecord] = field(default_factory=list)
    _request_count: int = 0
    _inserted_count: int = 0

    def at_once(self, request: Request) -> Reply | None:
        """The reply to a request that meets no fault and holds no key; None for one that needs an `exchange`.

        Most requests are of this kind, and the speed of clients is measured against it.
        """
        if self.faults.rules or request.method == "POST":
            return None
        return self._finished(request, self._next_request_id(), [], None)

    @contextmanager
    def exchange(self, request: Request, *, refused: Refusal | None = None) -> Iterator[Exchange]:
        """Takes a request in for the length of the block, in which its idempotency key is in flight.

        `refused`: the shell could not even read it; it is answered and recorded all the same.
        """
        request_id = self._next_request_id()
        fired = self.faults.fire(request) if self.faults.rules else []
        with ExitStack() as held:
            if refused is None:
                refused = self._take_in(request, fired, held)

            def reply() -> Reply:
                return self._finished(request, request_id, fired, refused)

            yield Exchange(request=request, fired=fired, wait_ms=_wait_ms(fired), reply=reply)

    def ask(self, request: Request) -> Reply:
        """The reply to a request, at once: waits are left out."""
        with self.exchange(request) as exchange:
            return exchange.reply()

    def _next_request_id(self) -> str:
        self._request_count += 1
        return f"req_{self._request_count:06d}"

    def _take_in(self, request: Request, fired: list[Fired], held: ExitStack) -> Refusal | None:
        """Enters the rate limits and holds the idempotency key; the refusal when one of them says no."""
        try:
            for fault in of_stage(fired, "limit"):
                if (limit := fault.rule.limit) is not None:
                    limit.enter(self.state.clock.now_ns)
                    held.callback(limit.leave)
            if request.method == "POST":
                held.enter_context(self.state.keys.in_flight(read_key(request.headers)))
        except Refusal as refusal:
            return refusal
        return None

    def _finished(self, request: Request, request_id: str, fired: list[Fired], refused: Refusal | None) -> Reply:
        reply = self._reply(request, fired, refused) if fired else Reply(answer=self._answered(request, refused))
        sent = reply.answer
        if sent is not None:
            sent.headers["Request-Id"] = request_id
            _echo(request, sent.headers)
            for fault in of_stage(fired, "limit"):
                if fault.rule.limit is not None:
                    sent.headers |= fault.rule.limit.headers(self.state.clock.now_ns)
        record = RequestRecord(
            method=request.method,
            path=request.path,
            query=list(request.query),
            idempotency_key=request.headers.get("idempotency-key"),
            content_type=request.headers.get("content-type"),
            body=request.body,
            status=0 if sent is None else sent.status,
            request_id=request_id,
            faults=tuple([fault.name for fault in fired]),
        )
        keep(self.requests, record)
        return reply

    def _reply(self, request: Request, fired: list[Fired], refused: Refusal | None) -> Reply:
        if of_stage(fired, "before"):
            return Reply(answer=None)
        done = self._misbehaved(request, fired) if refused is None else self._answered(request, refused)
        after = [fault.name for fault in of_stage(fired, "after")]
        if "reset_after_effect" in after:
            return Reply(answer=None)
        if "error_500_after_effect" in after and done.status == 200:
            done = self._failed_afterwards(request, done)
        for fault in of_stage(fired, "body"):
            done = spoiled(done, fault)
        sends = {fault.name: fault for fault in of_stage(fired, "send")}
        drip = sends.get("drip")
        return Reply(
            answer=done,
            reset_mid_body="reset_mid_body" in sends,
            drip=None if drip is None else (max(1, drip.number("piece_bytes")), drip.number("wait_ms")),
        )

    def _misbehaved(self, request: Request, fired: list[Fired]) -> Answer:
        """The answer, with the faults that act on or before it."""
        for fault in of_stage(fired, "refuse"):
            instead = refusal_of(fault, request, self.state.clock)
            if instead is not None:
                if fault.name == "error_500":
                    self._keep_failure(request)
                return instead
        for fault in of_stage(fired, "truth"):
            self._change_truth(request, fault)
        state = self._seen_through(fired)
        done = self._answered(request, None, state=state)
        if done.status != 200:
            return done
        if request.path == LIST_PATH:
            for fault in of_stage(fired, "page"):
                query = _page_query(request)
                done = spoiled_page(done, fault, state=state, request=request, query=query)
        elif request.path == RATES_PATH:
            for fault in of_stage(fired, "rates"):
                done = spoiled_rates(done, fault)
        return done

    def _seen_through(self, fired: list[Fired]) -> ProcessorState:
        """The state as the faults let a request see it."""
        lists, look_ups = of_stage(fired, "list"), of_stage(fired, "lookup")
        if not (lists or look_ups):
            return self.state

        def asked(look_up: LookUp) -> LookUp:
            for fault in look_ups:
                look_up = odd_look_up(look_up, fault, now_ns=self.state.clock.now_ns)
            return look_up

        return self.state.seen_through(lambda listing: OddListing(listing=listing, faults=lists), asked=asked)

    def _answered(self, request: Request, refused: Refusal | None, *, state: ProcessorState | None = None) -> Answer:
        try:
            return answer(state or self.state, request, api_keys=self.api_keys, refused=refused)
        except Exception:
            # A bug of the fake, or a row that JSON cannot express: still an answer in the usual shape.
            logger.exception("fake processor failed on %s %s", request.method, request.path)
            return refusal_answer(Refusal(500, "The fake processor failed.", code="internal", error_type="api_error"))

    def _keep_failure(self, request: Request) -> None:
        key = read_key(request.headers) if request.method == "POST" else None
        if key is not None:
            try:
                content_type = request.headers.get("content-type", "")
                self.state.fail(request.body, idempotency_key=key, content_type=content_type)
            except Refusal:
                pass  # what would have been refused is not kept, so that its key stays free

    def _failed_afterwards(self, request: Request, done: Answer) -> Answer:
        key = read_key(request.headers)
        if request.method == "POST" and key is not None and "Idempotent-Replayed" not in done.headers:
            self.state.keys.turn_into_failure(key)
        return refusal_answer(failure())

    def _change_truth(self, request: Request, fault: Fired) -> None:
        account = account_of(request)
        if not self.state.has_account(account):
            return
        if fault.name == "pending_turns_available":
            self.state.release_pending(account)
            return
        created = fault.number("created_s") or self.state.clock.now_s
        first = self._inserted_count
        self._inserted_count += fault.number("rows")
        self.state.add_transactions(
            account, (_inserted(number, created) for number in range(first + 1, self._inserted_count + 1))
        )


def _inserted(number: int, created: int) -> dict[str, object]:
    amount = 1_000 + number
    return {
        "id": f"txn_inserted_{number:06d}",
        "object": "balance_transaction",
        "amount": amount,
        "available_on": created,
        "created": created,
        "currency": "usd",
        "description": "Inserted while others were read",
        "exchange_rate": None,
        "fee": 0,
        "fee_details": [],
        "net": amount,
        "reporting_category": "charge",
        "source": f"ch_inserted_{number:06d}",
        "status": "available",
        "type": "charge",
    }


def _page_query(request: Request) -> PageQuery:
    pairs, _ = split_expand(request.query, known=EXPANDABLE)
    return page_query(read_parameters(pairs, known=BALANCE_TRANSACTION_PARAMETERS))


def _wait_ms(fired: list[Fired]) -> int:
    wait_ms = 0
    for fault in of_stage(fired, "wait"):
        if fault.name == "latency":
            wait_ms += fault.number("wait_ms")
        else:
            low, high = fault.number("wait_min_ms"), fault.number("wait_max_ms")
            wait_ms += fault.dice.between(min(low, high), max(low, high))
    return wait_ms


def _echo(request: Request, headers: dict[str, str]) -> None:
    # Only what can be written back as it is: other bytes would break the answer's own headers.
    for name, key in ECHOED_HEADERS:
        value = request.headers.get(key)
        if value and value.isascii() and value.isprintable():
            headers[name] = value
