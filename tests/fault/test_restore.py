"""`db restore`: a back-up takes the database's place whole, or not at all, whatever is killed, open, full or damaged.

Without these, the log of the old file could be applied to the new one, a kill could leave half of each, and a restore
could pull the file away from under a service that goes on writing.
"""

import asyncio
import errno
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from paykit_settle import transfers
from paykit_settle.errors import (
    DatabaseTooNew,
    DatabaseUnusable,
    InvalidRequest,
    SettleError,
    StoreBusy,
    StoreUnavailable,
)
from paykit_settle.store.database import connect, use_wal
from paykit_settle.store.exchange import RestoreStep
from paykit_settle.store.files import back_up, check_file, file_status
from paykit_settle.store.owner import Owner
from paykit_settle.store.restoring import Restored, restore
from paykit_settle.store.store import Store
from tests.ledger_files import assert_sound, ledger_file, peek
from tests.ledger_service import service_process
from tests.programs import PROGRAM_TIMEOUT_S, ROOT, environment, paykit

NOW_MS = 1_800_000_000_000
KEPT = "paykit.db.before-restore-20270115T080000Z"
RELEASE = ROOT / "tests/data/releases/0.1.0.db"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A back-up in which `a` has 300."""
    path = tmp_path / "made.db"
    transfers.init_db(path)
    transfers.add_account(path, "a", 500)
    transfers.add_account(path, "b", 0)
    transfers.transfer(path, "x", "a", "b", 200)
    back_up(path, tmp_path / "copy.db")
    return tmp_path / "copy.db"


@pytest.fixture
def database(tmp_path: Path, copy: Path) -> Path:
    """The database that the back-up was made of: `a` has 250 in it, and only its log knows."""
    made, folder = tmp_path / "made.db", tmp_path / "live"
    folder.mkdir()
    holder = connect(made)
    try:
        use_wal(holder)
        transfers.transfer(made, "y", "a", "b", 50)
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{made}{suffix}", folder / f"paykit.db{suffix}")
    finally:
        holder.close()
    assert (folder / "paykit.db-wal").stat().st_size > 0
    assert balance_without_log(folder / "paykit.db") == 300  # what matters is in the log
    return folder / "paykit.db"


def balance_without_log(path: Path) -> int:
    alone = path.with_name("alone.db")
    shutil.copy(path, alone)
    try:
        return transfers.balance(alone, "a")
    finally:
        for left in path.parent.glob("alone.db*"):
            left.unlink()


def put_back(copy: Path, database: Path, *, busy_timeout_ms: int = 50) -> Restored:
    return restore(copy, database, now_ms=NOW_MS, busy_timeout_ms=busy_timeout_ms)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_log_of_the_old_file_is_never_applied_to_the_new_one_and_nothing_is_lost(copy: Path, database: Path) -> None:
    done = put_back(copy, database)
    assert (done.kept, done.is_continued, list(done.migrated)) == (str(database.with_name(KEPT)), False, [])
    assert names(database.parent) == ["paykit.db", KEPT, f"{KEPT}-wal"]
    assert transfers.balance(database, "a") == 300
    assert transfers.balance(database.with_name(KEPT), "a") == 250
    assert_sound(database)


def test_restored_file_says_when_and_forgets_what_was_asked_before(tmp_path: Path, database: Path) -> None:
    with ledger_file(database) as connection:
        connection.execute("INSERT INTO empty_lookups VALUES ('acct_123', '2026-01-01', 1)")
        key = connection.execute("SELECT digest_key FROM database_facts").get
    back_up(database, tmp_path / "later.db")
    put_back(tmp_path / "later.db", database)
    with ledger_file(database) as connection:
        assert connection.execute("SELECT restored_at_ms FROM database_facts").get == NOW_MS
        assert connection.execute("SELECT count(*) FROM empty_lookups").get == 0
        assert connection.execute("SELECT digest_key FROM database_facts").get == key
    with ledger_file(tmp_path / "later.db") as connection:
        assert connection.execute("SELECT count(*) FROM empty_lookups").get == 1


def test_kill_between_any_two_steps_leaves_old_or_new_or_says_so_and_the_next_restore_finishes(
    copy: Path, database: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fault.restore_child", "trials", str(copy), str(database.parent)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(RestoreStep) * (len(RestoreStep) + 1)
    left = dict.fromkeys(RestoreStep, "says so") | {RestoreStep.BUILT: "old", RestoreStep.FINISHED: "new"}
    for line in lines:
        first, *_, last = line["states"]
        assert first == ["killed", left[RestoreStep(line["kills"][0])]], line
        assert {state for _, state in line["states"]} <= {"old", "new", "says so"}, line
        assert last == ["exit 0", "new"], line
        # The old database is kept, with its log; a restore after one that was complete keeps what that one restored.
        kept = {name: state for name, state in line["kept"].items() if not name.endswith("-wal")}
        assert kept.pop(KEPT) == "old", line
        assert all(name.startswith("paykit.db.before-restore-") and kept[name] == "new" for name in kept), line
        assert [name for name in line["kept"] if name.endswith("-wal")] == [f"{KEPT}-wal"], line


def cut_off(copy: Path, database: Path, step: RestoreStep) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fault.restore_child", "once", str(copy), str(database), step],
        cwd=ROOT,
        env=environment(),
        check=False,
        timeout=PROGRAM_TIMEOUT_S,
    )
    assert done.returncode == -signal.SIGKILL


def test_every_way_to_open_a_half_restored_database_says_so(copy: Path, database: Path) -> None:
    cut_off(copy, database, RestoreStep.OLD_MOVED)
    before = names(database.parent)
    for attempt in (
        lambda: Store(database),
        lambda: transfers.balance(database, "a"),
        lambda: transfers.init_db(database),
        lambda: file_status(database),
        lambda: check_file(database),
        lambda: back_up(database, database.with_name("x.db")),
        lambda: put_back(database, copy.with_name("elsewhere.db")),
    ):
        with pytest.raises(DatabaseUnusable, match=r"half restored.*`paykit-settle db restore FILE`"):
            attempt()
    for words in (("serve", "--port", "0"), ("resume",), ("db", "status")):
        told = paykit(*words, "--database", str(database), cwd=database.parent)
        assert (told.returncode, "half restored" in told.stderr) == (2, True), told.stderr
    assert names(database.parent) == before  # nobody has made a file there meanwhile
    done = paykit("db", "restore", str(copy), "--database", str(database), cwd=database.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert "had been cut off: it is finished now" in done.stdout
    assert transfers.balance(database, "a") == 300


@pytest.mark.parametrize(
    "step", [RestoreStep.MARKED, RestoreStep.LOG_MOVED, RestoreStep.OLD_MOVED, RestoreStep.EXCHANGED]
)
def test_restore_that_was_cut_off_may_be_followed_by_one_of_another_back_up(
    tmp_path: Path, copy: Path, database: Path, step: RestoreStep
) -> None:
    other = tmp_path / "other.db"
    transfers.init_db(other)
    transfers.add_account(other, "a", 7)
    database.chmod(0o640)
    cut_off(copy, database, step)
    with pytest.raises(DatabaseUnusable, match="`db restore` again finishes it"):
        put_back(ROOT / "README.md", database)  # a wrong file spoils nothing
    assert not put_back(other, database).is_continued
    assert stat.S_IMODE(database.stat().st_mode) == 0o640
    assert transfers.balance(database, "a") == 7
    assert transfers.balance(database.with_name(KEPT), "a") == 250
    assert not [name for name in names(database.parent) if ".restore-" in name or name.endswith("-restoring")]


def test_marker_whose_file_is_gone_is_healed_by_the_next_restore(copy: Path, database: Path) -> None:
    cut_off(copy, database, RestoreStep.LOG_MOVED)
    (new,) = [name for name in names(database.parent) if ".restore-" in name]
    database.with_name(new).unlink()
    put_back(copy, database)
    assert transfers.balance(database, "a") == 300
    assert transfers.balance(database.with_name(KEPT), "a") == 250


def test_marker_that_cannot_be_read_is_named_and_nothing_is_touched(copy: Path, database: Path) -> None:
    for text in ("{", '{"new":"../x","kept":"paykit.db.k","restored_at_ms":1,"source_sha256":""}'):
        database.with_name("paykit.db-restoring").write_text(text)
        before = bytes_of(database.parent)
        with pytest.raises(DatabaseUnusable, match=r"paykit.db-restoring is no marker"):
            put_back(copy, database)
        assert bytes_of(database.parent) == before


def test_what_ended_restores_have_built_is_removed_by_the_next(copy: Path, database: Path) -> None:
    for name in ("paykit.db.restore-0123456789abcdef", "paykit.db.restore-0123456789abcdef-journal"):
        database.with_name(name).write_bytes(b"half")
    for name in ("paykit.db.restore-mine", "other.db.restore-0123456789abcdef"):
        database.with_name(name).write_bytes(b"somebody's")
    put_back(copy, database)
    left = [name for name in names(database.parent) if ".restore-" in name]
    assert left == ["other.db.restore-0123456789abcdef", "paykit.db.restore-mine"]


def test_symbolic_link_stays_and_the_file_behind_it_is_exchanged(tmp_path: Path, copy: Path, database: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(database)
    cut_off(copy, link, RestoreStep.LOG_MOVED)
    for path in (link, database):
        with pytest.raises(DatabaseUnusable, match="half restored"):
            Store(path)
    put_back(copy, link)
    assert link.readlink() == database
    assert transfers.balance(link, "a") == transfers.balance(database, "a") == 300
    assert transfers.balance(database.with_name(KEPT), "a") == 250
    with pytest.raises(InvalidRequest, match="is the database itself"):
        put_back(link, database)


def test_place_where_no_database_is_gets_one_that_only_its_owner_reads(tmp_path: Path, copy: Path) -> None:
    place = tmp_path / "new-host"
    place.mkdir()
    done = paykit("db", "restore", str(copy), "--database", str(place / "paykit.db"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no database was there before" in done.stdout
    assert names(place) == ["paykit.db"]
    assert stat.S_IMODE((place / "paykit.db").stat().st_mode) == 0o600
    assert transfers.balance(place / "paykit.db", "a") == 300


def test_log_without_its_database_is_not_applied_either(copy: Path, database: Path) -> None:
    database.unlink()
    put_back(copy, database)
    assert transfers.balance(database, "a") == 300
    assert names(database.parent) == ["paykit.db", f"{KEPT}-wal"]


def test_restored_file_has_the_mode_of_the_old_one(copy: Path, database: Path) -> None:
    database.chmod(0o640)
    put_back(copy, database)
    assert stat.S_IMODE(database.stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_restored_file_belongs_to_whom_the_old_one_belonged(copy: Path, database: Path) -> None:
    os.chown(database, 12345, 54321)
    put_back(copy, database)
    assert (database.stat().st_uid, database.stat().st_gid) == (12345, 54321)


def test_database_is_never_restored_from_itself(tmp_path: Path, database: Path) -> None:
    before = bytes_of(database.parent)
    hard = tmp_path / "hard.db"
    hard.hardlink_to(database)
    for file in (database, hard, database.parent / ".." / "live" / "paykit.db"):
        with pytest.raises(InvalidRequest, match="is the database itself"):
            put_back(file, database)
    assert bytes_of(database.parent) == before


def damaged(copy: Path, how: str) -> Path:
    file = copy.with_name(f"{how}.db")
    text = bytearray(copy.read_bytes())
    if how == "random":
        text = bytearray(os.urandom(8192))
    elif how == "empty":
        text.clear()
    elif how == "cut":
        del text[len(text) // 2 :]
    elif how == "page":
        text[len(text) // 2 : len(text) // 2 + 1024] = bytes(1024)
    file.write_bytes(text)
    if how == "foreign":
        file.unlink()
        apsw.Connection(str(file)).execute("CREATE TABLE notes (text)")
    elif how == "newer":
        with ledger_file(file) as connection:
            connection.execute("INSERT INTO migrations VALUES (99, 'later', 'x', 1)")
    elif how == "changed":
        with ledger_file(file) as connection:
            connection.execute("UPDATE migrations SET sha256 = 'x' WHERE number = 2")
    elif how == "unsound":
        with ledger_file(file) as connection:
            connection.execute("UPDATE accounts SET balance = 1 WHERE id = 'b'")
    return file


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ("missing", DatabaseUnusable, "cannot be opened"),
        ("random", DatabaseUnusable, "not a database"),
        ("empty", DatabaseUnusable, "holds no ledger"),
        ("cut", DatabaseUnusable, "malformed|damaged"),
        ("page", DatabaseUnusable, "malformed|damaged"),
        ("foreign", DatabaseUnusable, "belongs to another program"),
        ("newer", DatabaseTooNew, "newer.db was migrated to 99"),
        ("changed", DatabaseUnusable, "is not the one that this program knows"),
        ("unsound", DatabaseUnusable, "is not sound: 'local' 'b' 'usd' is not the sum of its entries"),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_back_up_that_is_not_sound_and_ours_is_refused_and_nothing_changes(
    copy: Path, database: Path, how: str, kind: type[SettleError], said: str, *, is_there: bool
) -> None:
    file = copy.with_name("none.db") if how == "missing" else damaged(copy, how)
    if not is_there:
        database = database.parent / "elsewhere.db"
    before = bytes_of(database.parent)
    with pytest.raises(kind, match=said) as refused:
        put_back(file, database)
    assert type(refused.value) is kind
    assert "nothing was changed" in str(refused.value)
    assert bytes_of(database.parent) == before


def test_folder_or_pipe_is_no_back_up_and_no_database(tmp_path: Path, copy: Path, database: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file, place in ((tmp_path, database), (tmp_path / "pipe", database), (copy, tmp_path)):
        with pytest.raises(InvalidRequest, match="is no file"):
            put_back(file, place)
    with pytest.raises(DatabaseUnusable, match="No such file or directory"):
        put_back(copy, tmp_path / "no" / "such" / "paykit.db")


def test_damaged_database_is_replaced_and_kept_as_it_was(copy: Path, database: Path) -> None:
    database.write_bytes(b"not a database" * 100)
    before = bytes_of(database.parent)
    put_back(copy, database)
    assert transfers.balance(database, "a") == 300
    assert database.with_name(KEPT).read_bytes() == before["paykit.db"]
    assert database.with_name(f"{KEPT}-wal").read_bytes() == before["paykit.db-wal"]


def test_back_up_of_the_first_release_is_migrated_by_its_restore(tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    done = paykit("db", "restore", str(RELEASE), "--database", str(database), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "0003_whole_days" in told["migrated"]
    assert (told["kept"], told["database"]) == (None, str(database))
    status = file_status(database)
    assert list(status.pending) == []
    runs, ((restored_at_ms,),) = peek(
        database, "SELECT id, state FROM runs ORDER BY id", "SELECT restored_at_ms FROM database_facts"
    )
    assert runs == peek(RELEASE, "SELECT id, state FROM runs ORDER BY id")[0]
    assert restored_at_ms == told["restored_at_ms"]
    assert_sound(database)


def test_restore_can_be_undone_by_restoring_what_it_kept(copy: Path, database: Path) -> None:
    kept = put_back(copy, database).kept
    assert kept is not None
    put_back(Path(kept), database)
    assert transfers.balance(database, "a") == 250
    assert [name for name in names(database.parent) if name.endswith(f"{KEPT}.2")] == [f"{KEPT}.2"]


async def test_running_service_keeps_its_database(copy: Path, tmp_path: Path) -> None:
    place = tmp_path / "served" / "paykit.db"
    place.parent.mkdir()
    with service_process(place) as (process, _):
        before = names(place.parent)
        words = ("db", "restore", str(copy), "--database", str(place))
        refused = await asyncio.to_thread(paykit, *words, cwd=tmp_path, env={"PAYKIT_BUSY_TIMEOUT_MS": "50"})
        assert refused.returncode == 3, refused.stdout
        assert "is open in another process" in refused.stderr
        assert "stop the service" in refused.stderr
        assert names(place.parent) == before
        process.terminate()
        process.wait()
    assert paykit(*words, cwd=tmp_path).returncode == 0
    assert transfers.balance(place, "a") == 300


_HOLD = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
for sql in sys.argv[2:]:
    connection.execute(sql).fetchall()
print("holding", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "statements",
    [
        ["PRAGMA journal_mode = WAL", "SELECT * FROM accounts"],  # idle, but it has the log open
        ["PRAGMA journal_mode = WAL", "BEGIN IMMEDIATE"],
        ["PRAGMA journal_mode = DELETE", "BEGIN", "SELECT * FROM accounts"],
        ["PRAGMA journal_mode = DELETE", "BEGIN IMMEDIATE"],
        ["PRAGMA journal_mode = DELETE", "BEGIN EXCLUSIVE"],
    ],
)
def test_database_that_any_program_has_open_is_left_alone(copy: Path, database: Path, statements: list[str]) -> None:
    command = [sys.executable, "-c", _HOLD, str(database), *statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "holding\n"
        before = names(database.parent)
        with pytest.raises(StoreBusy, match=r"is open in another process \(it is locked\)"):
            put_back(copy, database)
        assert names(database.parent) == before
        other.communicate("\n", timeout=PROGRAM_TIMEOUT_S)
    put_back(copy, database)
    assert transfers.balance(database, "a") == 300


def test_process_that_settles_on_a_database_is_named_even_where_the_file_is_gone(copy: Path, database: Path) -> None:
    database.unlink()
    owner = Owner(database)
    try:
        with pytest.raises(StoreBusy, match=r"1 process\(es\) settle on it"):
            put_back(copy, database)
    finally:
        owner.close()
    put_back(copy, database)


def test_nobody_gets_in_while_a_restore_is_at_work(copy: Path, database: Path) -> None:
    told: dict[RestoreStep, str] = {}

    def look(step: RestoreStep) -> None:
        words = ("db", "status", "--database", str(database))
        told[step] = paykit(*words, cwd=database.parent).stderr
        again = paykit("db", "restore", str(copy), "--database", str(database), cwd=database.parent)
        assert (again.returncode, "another restore is at work" in again.stderr) == (3, True), again.stderr
        assert "cut off" not in again.stderr

    restore(copy, database, now_ms=NOW_MS, at_step=look)
    assert list(told) == list(RestoreStep)
    assert "locked by another process" in told[RestoreStep.BUILT]
    assert told.pop(RestoreStep.FINISHED) == ""
    assert all("half restored" in told[step] for step in list(told)[1:])
    assert transfers.balance(database, "a") == 300


def test_file_that_is_exchanged_while_it_is_being_opened_is_refused(
    copy: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker came and went between the first look and the opening."""
    with ledger_file(database) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    real = apsw.Connection

    def exchanged_then(path: str, flags: int) -> apsw.Connection:
        opened = real(path, flags=flags)
        if path == str(database):
            monkeypatch.setattr(apsw, "Connection", real)
            cut = subprocess.run(
                [sys.executable, "-m", "tests.fault.restore_child", "once", str(copy), path], cwd=ROOT, check=False
            )
            assert cut.returncode == 0
        return opened

    monkeypatch.setattr(apsw, "Connection", exchanged_then)
    with pytest.raises(StoreBusy, match="was exchanged while it was opened"):
        connect(database)
    assert transfers.balance(database, "a") == 300


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, StoreUnavailable), (errno.EROFS, DatabaseUnusable)])
@pytest.mark.parametrize("step", list(RestoreStep)[:-1])
def test_disk_that_takes_no_more_leaves_the_old_file_or_a_restore_to_finish(
    copy: Path, database: Path, step: RestoreStep, code: int, kind: type[SettleError]
) -> None:
    before = bytes_of(database.parent)

    def fail(reached: RestoreStep) -> None:
        if reached is step:
            raise OSError(code, os.strerror(code), "x")

    with pytest.raises(kind, match=os.strerror(code)) as failed:
        restore(copy, database, now_ms=NOW_MS, at_step=fail)
    if step is RestoreStep.BUILT:
        assert "nothing was changed" in str(failed.value)
        assert bytes_of(database.parent) == before
    else:
        assert "`db restore` again finishes it" in str(failed.value)
        assert put_back(copy, database).is_continued
        assert transfers.balance(database, "a") == 300
        assert transfers.balance(database.with_name(KEPT), "a") == 250


