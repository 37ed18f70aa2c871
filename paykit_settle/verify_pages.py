"""The evidence as `verify` reads it: page by page, held to its digests and to the windows of its day. Pure.

Nothing of a page is kept but the digest of its chain and, of each window, the last page's ends. It shares no code with
the run.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePage:
    """A stored page: its bytes (None: dropped), the digests stored with it, and the rows that it owns.

    Those are the rows created in `[window_start_s, window_end_s)`. It was asked for `[asked_start_s, asked_end_s)`,
    None where that is the same. `is_needed` is false for a page of an earlier day that holds no row of interest: only
    its digest has to be kept.
    """

    period: str
    number: int
    body: bytes | None
    body_sha256: str
    chain_sha256: str
    has_more: bool
    window: int
    window_start_s: int
    window_end_s: int
    asked_start_s: int | None = None
    asked_end_s: int | None = None
    is_needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceWindow:
    """A window that a day was read in: `[start_s, end_s)` in unix seconds."""

    number: int
    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceDay:
    """A day that was read: its span in unix seconds, its windows, and which of its pages count.

    Those are the pages from `first_page` on, if the reading's `outcome` is WHOLE, and none otherwise. A list of the day
    may begin at `gap_start_s` instead, where the day before ended earlier than this one begins.
    """

    start_s: int
    end_s: int
    windows: Sequence[EvidenceWindow]
    first_page: int
    outcome: str | None
    gap_start_s: int | None = None


NOT_READ = EvidenceDay(start_s=0, end_s=0, windows=(), first_page=1, outcome=None)
"""A day of which a run has no list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAnswer:
    """A row that was asked for by its id, as it came, with the digest that was stored with it."""

    transaction_id: str
    period: str
    body: bytes
    body_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a pull stored. Pages and answers can be gone through several times.

    `pages` gives those of one day in the order of their numbers, `answers` the rows asked for by id, in order of id.
    """

    days: Mapping[str, EvidenceDay]
    pages: Callable[[str], Iterable[EvidencePage]]
    answers: Callable[[], Iterable[RowAnswer]] = tuple


class DayPages:
    """The pages of one day, as often as they are wanted, each time held to their digests and windows on the way.

    `pruned` counts those whose bytes are needed and gone.
    """

    def __init__(self, evidence: Evidence, period: str, *, is_own: bool) -> None:
        self._evidence = evidence
        self.period = period
        self._is_own = is_own
        self._day = evidence.days.get(period, NOT_READ)
        self._start_over()

    def _start_over(self) -> None:
        self.chain = ""
        self.page_count = self.pruned = 0
        self._digest_fault: str | None = None
        self._window_ends: dict[int, EvidencePage] = {}

    @property
    def start_s(self) -> int:
        """Where the list of the day began."""
        begins = {window.start_s for window in self._day.windows}
        gap = self._day.gap_start_s
        return gap if gap is not None and gap in begins and gap < self._day.start_s else self._day.start_s

    @property
    def end_s(self) -> int:
        return self._day.end_s

    def counted(self) -> Iterator[EvidencePage]:
        """Go through all pages, and yield those that count and still have their bytes."""
        self._start_over()
        is_whole = self._day.outcome == WHOLE
        before = ""
        for page in self._evidence.pages(self.period):
            self.page_count += 1
            before = self._follow(page, before)
            self.chain = page.chain_sha256
            if not is_whole or page.number < self._day.first_page:
                continue
            self._window_ends[page.window] = replace(page, body=None)
            if page.body is not None:
                yield page
            elif self._is_own or page.is_needed:
                self.pruned += 1

    def faults(self) -> list[str]:
        """Return what is wrong with the pages as such, once they have been gone through."""
        return ([self._digest_fault] if self._digest_fault else []) + self._window_faults()

    @property
    def has_digest_fault(self) -> bool:
        return self._digest_fault is not None

    def _follow(self, page: EvidencePage, before: str) -> str:
        digest = page.body_sha256 if page.body is None else hashlib.sha256(page.body).hexdigest()
        chain = hashlib.sha256((before + digest).encode()).hexdigest()
        if self._digest_fault is None:
            if page.number != self.page_count:
                self._digest_fault = f"page {self.page_count} of {self.period} is missing"
            elif digest != page.body_sha256 or chain != page.chain_sha256:
                self._digest_fault = f"page {page.number} of {self.period} is not the one that was received"
        return chain

    def _window_faults(self) -> list[str]:
        """Whether every second of the day was read: windows that meet end to end, each with a last page that ends it.

        A page ends a window only if it was asked for all of it. Of an earlier day that was given up nothing counts.
        """
        period = self.period
        if self._day.outcome != WHOLE:
            return [f"{period} was not read whole"] if self._is_own else []
        faults = []
        edge = self.start_s
        for window in sorted(self._day.windows, key=lambda each: each.start_s):
            last = self._window_ends.get(window.number)
            if window.start_s != edge:
                faults.append(f"the windows of {period} do not meet at {edge}")
            if last is None or last.has_more:
                faults.append(f"window {window.number} of {period} ends although more rows follow")
            elif not _ends(last, window):
                faults.append(f"window {window.number} of {period} was not read to its end")
            edge = window.end_s
        if edge != self._day.end_s:
            faults.append(f"the windows of {period} end at {edge}, not at {self._day.end_s}")
        return faults


def evidence_faults(days: Iterable[DayPages], answers: Iterable[RowAnswer], evidence_sha256: str | None) -> list[str]:
    """Return what is wrong with the evidence as such: pages, windows, answers, and the one digest of all of it.

    The days must have been gone through, and come in order. Without `evidence_sha256` there is no digest of the whole.
    """
    read = list(days)
    faults = [fault for pages in read for fault in pages.faults()]
    parts = [[pages.period, pages.chain] for pages in read if pages.page_count]
    lines = None
    for answer in answers:
        lines = lines or hashlib.sha256()
        lines.update(f"{answer.transaction_id}:{answer.body_sha256}\n".encode())
        if hashlib.sha256(answer.body).hexdigest() != answer.body_sha256:
            faults.append(f"the answer about {answer.transaction_id} is not the one that was received")
    if lines is not None:
        parts.append(["rows", lines.hexdigest()])
    whole = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    if evidence_sha256 not in (None, whole) and not any(pages.has_digest_fault for pages in read):
        faults.append("the pages are not the ones that the settlement was made from")
    return faults


def _ends(page: EvidencePage, window: EvidenceWindow) -> bool:
    """Whether the page owns the rows of the window as it is now, and was asked for all of them."""
    if (page.window_start_s, page.window_end_s) != (window.start_s, window.end_s):
        return False
    start = page.window_start_s if page.asked_start_s is None else page.asked_start_s
    end = page.window_end_s if page.asked_end_s is None else page.asked_end_s
    return start <= window.start_s and window.end_s <= end
