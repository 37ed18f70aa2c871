"""The file as a whole, by the command line: proved, shown, and copied while the service writes; the copy restores.

Without these, a back-up could hold half a transfer, and nobody would know before the day it is needed.
"""

import asyncio
import json
from pathlib import Path

import pytest

from paykit_settle import transfers
from paykit_settle.errors import InvalidRequest
from paykit_settle.store.files import back_up, check_file
from tests.ledger_files import assert_sound, ledger_file, peek
from tests.ledger_service import balance, client, credit, service_process
from tests.programs import paykit


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "paykit.db"
    transfers.init_db(path)
    transfers.add_account(path, "a", 500)
    transfers.add_account(path, "b", 0)
    transfers.transfer(path, "x", "a", "b", 200)
    return path


def test_check_proves_the_default_file(database: Path) -> None:
    done = paykit("ledger", "check", cwd=database.parent)
    assert done.returncode == 0, done.stderr
    assert "paykit.db: 2 accounts, 3 journals, 6 entries" in done.stdout
    assert "sound" in done.stdout


def test_check_of_a_broken_file_names_what_is_broken(database: Path) -> None:
    peek(database, "PRAGMA journal_mode")
    with ledger_file(database) as connection:
        connection.execute("UPDATE accounts SET balance = 1 WHERE id = 'b'")
    done = paykit("ledger", "check", "--database", str(database), "--json", cwd=database.parent)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["sound"] is False
    assert report["faults"] == ["'local' 'b' 'usd' is not the sum of its entries"]


def test_status_shows_the_schema(database: Path) -> None:
    done = paykit("db", "status", "--json", cwd=database.parent, env={"PAYKIT_DATABASE": str(database)})
    status = json.loads(done.stdout)
    assert (status["applied"][0], status["pending"], status["journal_mode"]) == ("0001_ledger", [], "delete")
    assert status["size_bytes"] == database.stat().st_size
    shown = paykit("db", "status", cwd=database.parent).stdout
    assert "0001_ledger" in shown


@pytest.mark.parametrize("words", [("ledger", "check"), ("db", "status"), ("db", "backup", "copy.db")])
def test_missing_file_is_an_error_and_is_not_made(words: tuple[str, ...], tmp_path: Path) -> None:
    done = paykit(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "database_unusable" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_newer_file_is_refused_by_every_command(database: Path) -> None:
    with ledger_file(database) as connection:
        connection.execute("INSERT INTO migrations VALUES (99, 'later', 'x', 1)")
    for words in (("db", "status"), ("serve", "--port", "0", "--database", str(database))):
        done = paykit(*words, cwd=database.parent)
        assert (done.returncode, "database_too_new" in done.stderr) == (2, True), done.stderr


async def test_backup_while_the_service_writes_is_whole_and_restores(tmp_path: Path) -> None:
    database, copy = tmp_path / "live.db", tmp_path / "copy.db"
    with service_process(database) as (process, url):
        async with client(url) as http:
            stopped, progress = asyncio.Event(), asyncio.Semaphore(0)
            booked: list[str] = []

            async def caller(number: int) -> None:
                step = 0
                while not stopped.is_set():
                    key = f"{number}-{step}"
                    assert (await credit(http, "t", key, 5)).status_code == 201
                    booked.append(key)
                    progress.release()
                    step += 1

            callers = [asyncio.ensure_future(caller(number)) for number in range(2)]
            for _ in range(50):
                await progress.acquire()
            before = set(booked)
            done = await asyncio.to_thread(paykit, "db", "backup", str(copy), "--database", str(database), cwd=tmp_path)
            booked_then = len(booked)
            while len(booked) < booked_then + 50:
                await progress.acquire()
            stopped.set()
            await asyncio.gather(*callers)
            total = await balance(http, "t")
        assert done.returncode == 0, done.stderr
        process.terminate()
        process.wait()
    assert total == 5 * len(booked)
    assert_sound(copy)
    keys = {str(key) for (key,) in peek(copy, "SELECT key FROM journals")[0]}
    assert before <= keys <= set(booked)

    restored = await asyncio.to_thread(paykit, "db", "restore", str(copy), "--database", str(database), cwd=tmp_path)
    assert restored.returncode == 0, restored.stderr
    with service_process(database) as (_, url):
        async with client(url) as http:
            assert await balance(http, "t") == 5 * len(keys)
            # Clients that are not sure send their keys again: what the copy holds replays, the rest is booked.
            unsure = sorted(set(booked) - keys) + sorted(keys)[:20]
            again = await asyncio.gather(*(credit(http, "t", key, 5) for key in unsure))
            assert [answer.status_code for answer in again] == [200 if key in keys else 201 for key in unsure]
            assert await balance(http, "t") == total
    assert_sound(database)


def test_backup_never_overwrites_and_leaves_nothing_half_written(database: Path) -> None:
    target = database.parent / "copy.db"
    assert back_up(database, target) == target.stat().st_size
    before = target.read_bytes()
    with pytest.raises(InvalidRequest, match="exists already"):
        back_up(database, target)
    assert target.read_bytes() == before
    assert sorted(found.name for found in database.parent.iterdir()) == ["copy.db", "paykit.db"]
    assert list(check_file(target).faults) == []


def test_backup_into_a_folder_that_is_missing_is_refused(database: Path) -> None:
    done = paykit("db", "backup", "no/such/copy.db", cwd=database.parent)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
