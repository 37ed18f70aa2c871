"""`run --dry-run`, as a person types it: what it shows is what `run` then does, and nothing anywhere is changed by it.

Without these a dry run could show a total without its late rows, under a key that is used up, or of a day that is
settled already; or it could migrate, move or lock the very file that somebody only wanted to look at.
"""

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from fake_processor import FakeProcessor
from fake_processor.wire import Request
from paykit_settle import cli_settling, transfers
from paykit_settle.cli import main
from paykit_settle.errors import StoreBusy
from paykit_settle.store import copying
from paykit_settle.store.copying import working_copy
from paykit_settle.store.database import RESTORING_SUFFIX
from paykit_settle.store.migrations import known_migrations
from paykit_settle.store.owner import Owner
from paykit_settle.store.store import Store
from tests.fault.stage import ACCOUNT, DAY, LIST, SETTLEMENTS, columns, posts, refuse, scripted
from tests.programs import PAYKIT, environment, running

DATABASE = "paykit.db"
D13, D14, D16, D17 = "2026-01-13", "2026-01-14", "2026-01-16", "2026-01-17"
RELEASE = Path(__file__).parents[1] / "data" / "releases" / "0.1.0.db"

READ_URI = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Done]


@pytest.fixture
def fake() -> Iterator[FakeProcessor]:
    with FakeProcessor() as processor:
        yield processor


