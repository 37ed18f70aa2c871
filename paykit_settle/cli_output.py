"""What the command line prints: statements for people, or one JSON object a line for machines.

Answers go to standard output, errors to standard error for people and to standard output for machines.
"""

import json
import sys
from datetime import date

from rich.console import Console, RenderableType
from rich.measure import Measurement

from paykit_settle.errors import RunRefused, SettleError
from paykit_settle.models import PostedSettlement, Settlement
from paykit_settle.money import ScaleProfile, format_amount
from paykit_settle.report import posted_json, settlement_json, warnings_of
from paykit_settle.store.runs import Run
from paykit_settle.store.waiting import Wait
from paykit_settle.terminal import settlement_table
from paykit_settle.wire import encode_body, settlement_key, settlement_payload

UNBOUNDED_WIDTH = 10_000


class Output:
    """One command's output, in one of the two forms."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = Console(highlight=False)

    def say(self, text: str) -> None:
        """A remark for people; nothing in JSON."""
        if not self._as_json:
            print(text, flush=True)

    def warn(self, text: str) -> None:
        """A remark on standard error, in both forms."""
        print(text, file=sys.stderr, flush=True)

    def posted(self, posted: PostedSettlement) -> None:
        """A settlement and the processor's answer to it."""
        if self._as_json:
            self._line(posted_json(posted))
            return
        self.show(settlement_table(posted.settlement))
        for warning in posted.warnings:
            if warning != posted.settlement.window.odd_length:  # the statement has that one
                self.say(f"note     {warning}")
        total = format_amount(posted.total_net, posted.currency)
        self.say(
            f"\nThe processor answered: {posted.settlement_id} {posted.status}, "
            f"total_net {posted.total_net} {posted.currency} ({total})" + ", settled before" * posted.replayed
        )

    def dry_run(self, settlement: Settlement, scale: ScaleProfile) -> None:
        """What would be posted, byte for byte, under which key."""
        payload = settlement_payload(settlement, scale)
        key = settlement_key(settlement.account, settlement.date)
        if self._as_json:
            shown = {"dry_run": True, "idempotency_key": key, "payload": payload, **settlement_json(settlement)}
            odd = settlement.window.odd_length
            self._line(shown | {"warnings": [odd] if odd else []})
            return
        self.show(settlement_table(settlement))
        self.say(f"\nDry run: nothing was posted. POST /v1/settlements\nIdempotency-Key: {key}\n")
        self.say(encode_body(payload).decode("ascii"))

    def error(self, error: SettleError, *, day: date | None = None) -> None:
        """Why something was not done, with every problem named."""
        if self._as_json:
            when = {"date": day.isoformat()} if day else {}
            said = {"warnings": warnings} if (warnings := warnings_of(error)) else {}
            self._line({"error": error.code, "detail": str(error), **when, **error.details, **said})
            return
        prefix = f"{day.isoformat()} {error.code}" if day else error.code
        if not isinstance(error, RunRefused):
            self.warn(f"{prefix}: {error}")
            return
        count = error.problem_count
        self.warn(f"{prefix}: settlement refused: {count} problem{'s' * (count != 1)}, nothing was posted")
        for problem in error.problems:
            self.warn(f"  {problem}")

    def waiting(self, run: Run, wait: Wait) -> None:
        """An unfinished run that is left alone, and what it waits for."""
        if not self._as_json:
            self.warn(f"{run.date.isoformat()} {run.id} of {run.account} is {run.state}: it {wait.text}")
            return
        self._line(
            {
                "run_id": run.id,
                "account": run.account,
                "date": run.date.isoformat(),
                "state": str(run.state),
                "error": run.error_code,
                "waits_until": wait.until,
                "waits_for_processor": str(wait.processor) if wait.processor else None,
                "needs_person": wait.needs_person,
                "in_progress": wait.is_held,
                "detail": f"{run.id} {wait.text}",
            }
        )

    def passed_over(self, day: date, why: str) -> None:
        """A day that a range of days leaves out, because it does not exist."""
        if self._as_json:
            self._line({"date": day.isoformat(), "state": "no such day", "detail": why})
        else:
            self.warn(f"{day.isoformat()} is passed over: {why}")

    def _line(self, value: object) -> None:
        print(json.dumps(value, allow_nan=False), flush=True)

    def show(self, renderable: RenderableType) -> None:
        """Something of rich's, for people."""
        # A terminal that is too narrow gets long lines: an amount is never cut.
        wide = self._console.options.update(width=UNBOUNDED_WIDTH)
        needed = Measurement.get(self._console, wide, renderable).maximum
        Console(width=max(self._console.width, needed), highlight=False).print(renderable)
