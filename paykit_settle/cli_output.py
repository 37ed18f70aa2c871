"""What the command line prints: statements for people, or one JSON object a line for machines.

Answers go to standard output, errors to standard error for people and to standard output for machines.
"""

import json
import sys
from collections.abc import Sequence
from datetime import date

from rich.console import Console, RenderableType
from rich.measure import Measurement

from paykit_settle.dry_run import Looked, looked_json
from paykit_settle.errors import RunRefused, SettleError
from paykit_settle.models import PostedSettlement
from paykit_settle.money import format_amount
from paykit_settle.report import posted_json, warnings_of
from paykit_settle.store.runs import Run
from paykit_settle.store.waiting import Wait
from paykit_settle.terminal import settlement_table

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
        self._statement(posted)
        how = "This day was settled before" if posted.replayed else "The processor answered"
        total = format_amount(posted.total_net, posted.currency)
        self.say(
            f"\n{how}: {posted.settlement_id} {posted.status}, total_net {posted.total_net} {posted.currency} ({total})"
        )

    def looked(self, looked: Looked, said: Sequence[str]) -> None:
        """What `run` would do with a day, byte for byte, under which key; `said` is to be told along with it."""
        if self._as_json:
            shown = looked_json(looked)
            self._line({**shown, "warnings": [*said, *looked.settled.warnings]})
            return
        self._statement(looked.settled, said)
        self.say(f"\nDry run: {_would(looked)}")
        if looked.window_open is not None:
            self.say(f"window_open: {looked.window_open}; until then `run` refuses, and rows may still come")
        if looked.is_sent:
            self.say(f"POST /v1/settlements\nIdempotency-Key: {looked.attempt.idempotency_key}\n")
            self.say(looked.attempt.body.decode("ascii"))

    def _statement(self, settled: PostedSettlement, said: Sequence[str] = ()) -> None:
        self.show(settlement_table(settled.settlement))
        for warning in [*said, *settled.warnings]:
            if warning != settled.settlement.window.odd_length:  # the statement has that one
                self.say(f"note     {warning}")

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


def _would(looked: Looked) -> str:
    run, identity = looked.settled.run_id, looked.settled.settlement_id
    if looked.would == "nothing":
        return f"settled already as {identity} ({run}), nothing would be sent"
    if looked.would == "book":
        return f"the processor has it already as {identity}, of these very bytes: it would be booked, nothing sent"
    if looked.before is not None and looked.was_frozen:
        return (
            f"{run} is {looked.before.state}, its settlement is frozen: it would be looked up and sent again as it is; "
            "nothing was posted"
        )
    return "nothing was posted"
