"""Restores that are killed: `restore_child trials COPY FOLDER`, or `restore_child once COPY DATABASE [STEP]`.

`trials` kills a restore at a step with SIGKILL, the next one at another, and lets a third finish, for every pair of
steps; it prints what each of them left as a JSON line. `once` restores, killed at a step where one is given.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from paykit_settle.errors import DatabaseUnusable
from paykit_settle.store.exchange import RestoreStep
from paykit_settle.store.restoring import restore
from tests.ledger_files import balances, ledger_file

NAME = "paykit.db"
STATES = {250: "old", 300: "new"}
"""The balance of account `a` in the old database (with its log) and in the back-up."""


def restore_until(copy: Path, database: Path, step: str | None) -> None:
    """Restores, and kills this process at the step of that name."""

    def at_step(reached: RestoreStep) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    restore(copy, database, now_ms=1_800_000_000_000, at_step=at_step)


def trials(copy: Path, template: Path) -> None:
    """Every pair of kills, the second also none."""
    for first in RestoreStep:
        for second in (*RestoreStep, None):
            folder = template.with_name(f"{first}-{second}")
            shutil.copytree(template, folder)
            states = []
            for step in (first, second, None):
                restored = _in_child(partial(restore_until, copy, folder / NAME, step))
                states.append([restored, state_of(folder)])
            kept = {path.name: state_of(folder, path.name) for path in folder.iterdir() if path.name != NAME}
            print(json.dumps({"kills": [first, second], "states": states, "kept": kept}), flush=True)


def state_of(folder: Path, name: str = NAME) -> str:
    """What one who opens the database finds, looked at in a copy of the folder."""
    looked_at = folder.with_name(f"{folder.name}.looked-at")
    shutil.copytree(folder, looked_at)

    def look() -> str:
        try:
            with ledger_file(looked_at / name) as connection:
                return STATES[balances(connection)["a"]]
        except DatabaseUnusable as error:
            return "says so" if "half restored" in str(error) else f"unusable: {error}"

    try:
        return _answer_of_child(look)
    finally:
        shutil.rmtree(looked_at)


def _in_child(work: Callable[[], None]) -> str:
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return "killed" if os.WIFSIGNALED(status) else f"exit {os.waitstatus_to_exitcode(status)}"


def _answer_of_child(work: Callable[[], str]) -> str:
    reader, writer = os.pipe()

    def answer() -> None:
        os.write(writer, work().encode())

    _in_child(answer)
    os.close(writer)
    text = os.read(reader, 65_536).decode()
    os.close(reader)
    return text


if __name__ == "__main__":
    command, copy, place, *rest = sys.argv[1:]
    if command == "trials":
        trials(Path(copy), Path(place))
    else:
        restore_until(Path(copy), Path(place), rest[0] if rest else None)