@pytest.fixture
def run(
    fake: FakeProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """`paykit-settle run` for the reference account, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PAYKIT_PROCESSOR_URL", fake.url)
    monkeypatch.setenv("PAYKIT_ATTEMPTS_MAX", "1")

    def call(*words: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(["run", "--account", ACCOUNT, *words])
        told = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, told.out, told.err)

    return call


def files(folder: Path) -> dict[str, bytes]:
    """Every file in a folder and below it, byte for byte, but for the index of a log, which is no content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if not path.name.endswith("-shm") else b""
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def shown_and_done(run: Run, fake: FakeProcessor, *words: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What the dry run says, then what the run says; the dry run has changed nothing and sent GETs alone."""
    before, seen = files(Path.cwd()), len(fake.requests)
    looked = run(*words, "--json", "--dry-run")
    assert files(Path.cwd()) == before
    assert {request.method for request in fake.requests[seen:]} <= {"GET"}
    done = run(*words, "--json")
    assert done.code == looked.code
    return looked.json, done.json


def sent(fake: FakeProcessor, number: int = -1) -> tuple[str, str | None]:
    """The digest and the key of a settlement that was sent."""
    return hashlib.sha256(posts(fake)[number].body).hexdigest(), posts(fake)[number].idempotency_key


# What is shown is what will be done.


def test_dry_run_shows_the_late_rows_and_the_very_bytes_and_key_that_the_run_sends(
    run: Run, fake: FakeProcessor
) -> None:
    assert run("--date", DAY).code == 0
    fake.state.release_pending(ACCOUNT)
    (looked,), (done,) = shown_and_done(run, fake, "--date", D16, "--after-restore-checked")
    assert looked["would"] == "post"
    assert [late["period"] for late in looked["late"]] == [DAY]
    assert looked["total_net"] == done["total_net"] != 0
    assert (looked["body_sha256"], looked["idempotency_key"]) == sent(fake)
    assert looked["payload"] == json.loads(posts(fake)[-1].body)
    same = set(looked) & set(done) - {"settlement_id"}
    assert {name: looked[name] for name in same} == {name: done[name] for name in same}
    assert {"lines", "late", "pending", "run_id", "warnings", "earlier_days"} <= same


def test_settled_day_is_shown_as_settled_already_and_nothing_would_be_sent(run: Run, fake: FakeProcessor) -> None:
    assert run("--date", DAY).code == 0
    told = run("--date", DAY, "--dry-run")
    assert told.out.splitlines()[-1] == "Dry run: settled already as setl_0001 (run_000001), nothing would be sent"
    (looked,), (done,) = shown_and_done(run, fake, "--date", DAY)
    assert (looked["would"], looked["state"], looked["settlement_id"]) == ("nothing", "posted", "setl_0001")
    assert (done["replayed"], done["settlement_id"]) == (True, "setl_0001")
    assert (looked["body_sha256"], looked["idempotency_key"]) == sent(fake, 0)
    assert len(posts(fake)) == 1


def test_missing_database_is_no_runs_yet_and_is_not_made(run: Run, fake: FakeProcessor) -> None:
    told = run("--date", DAY, "--dry-run")
    assert (told.code, os.listdir()) == (0, [])
    assert f"note     there is no database {DATABASE} yet: no day was ever run" in told.out
    (looked,), (done,) = shown_and_done(run, fake, "--date", DAY)
    assert looked["warnings"] == [f"there is no database {DATABASE} yet: no day was ever run"]
    assert (looked["state"], looked["run_id"], done["warnings"]) == (None, "run_000001", [])
    assert (looked["body_sha256"], looked["idempotency_key"]) == sent(fake)


def test_range_is_shown_as_it_will_be_run_each_day_after_the_one_before(run: Run, fake: FakeProcessor) -> None:
    """Alone, each day would take the late rows in; in the range the first one does."""
    assert run("--date", D14).code == 0
    fake.state.add_transactions(ACCOUNT, [late_row("late", 500)])
    words = ("--from", DAY, "--to", D17, "--after-restore-checked")
    looked, done = shown_and_done(run, fake, *words)
    assert [[late["period"] for late in day["late"]] for day in looked] == [[D14], [], []]
    assert [day["run_id"] for day in looked] == [day["run_id"] for day in done]
    assert [(day["body_sha256"], day["idempotency_key"]) for day in looked] == [sent(fake, n) for n in (1, 2, 3)]


def late_row(identity: str, amount: int) -> dict[str, object]:
    created = int(datetime.fromisoformat(f"{D14}T12:00:00+00:00").timestamp())
    row = {"id": identity, "object": "balance_transaction", "type": "charge", "amount": amount, "fee": 0}
    return row | {"net": amount, "currency": "usd", "status": "available", "created": created}


def test_day_that_has_not_ended_is_looked_at_and_named_as_what_run_would_refuse(run: Run) -> None:
    today = datetime.now(UTC).date().isoformat()
    told = run("--date", today, "--dry-run")
    refused = run("--date", today)
    assert (told.code, refused.code) == (0, 2)
    opens = refused.err.partition("window_open: ")[2].partition(" (now")[0]
    assert f"window_open: {opens}" in told.out
    assert "until then `run` refuses" in told.out
    (looked,) = run("--date", today, "--dry-run", "--json").json
    assert looked["window_open"].startswith(opens)


# A run that exists.


def test_run_of_unknown_outcome_is_shown_as_frozen_and_would_be_sent_again_as_it_is(
    run: Run, fake: FakeProcessor
) -> None:
    fake.fault("error_502", route=f"POST {SETTLEMENTS}")
    assert run("--date", DAY).code == 4
    fake.heal()
    fake.state.update_transaction(ACCOUNT, "txn_01", amount=1)  # what is frozen stays as it is
    told = run("--date", DAY, "--dry-run").out
    assert "run_000001 is unknown, its settlement is frozen: it would be looked up and sent again as it is" in told
    (looked,), (done,) = shown_and_done(run, fake, "--date", DAY)
    assert (looked["would"], looked["state"], looked["settlement_id"]) == ("post again", "unknown", None)
    assert looked["total_net"] == done["total_net"] == 145199
    assert (looked["body_sha256"], looked["idempotency_key"]) == sent(fake, 0) == sent(fake)


def test_settlement_that_the_processor_has_already_would_be_booked_and_not_sent(run: Run, fake: FakeProcessor) -> None:
    fake.fault("reset_after_effect", route=f"POST {SETTLEMENTS}", count=1)
    fake.fault("error_503", route=f"GET {SETTLEMENTS}", after=1)
    assert run("--date", DAY).code == 4
    fake.heal()
    assert "already as setl_0001, of these very bytes: it would be booked" in run("--date", DAY, "--dry-run").out
    (looked,), (done,) = shown_and_done(run, fake, "--date", DAY)
    assert (looked["would"], looked["settlement_id"]) == ("book", "setl_0001")
    assert (done["settlement_id"], done["replayed"], len(posts(fake))) == ("setl_0001", False, 1)


def test_other_settlement_at_the_processor_is_the_same_conflict(run: Run, fake: FakeProcessor) -> None:
    fake.state.add_settlement(ACCOUNT, DAY, settlement_currency="usd", lines=[], total_net=0)
    looked, done = shown_and_done(run, fake, "--date", DAY)
    assert looked == done
    assert looked[0]["error"] == "settlement_conflict"


def test_rejected_day_is_the_same_refusal_and_with_retry_rejected_the_next_attempt(
    run: Run, fake: FakeProcessor
) -> None:
    cue = scripted(fake)
    cue.instead = refuse(422)
    assert run("--date", DAY).code == 1
    cue.behave()
    looked, done = shown_and_done(run, fake, "--date", DAY)
    assert looked == done
    assert looked[0]["error"] == "processor_rejected"
    (again,), _ = shown_and_done(run, fake, "--date", DAY, "--retry-rejected")
    assert (again["would"], again["state"]) == ("post", "rejected")
    assert (again["body_sha256"], again["idempotency_key"]) == sent(fake)
    assert sent(fake)[1] != sent(fake, 0)[1]


@pytest.mark.parametrize("refused", ["rows", "processor"])
def test_refused_day_is_the_same_refusal_with_the_same_rows(run: Run, fake: FakeProcessor, refused: str) -> None:
    fake.state.update_transaction(ACCOUNT, "txn_01", status="odd")
    if refused == "processor":
        fake.fault("error_503", route=f"GET {LIST}", retry_after_s=0)
    (looked,), (done,) = shown_and_done(run, fake, "--date", DAY)
    if refused == "processor":
        looked, done = (
            {name: each[name].partition(" (")[0] for name in ("error", "detail")} for each in (looked, done)
        )
    assert looked == done
    assert looked["error"] == ("run_refused" if refused == "rows" else "processor_unavailable")


def test_day_that_fails_ends_the_range_as_it_ends_the_run(run: Run, fake: FakeProcessor) -> None:
    fake.state.update_transaction(ACCOUNT, "txn_01", status="odd")
    words = ("--from", D14, "--to", D16, "--json")
    looked, done = run(*words, "--dry-run"), run(*words)
    assert [day["date"] for day in looked.json] == [day["date"] for day in done.json] == [D14, DAY]
    assert looked.json[1] == done.json[1]
    assert looked.err == done.err == "1 later day(s) were not run\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--zone", "Europe/Berlin", "--zone-changed"), "the zone of acct_123 has changed from Etc/UTC"),
        (("--currency", "eur", "--new-terms"), None),
        (("--processor-moved",), "the processor of acct_123 has moved"),
    ],
    ids=["zone-changed", "new-terms", "processor-moved"],
)
def test_what_a_person_says_along_holds_for_the_dry_run_and_changes_nothing(
    run: Run, fake: FakeProcessor, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str | None
) -> None:
    assert run("--date", D14).code == 0
    fake.fault("forbidden", route=f"GET {LIST}")
    assert run("--date", DAY).code == 1
    fake.heal()
    if "--processor-moved" in words:
        monkeypatch.setenv("PAYKIT_PROCESSOR_URL", fake.url.replace("127.0.0.1", "localhost"))
    without = [word for word in words if word not in ("--zone-changed", "--new-terms", "--processor-moved")]
    looked, _ = shown_and_done(run, fake, "--date", DAY, *without)
    assert looked[0]["error"] == "settlement_conflict"
    (shown,), (done,) = shown_and_done(run, fake, "--date", DAY, *words)
    assert (shown["body_sha256"], shown["idempotency_key"]) == sent(fake)
    assert shown["warnings"] == done["warnings"]
    assert said is None or any(warning.startswith(said) for warning in shown["warnings"])


# The file, and who else uses it.


def test_run_in_progress_elsewhere_is_the_same_refusal(run: Run, fake: FakeProcessor, tmp_path: Path) -> None:
    fake.fault("forbidden", route=f"GET {LIST}")
    assert run("--date", DAY).code == 1
    fake.heal()
    other, dead = Owner(tmp_path / DATABASE), Owner(tmp_path / DATABASE)
    claim(tmp_path, other.name)
    looked, done = shown_and_done(run, fake, "--date", DAY)
    assert looked == done
    assert looked[0]["error"] == "run_in_progress"
    other.close()
    dead._lock.close()  # as a kill leaves it: the file stays, and is not the dry run's to remove
    claim(tmp_path, dead.name)
    (taken,), _ = shown_and_done(run, fake, "--date", DAY)
    assert (taken["would"], taken["state"]) == ("post", "pulling")
    assert (taken["body_sha256"], taken["idempotency_key"]) == sent(fake)


def claim(folder: Path, owner: str) -> None:
    connection = apsw.Connection(str(folder / DATABASE))
    connection.execute("UPDATE runs SET state = 'pulling', owner = ?", (owner,))
    connection.close()


def test_database_of_an_older_version_is_migrated_in_the_copy_alone(run: Run, fake: FakeProcessor) -> None:
    shutil.copy(RELEASE, DATABASE)
    before = Path(DATABASE).read_bytes()
    assert len(columns(RELEASE, "SELECT number FROM migrations")) < len(known_migrations())
    looked = run("--date", "2026-01-13", "--dry-run", "--json")
    assert (looked.json[0]["would"], looked.json[0]["state"]) == ("nothing", "posted")
    assert (Path(DATABASE).read_bytes(), os.listdir()) == (before, [DATABASE])
    assert fake.requests == []


@pytest.mark.parametrize("state", ["newer", "half restored", "damaged", "another program's", "a folder", "no folder"])
def test_database_that_cannot_be_used_is_the_same_refusal(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str
) -> None:
    path = tmp_path / DATABASE
    if state == "newer":
        Store(path).close()
        connection = apsw.Connection(str(path))
        connection.execute("INSERT INTO migrations VALUES (999, 'later', 'x', 0)")
        connection.close()
    elif state == "half restored":
        Path(f"{path}{RESTORING_SUFFIX}").write_text("{}")
    elif state == "damaged":
        path.write_bytes(b"no database" * 1000)
    elif state == "another program's":
        connection = apsw.Connection(str(path))
        connection.execute("CREATE TABLE t (c)")
        connection.close()
    elif state == "a folder":
        path.mkdir()
    else:
        monkeypatch.setenv("PAYKIT_DATABASE", "nowhere/paykit.db")
    before = files(tmp_path)
    looked = run("--date", DAY, "--dry-run", "--json")
    assert files(tmp_path) == before
    done = run("--date", DAY, "--json")
    assert (looked.code, looked.json[0]["error"]) == (done.code, done.json[0]["error"])
    if state in ("newer", "half restored", "damaged", "another program's"):
        assert looked.out.replace(f"{tmp_path}/", "") == done.out.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize("left", ["closed", "log and index", "log alone", "index alone", "journal", "no log"])
def test_file_is_unchanged_byte_for_byte_and_nothing_is_made_beside_it(
    run: Run, fake: FakeProcessor, tmp_path: Path, left: str
) -> None:
    """Whatever a kill, a copy by hand or another mode has left: what is committed counts, and stays where it is."""
    leave(tmp_path, run, left)
    before = files(tmp_path)
    looked = run("--date", DAY, "--dry-run", "--json")
    assert files(tmp_path) == before
    assert looked.json[0]["state"] == "posted"
    assert (looked.json[0]["would"], looked.json[0]["settlement_id"]) == ("nothing", "setl_0001")
    assert run("--date", DAY, "--json").json[0]["replayed"] is True


def leave(folder: Path, run: Run, left: str) -> None:
    path = folder / DATABASE
    if left == "no log":
        transfers.init_db(path)
    if left in ("closed", "index alone", "no log"):
        assert run("--date", DAY).code == 0
        if left == "index alone":
            Path(f"{path}-shm").write_bytes(bytes(32768))
        return
    if left == "journal":
        assert run("--date", DAY).code == 0
        Path(f"{path}").rename(f"{path}.source")
        half_written(Path(f"{path}.source"), path)
        return
    # What a running service has committed is in its log; a copy of its files is what a power cut leaves.
    with running(str(PAYKIT), "serve", "--port", "0", cwd=folder, env=dict(os.environ)) as (process, _):
        assert run("--date", DAY).code == 0
        kept = ("", "-wal", "-shm") if left == "log and index" else ("", "-wal")
        for suffix in kept:
            subprocess.run(["cp", f"{path}{suffix}", f"{folder}/kept{suffix}"], check=True)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    for suffix in kept:
        Path(f"{folder}/kept{suffix}").rename(f"{path}{suffix}")
    assert Path(f"{path}-wal").stat().st_size > 0


def half_written(source: Path, target: Path) -> None:
    """A file with a hot journal: a transaction was cut off after its pages were written and before it was committed."""
    connection = apsw.Connection(str(source))
    connection.execute("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; PRAGMA cache_spill = 1")
    connection.execute("BEGIN IMMEDIATE; UPDATE pages SET body = randomblob(100000); UPDATE runs SET state = 'failed'")
    connection.cache_flush()
    for suffix in ("", "-journal"):
        subprocess.run(["cp", f"{source}{suffix}", f"{target}{suffix}"], check=True)
    connection.execute("ROLLBACK")
    connection.close()
    source.unlink()
    assert Path(f"{target}-journal").stat().st_size > 0
    uncommitted = apsw.Connection(f"file:{target}?mode=ro&immutable=1", flags=READ_URI)
    assert uncommitted.execute("SELECT DISTINCT state FROM runs").get == "failed"
    uncommitted.close()


def test_file_that_a_service_has_open_is_read_beside_it_and_unchanged(
    run: Run, fake: FakeProcessor, tmp_path: Path
) -> None:
    with running(str(PAYKIT), "serve", "--port", "0", cwd=tmp_path, env=dict(os.environ)):
        assert run("--date", DAY).code == 0
        before = files(tmp_path)
        assert len(before[f"{DATABASE}-wal"]) > 0
        (looked,) = run("--date", DAY, "--dry-run", "--json").json
        assert files(tmp_path) == before
        assert (looked["would"], looked["settlement_id"]) == ("nothing", "setl_0001")
        (looked,), _ = shown_and_done(run, fake, "--date", D16)
        assert (looked["body_sha256"], looked["idempotency_key"]) == sent(fake)


def test_locked_file_is_busy_as_for_the_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transfers.init_db(tmp_path / DATABASE)
    monkeypatch.setenv("PAYKIT_BUSY_TIMEOUT_MS", "50")
    with holding(tmp_path / DATABASE, "BEGIN EXCLUSIVE"):
        looked, done = run("--date", DAY, "--dry-run", "--json"), run("--date", DAY, "--json")
    assert (looked.code, looked.json[0]["error"]) == (done.code, done.json[0]["error"]) == (3, "store_busy")


# The copy.


def test_copy_is_its_users_alone_and_gone_at_the_end(tmp_path: Path) -> None:
    Store(tmp_path / DATABASE).close()
    with working_copy(tmp_path / DATABASE) as copy:
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
        Store(copy).close()
    assert not copy.parent.exists()


def test_file_that_is_opened_and_written_while_it_is_copied_is_copied_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that somebody may have written meanwhile are not believed; what he has committed is in the copy."""
    path, opener = tmp_path / DATABASE, ExitStack()
    Store(path).close()
    copy_bytes = copying._copy_bytes

    def somebody_comes(descriptor: int, file: Path, copy: Path) -> None:
        copy_bytes(descriptor, file, copy)
        opener.enter_context(holding(path, "BEGIN IMMEDIATE; INSERT INTO empty_lookups VALUES ('a', 'b', 1); COMMIT"))

    monkeypatch.setattr(copying, "_copy_bytes", somebody_comes)
    with opener, working_copy(path) as copy:
        assert columns(copy, "SELECT account FROM empty_lookups") == [("a",)]


def test_file_that_a_restore_exchanges_while_it_is_opened_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / DATABASE
    Store(path).close()
    shutil.copy(path, tmp_path / "other.db")
    monkeypatch.setattr(copying, "_lock", lambda *_: (tmp_path / "other.db").rename(path))
    with pytest.raises(StoreBusy, match="was exchanged"), working_copy(path):
        pass


@contextmanager
def holding(path: Path, sql: str) -> Iterator[None]:
    """Another process that has done something to a database, and has it open."""
    program = (
        "import apsw, sys; c = apsw.Connection(sys.argv[1]); c.execute(sys.argv[2]); print('done', flush=True);"
        "sys.stdin.read()"
    )
    python = str(PAYKIT.parent / "python")
    with subprocess.Popen(
        [python, "-c", program, str(path), sql], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "done\n"
        try:
            yield
        finally:
            other.communicate()


def test_copy_without_room_for_it_is_refused_with_the_bytes_that_it_needs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path / DATABASE).close()
    size = (tmp_path / DATABASE).stat().st_size
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(size, 1, size - 1))
    looked = run("--date", DAY, "--dry-run", "--json")
    assert (looked.code, looked.json[0]["error"]) == (3, "store_unavailable")
    assert f"{size:,} bytes" in looked.json[0]["detail"]


def test_large_database_is_said_to_be_copied(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "copying" not in run("--date", DAY, "--dry-run").err
    assert run("--date", DAY).code == 0
    monkeypatch.setattr(cli_settling, "LARGE_BYTES", 1024)
    assert "the dry run works on a copy of the database: copying 0 MiB\n" in run("--date", DAY, "--dry-run").err


def test_copy_without_a_folder_for_it_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**_: str) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(copying, "TemporaryDirectory", nowhere)
    looked = run("--date", DAY, "--dry-run", "--json")
    assert (looked.code, looked.json[0]["error"]) == (3, "store_unavailable")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_dry_run_that_is_broken_off_leaves_no_copy(
    run: Run, fake: FakeProcessor, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    assert run("--date", D14).code == 0
    held = tmp_path / "tmp"
    held.mkdir()
    asked, ended = threading.Event(), threading.Event()

    def keep_waiting(request: Request) -> None:
        if request.path == LIST:
            asked.set()
            ended.wait(60)

    scripted(fake).instead = keep_waiting
    words = [str(PAYKIT), "run", "--account", ACCOUNT, "--date", DAY, "--dry-run"]
    env = environment({"TMPDIR": str(held), "PAYKIT_PROCESSOR_URL": fake.url})
    with subprocess.Popen(words, cwd=tmp_path, env=env, stderr=subprocess.PIPE) as process:
        assert asked.wait(60)
        assert list(held.rglob("copy.db")) != []
        process.send_signal(number)
        assert process.wait(60) == code
    ended.set()
    assert os.listdir(held) == []