def test_disk_that_is_full_before_the_copy_is_whole_changes_nothing(copy: Path, database: Path) -> None:
    """A real bound of the operating system on what the process may write."""
    before = bytes_of(database.parent)
    done = subprocess.run(
        [sys.executable, "-m", "paykit_settle", "db", "restore", str(copy), "--database", str(database)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PROGRAM_TIMEOUT_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)),
    )
    assert done.returncode == 3, done.stderr
    assert "store_unavailable" in done.stderr
    assert "nothing was changed" in done.stderr
    assert bytes_of(database.parent) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into every folder")
def test_folder_that_may_not_be_written_is_named(copy: Path, database: Path) -> None:
    before = bytes_of(database.parent)
    database.parent.chmod(0o500)
    try:
        with pytest.raises(DatabaseUnusable, match="Permission denied"):
            put_back(copy, database)
    finally:
        database.parent.chmod(0o700)
    assert bytes_of(database.parent) == before


def test_place_that_takes_no_files_is_named(copy: Path) -> None:
    """A folder that is read-only for everybody, root too."""
    with pytest.raises(
        DatabaseUnusable, match=r"/proc/self/paykit.db cannot be restored|/paykit.db cannot be restored"
    ):
        put_back(copy, Path("/proc/self/paykit.db"))
