"""Several processes on one ledger file: no update is lost, nobody is locked out, and a shared key books once.

Without these, a second worker, or a script beside the service, would be enough to lose money or to answer "locked".
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from paykit_settle import transfers
from paykit_settle.store.migrations import known_migrations
from tests.ledger_files import assert_sound, peek
from tests.programs import PROGRAM_TIMEOUT_S, ROOT, environment


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.ledger_child", *map(str, arguments)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def work_together(path: Path, *shares: tuple[str, int, int]) -> list[list[str]]:
    """One process for each share (prefix, credits, transfers), begun when all are ready; the errors of each."""
    with ExitStack() as stack:
        return _release([stack.enter_context(child("work", path, *share)) for share in shares])


def _release(children: list[subprocess.Popen[str]]) -> list[list[str]]:
    for child in children:
        assert child.stdout is not None
        ready = child.stdout.readline()
        assert ready, child.communicate(timeout=PROGRAM_TIMEOUT_S)[1]
        assert json.loads(ready) == "ready"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    results = []
    for child in children:
        out, err = child.communicate(timeout=PROGRAM_TIMEOUT_S)
        assert child.returncode == 0, err
        results.append(json.loads(out))
    return results


def test_two_processes_lose_nothing_and_see_no_error(tmp_path: Path) -> None:
    """LED-01, LED-05, LED-08 and IDM-03: 500 credits, 200 transfers and 25 retries of a shared key in each."""
    path = tmp_path / "ledger.db"
    transfers.init_db(path)
    transfers.add_account(path, "a", 1000)
    transfers.add_account(path, "b", 0)
    errors = work_together(path, ("left", 500, 200), ("right", 500, 200))
    assert errors == [[], []]
    assert transfers.balance(path, "balance") == 2 * 500 * 7 + 700
    assert (transfers.balance(path, "a"), transfers.balance(path, "b")) == (600, 400)
    counted = peek(path, "SELECT count(*) FROM entries WHERE account = 'balance'", "SELECT count(*) FROM transfers")
    assert counted == [[[1001]], [[400]]]
    assert_sound(path)


def test_processes_that_make_the_same_new_file_at_once_agree(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    errors = work_together(path, *((f"p{number}", 5, 0) for number in range(4)))
    assert errors == [[]] * 4
    assert transfers.balance(path, "balance") == 4 * 5 * 7 + 700
    assert peek(path, "SELECT count(*) FROM migrations") == [[[len(known_migrations())]]]
    assert_sound(path)
