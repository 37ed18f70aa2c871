"""`paykit-settle resume`: goes on with what a crash or an unknown outcome left, and names what it leaves alone.

Without an id it takes the runs that are due, as the service does by itself; with one it takes that run now.
"""

from functools import partial
from typing import Annotated

import apsw
from cyclopts import App, Parameter

from paykit_settle.cli_options import AsJson, ConfigFile, Database, ProcessorMoved, ProcessorUrl, read_settings
from paykit_settle.cli_output import Output
from paykit_settle.cli_runs import with_store
from paykit_settle.cli_signals import minding_signals
from paykit_settle.driving import Outcome
from paykit_settle.errors import Interrupted, RunInProgress, SettleError
from paykit_settle.runner import Runner
from paykit_settle.store.history import find_run
from paykit_settle.store.runs import Run, unfinished_runs
from paykit_settle.store.store import Store
from paykit_settle.store.waiting import Taker, Wait, wait_of

ASKED_BY = "resume"
DUE = Wait(text="is due, and was not taken up")


def register(app: App) -> None:
    """Adds the command to the command line."""
    app.command(resume)


def resume(
    identity: Annotated[
        str | None, Parameter(help="A run's id (run_000001): that run, now. Without: all that are due.")
    ] = None,
    /,
    *,
    processor_moved: ProcessorMoved = False,
    processor_url: ProcessorUrl = None,
    database: Database = None,
    config: ConfigFile = None,
    json_lines: AsJson = False,
) -> int:
    """Finish the runs that a crash or an unknown outcome left; running it again is harmless."""
    output = Output(as_json=json_lines)
    settings = read_settings(config, processor_url=processor_url, database=database)

    async def work(store: Store) -> int:
        async with settings.make_client() as client:
            runner = Runner(client, store, options=settings.run_options(), tenants=settings.tenants)
            try:
                with minding_signals(runner, output):
                    if identity is not None:
                        run = await store.read(partial(find_run, identity=identity))
                        return _told([await _one(runner, run, processor_moved=processor_moved)], output)
                    outcomes = await runner.resume(requested_by=ASKED_BY, processor_moved=processor_moved)
                code = _told(outcomes, output)
                output.say(f"{len(outcomes)} run{'s' * (len(outcomes) != 1)} resumed")
                tried = {run.number for run, _ in outcomes}
                waiting = await store.read(
                    partial(_waiting, taker=runner.taker(processor_moved=processor_moved), tried=tried)
                )
            finally:
                await runner.close()
        for run, wait in waiting:
            output.waiting(run, wait)
            code = max(code, RunInProgress.exit_code)
        return Interrupted.exit_code if runner.is_interrupted and waiting else code

    return with_store(settings, work)


async def _one(runner: Runner, run: Run, *, processor_moved: bool) -> tuple[Run, Outcome]:
    try:
        return run, await runner.resume_one(run, requested_by=ASKED_BY, processor_moved=processor_moved)
    except SettleError as error:
        return run, error


def _told(outcomes: list[tuple[Run, Outcome]], output: Output) -> int:
    """Prints what came of each, and gives the exit code of the worst."""
    worst = 0
    for run, outcome in outcomes:
        if isinstance(outcome, SettleError):
            output.error(outcome, day=run.date)
            worst = max(worst, outcome.exit_code)
        else:
            output.posted(outcome)
    return worst


def _waiting(connection: apsw.Connection, taker: Taker, tried: set[int]) -> list[tuple[Run, Wait]]:
    """The runs that are unfinished and were not tried just now, with why."""
    left = [run for run in unfinished_runs(connection) if run.number not in tried]
    return [(run, wait_of(connection, run, taker) or DUE) for run in left]
