"""Every error this package raises on purpose, as one tree.

    SettleError                      code                    HTTP  exit
    ├── InvalidRequest               invalid_request         400   2
    │   ├── InvalidJson              invalid_json            400   2
    │   ├── InvalidAmount            invalid_amount          400   2
    │   ├── UnsupportedCurrency      unsupported_currency    400   2
    │   ├── InvalidKey               invalid_key             400   2
    │   ├── EmptyLines               empty_lines             400   2
    │   ├── WindowOpen               window_open             400   2
    │   └── InvalidConfig            invalid_config          400   2
    ├── RunInProgress                run_in_progress         409   3
    ├── Interrupted                  interrupted             503   130
    ├── RunNotFound                  run_not_found           404   2
    ├── IdempotencyConflict          idempotency_conflict    409   1
    ├── AccountConflict              account_conflict        409   1
    ├── AccountNotFound              account_not_found       404   1
    ├── UnknownAccount               unknown_account         422   1
    ├── InsufficientFunds            insufficient_funds      422   1
    ├── BalanceOutOfRange            balance_out_of_range    422   1
    ├── RunRefused                   run_refused             422   1
    ├── ProcessorError               (status and body of the processor's answer)
    │   ├── ProcessorRejected        processor_rejected      502   1
    │   │   └── SettlementConflict   settlement_conflict     409   1
    │   ├── ProtocolError            protocol_error          502   1
    │   ├── ProcessorUnavailable     processor_unavailable   503   3
    │   └── OutcomeUnknown           outcome_unknown         504   4
    ├── StoreError                   (something is wrong with the database, not with the request)
    │   ├── StoreFull                store_full              503   3
    │   ├── StoreBusy                store_busy              503   3
    │   ├── StoreUnavailable         store_unavailable       503   3
    │   └── DatabaseUnusable         database_unusable       500   2
    │       └── DatabaseTooNew       database_too_new        500   2
    └── InvariantViolated            invariant_violated      500   1

The codes are a contract with callers: they are never renamed. This module knows no other of the package's but `faults`,
and no message in it ever holds a secret.
"""

from collections.abc import Iterable
from typing import ClassVar

from paykit_settle.faults import Exchange, FieldError, Problem


class SettleError(Exception):
    """The root: `str()` is one sentence for a person, `code` is stable for machines.

    `retryable` says whether the same request can succeed later without anybody changing anything. Of a run:
    `retry_at_ms` when it can go on at the earliest, `needs_person` that only a person can end it.
    """

    code: ClassVar[str]
    http_status: ClassVar[int]
    exit_code: ClassVar[int]
    retryable: ClassVar[bool] = False
    retry_at_ms: int | None = None
    needs_person: bool = False

    @property
    def details(self) -> dict[str, object]:
        """Further members of the error's JSON form; the keys are part of the contract."""
        return {}


class InvalidRequest(SettleError):
    """What the caller sent is wrong; every wrong field is named in `fields`."""

    code = "invalid_request"
    http_status = 400
    exit_code = 2

    def __init__(self, detail: str, *, fields: Iterable[FieldError] = ()) -> None:
        super().__init__(detail)
        self.fields = tuple(fields)

    @property
    def details(self) -> dict[str, object]:
        return {"fields": [{"field": f.field, "detail": f.detail} for f in self.fields]} if self.fields else {}


class InvalidJson(InvalidRequest):
    """The text is not strict JSON: malformed, not UTF-8, a repeated member, NaN, too deep."""

    code = "invalid_json"


class InvalidAmount(InvalidRequest):
    """A value that should be an amount is not an `int` of minor units within the range."""

    code = "invalid_amount"


class UnsupportedCurrency(InvalidRequest):
    """A currency code that ISO 4217 gives no exponent for, or that is written wrongly."""

    code = "unsupported_currency"


class InvalidKey(InvalidRequest):
    """An idempotency key or an id is missing, blank, too long, or holds characters that no log can show."""

    code = "invalid_key"


class EmptyLines(InvalidRequest):
    """A credit without lines: it would book nothing and still use up its key."""

    code = "empty_lines"


class WindowOpen(InvalidRequest):
    """The day asked for has not ended yet (with its grace), so its rows are not complete."""

    code = "window_open"


class InvalidConfig(InvalidRequest):
    """A setting, from the environment or the configuration file, has no usable value."""

    code = "invalid_config"


class IdempotencyConflict(SettleError):
    """The key was used before, for another request; nothing was done, and the first answer is not given away."""

    code = "idempotency_conflict"
    http_status = 409
    exit_code = 1


class RunInProgress(SettleError):
    """Another process is settling this account's day right now; ask again later for its answer."""

    code = "run_in_progress"
    http_status = 409
    exit_code = 3
    retryable = True


class Interrupted(SettleError):
    """Whoever ran it was stopped from outside, or ends; the message says what has become of the run."""

    code = "interrupted"
    http_status = 503
    exit_code = 130
    retryable = True


class RunNotFound(SettleError):
    """There is no run and no settlement of that id."""

    code = "run_not_found"
    http_status = 404
    exit_code = 2


