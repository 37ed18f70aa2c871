"""The commands by which a person ends a run that cannot go on by itself: resolve and forget. Who and why are kept."""

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from paykit_settle.cli_options import ConfigFile, Database, ProcessorUrl, read_settings
from paykit_settle.cli_runs import Identity, with_store
from paykit_settle.cli_upkeep import By, decider
from paykit_settle.config import Settings
from paykit_settle.errors import InvalidRequest
from paykit_settle.models import ITEMISED
from paykit_settle.money import format_amount
from paykit_settle.resolving import Resolver, Wish
from paykit_settle.run_request import check_name
from paykit_settle.store.coverage import Covers
from paykit_settle.store.forgetting import forget as forget_run
from paykit_settle.store.owner import is_alive
from paykit_settle.store.resolving import Decision, end_attention
from paykit_settle.store.runs import Run, current_attempt
from paykit_settle.store.store import Store, clock_ms

COVERED_FILE_BYTES_MAX = 32 * 1024 * 1024
"""A file of ids that is larger was not meant to be one."""

Reason = Annotated[str, Parameter(help="Why: how this was found out.")]


def register(app: App) -> None:
    """Adds the commands to the command line."""
    for command in (resolve, forget):
        app.command(command)


def resolve(
    identity: Identity,
    /,
    *,
    posted: Annotated[str | None, Parameter(help="The processor has it, as this settlement.")] = None,
    absent: Annotated[bool, Parameter(negative="", help="The processor does not have it.")] = False,
    noted: Annotated[bool, Parameter(negative="", help="Somebody has looked at what it asked attention for.")] = False,
    reason: Reason,
    covers: Annotated[
        str | None, Parameter(help="Rows that a settlement which is not ours holds: all, none, or a FILE of ids.")
    ] = None,
    total_only: Annotated[bool, Parameter(negative="", help="Take a settlement whose lines prove nothing.")] = False,
    unseen: Annotated[bool, Parameter(negative="", help="Vouch for what the processor does not tell.")] = False,
    by: By = None,
    processor_url: ProcessorUrl = None,
    database: Database = None,
    config: ConfigFile = None,
) -> int:
    """End a run that is unknown, or in conflict with what the processor has; the processor is asked first."""
    if [posted is not None, absent, noted].count(True) != 1:
        raise InvalidRequest("give one of --posted SETL_ID, --absent and --noted")
    if posted is None and (covers is not None or total_only):
        raise InvalidRequest("--covers and --total-only go with --posted")
    if noted and unseen:
        raise InvalidRequest("--unseen goes with --posted or --absent")
    wish = Wish(covers=read_covers(covers), total_only=total_only, unseen=unseen)
    settings = read_settings(config, processor_url=processor_url, database=database)

    async def work(store: Store) -> int:
        decision = Decision(by=decider(by), reason=reason, now_ms=clock_ms())
        if noted:
            decision.check()
            run = await store.write(partial(end_attention, identity=identity, decision=decision))
            print(f"{run.id} is noted")
            return 0
        run = await _resolve(settings, store, identity, posted, wish, decision)
        if posted is None:
            print(f"{run.id} is {run.state} now: run it again to post it")
        else:
            await _tell(store, run)
        return 0

    return with_store(settings, work)


async def _resolve(
    settings: Settings, store: Store, identity: str, posted: str | None, wish: Wish, decision: Decision
) -> Run:
    async with settings.make_client() as client:
        resolver = Resolver(client, store, is_alive=partial(is_alive, store.path), lookup=settings.lookup)
        if posted is None:
            return await resolver.absent(identity, unseen=wish.unseen, decision=decision)
        return await resolver.posted(identity, posted, wish, decision)


async def _tell(store: Store, run: Run) -> None:
    print(f"{run.id} is {run.state} now as {run.settlement_id}")
    attempt = await store.read(partial(current_attempt, run=run))
    if attempt.taken is not None:
        total = format_amount(attempt.settlement.total_net, run.settlement_currency)
        how = "its lines were taken as they are" if attempt.taken == ITEMISED else "only its total is known"
        print(f"the processor's settlement was taken, not ours: {total}, {how}; rows it covers: {run.covers}")
    if run.attention is not None:
        print(f"needs attention: {run.attention}")


def read_covers(text: str | None) -> Covers | None:
    """Return what `--covers` says: `all`, `none`, or the ids in a file, one a line. `InvalidRequest` for another."""
    if text is None:
        return None
    if text == "all":
        return Covers(kind="all")
    if text == "none":
        return Covers(kind="none")
    path = Path(text)
    try:
        if path.stat().st_size > COVERED_FILE_BYTES_MAX:
            raise InvalidRequest(f"--covers {text}: more than {COVERED_FILE_BYTES_MAX} bytes")
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InvalidRequest(f"--covers {text} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"--covers {text} is not UTF-8") from None
    ids = frozenset(line.strip() for line in lines if line.strip())
    if not ids:
        raise InvalidRequest(f"--covers {text} names no row; say none if it holds none")
    for identity in ids:
        try:
            check_name(identity)
        except ValueError as error:
            raise InvalidRequest(f"--covers {text}: an id {error}") from None
    return Covers(kind="listed", ids=ids)


def forget(
    identity: Identity,
    /,
    *,
    reason: Reason,
    by: By = None,
    database: Database = None,
    config: ConfigFile = None,
) -> int:
    """Forget a run that never sent anything, with all that it read; its day can be run as if it never had been."""
    settings = read_settings(config, database=database)

    async def work(store: Store) -> int:
        decision = Decision(by=decider(by), reason=reason, now_ms=clock_ms())
        run = await store.write(
            partial(forget_run, identity=identity, decision=decision, is_alive=partial(is_alive, store.path))
        )
        print(f"{run.id} of {run.account} on {run.date} is forgotten")
        return 0

    return with_store(settings, work)
