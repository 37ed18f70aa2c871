"""What was asked, kept for tests to look at: bounded, so that a long run does not fill the memory."""

from __future__ import annotations

from dataclasses import dataclass

REQUESTS_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request that came, the status it was answered with (0: none) and the faults that hit it."""

    method: str
    path: str
    query: list[tuple[str, str]]
    idempotency_key: str | None
    content_type: str | None
    body: bytes
    status: int
    request_id: str
    faults: tuple[str, ...] = ()

    def shown(self) -> dict[str, object]:
        """The record as JSON; a body that is no UTF-8 is shown with replacement characters."""
        return {
            "request_id": self.request_id,
            "method": self.method,
            "path": self.path,
            "query": [list(pair) for pair in self.query],
            "idempotency_key": self.idempotency_key,
            "content_type": self.content_type,
            "body": self.body.decode("utf-8", "replace"),
            "status": self.status,
            "faults": list(self.faults),
        }


def keep(records: list[RequestRecord], record: RequestRecord) -> None:
    """Add a record; when there are too many, the older half is forgotten."""
    if len(records) >= REQUESTS_MAX:
        del records[: REQUESTS_MAX // 2]
    records.append(record)
