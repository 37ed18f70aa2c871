"""What errors carry beside their sentence: the wrong field, the row or rate that refuses a run, the failed exchange."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One field of a request that is missing or wrong."""

    field: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One reason why a run cannot be settled.

    `kind` is what the problem is about (`row`, `line` or `rate`), `subject` names it: a transaction id or a currency.
    """

    kind: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Where and when an exchange with the processor failed: what its support asks for."""

    method: str
    path: str
    request_id: str | None = None
    attempt: int = 1
    elapsed_ms: int = 0

    def __str__(self) -> str:
        seconds = f"{self.elapsed_ms // 1000}.{self.elapsed_ms % 1000:03d}"
        return (
            f"{self.method} {self.path}, attempt {self.attempt}, after {seconds} s, "
            f"request id {self.request_id or 'none'}"
        )