class AccountConflict(SettleError):
    """An account of that name exists already, with other terms (another currency or floor)."""

    code = "account_conflict"
    http_status = 409
    exit_code = 1


class AccountNotFound(SettleError):
    """The account asked for does not exist: missing is not a balance of 0."""

    code = "account_not_found"
    http_status = 404
    exit_code = 1


class UnknownAccount(SettleError):
    """A journal names an account that the tenant does not have in that currency; nothing was booked."""

    code = "unknown_account"
    http_status = 422
    exit_code = 1


class InsufficientFunds(SettleError):
    """The transfer would take its source below the floor of the account; nothing was booked."""

    code = "insufficient_funds"
    http_status = 422
    exit_code = 1


class BalanceOutOfRange(SettleError):
    """The booking would take a balance beyond the range of an amount; nothing was booked."""

    code = "balance_out_of_range"
    http_status = 422
    exit_code = 1


class RunRefused(SettleError):
    """Rows or rates allow no exact settlement; nothing was sent. `problems` are the first of `problem_count`."""

    code = "run_refused"
    http_status = 422
    exit_code = 1

    def __init__(self, problems: Iterable[Problem], *, problem_count: int | None = None) -> None:
        self.problems = tuple(problems)
        self.problem_count = len(self.problems) if problem_count is None else problem_count
        shown = "; ".join(str(problem) for problem in self.problems[:3])
        more = f"; and {self.problem_count - 3} more" if self.problem_count > 3 else ""
        super().__init__(f"settlement refused: {shown}{more}")

    @property
    def details(self) -> dict[str, object]:
        listed = [{"kind": p.kind, "subject": p.subject, "detail": p.detail} for p in self.problems]
        return {"problems": listed, "problem_count": self.problem_count}


class ProcessorError(SettleError):
    """Anything that went wrong between us and the processor.

    `status` is the HTTP status answered (None: there was no answer), `body` the start of the answer as text,
    `retry_after_s` how long the processor asked to be left alone,
    `replayed` whether it only repeated what it had answered to this key before, `was_uncertain` whether an earlier try
    of the same request may have taken effect.
    """

    def __init__(
        self, detail: str, *, exchange: Exchange | None = None, status: int | None = None, body: str = ""
    ) -> None:
        super().__init__(f"{detail} ({exchange})" if exchange else detail)
        self.exchange = exchange
        self.status = status
        self.body = body
        self.retry_after_s: int | None = None
        self.replayed = False
        self.was_uncertain = False

    @property
    def details(self) -> dict[str, object]:
        details: dict[str, object] = {}
        if self.status is not None:
            details["processor_status"] = self.status
        if self.exchange is not None:
            details["request_id"] = self.exchange.request_id
            details["attempt"] = self.exchange.attempt
            details["elapsed_ms"] = self.exchange.elapsed_ms
        return details


class ProcessorRejected(ProcessorError):
    """The processor refused the request for good: a 4xx that no retry changes."""

    code = "processor_rejected"
    http_status = 502
    exit_code = 1


class SettlementConflict(ProcessorRejected):
    """What is asked for is not how this day, or its account, is settled, here or there; a person has to look."""

    code = "settlement_conflict"
    http_status = 409


class ProtocolError(ProcessorError):
    """The processor answered something its contract does not allow; the message names page, row and field."""

    code = "protocol_error"
    http_status = 502
    exit_code = 1


class ProcessorUnavailable(ProcessorError):
    """The processor could not be asked within the retries and the deadline; nothing was settled."""

    code = "processor_unavailable"
    http_status = 503
    exit_code = 3
    retryable = True


class OutcomeUnknown(ProcessorError):
    """It was sent and no certain answer came: it may exist. Asking again is safe: the same bytes, the same key."""

    code = "outcome_unknown"
    http_status = 504
    exit_code = 4
    retryable = True


class StoreError(SettleError):
    """The database could not do what was asked; nothing was half done."""

    http_status = 503
    exit_code = 3
    retryable = True
    retry_after_s: ClassVar[int | None] = None


class StoreFull(StoreError):
    """More work waits for the writer than its queue may hold; this request was not taken in."""

    code = "store_full"
    retry_after_s = 1


class StoreBusy(StoreError):
    """Another process held the database's write lock for longer than we wait; it says nothing about balances."""

    code = "store_busy"
    retry_after_s = 2


class StoreUnavailable(StoreError):
    """The database cannot write now: the disk is full or broken, or the service is closing."""

    code = "store_unavailable"
    retry_after_s = 5


class DatabaseUnusable(StoreError):
    """The file cannot be opened as a ledger of this program; no retry changes that."""

    code = "database_unusable"
    http_status = 500
    exit_code = 2
    retryable = False


class DatabaseTooNew(DatabaseUnusable):
    """The file was migrated by a newer version of the program, so this one must not touch it."""

    code = "database_too_new"


class InvariantViolated(SettleError):
    """A check on money that can only fail through a bug of ours; never retried, nothing is sent."""

    code = "invariant_violated"
    http_status = 500
    exit_code = 1
