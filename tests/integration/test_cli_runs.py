"""The commands about past runs, as a finance engineer types them: what they print, and what a script gets to see.

Without these, `settlements` could hide the one day that failed, `verify` pass over a changed page, or a person's
decision be taken without its reason.
"""

import asyncio
import csv
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

from fake_processor import FakeProcessor
from paykit_settle.cli import main
from paykit_settle.person import this_user
from tests.fault.stage import (
    ACCOUNT,
    DAY,
    SETTLEMENTS,
    Host,
    columns,
    host,
    posts,
    refuse,
    scripted,
)
from tests.programs import PAYKIT, ROOT, paykit, running

DATABASE = "paykit.db"


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Done]


@pytest.fixture
def fake() -> Iterator[FakeProcessor]:
    with FakeProcessor() as processor:
        yield processor


@pytest.fixture
def cli(
    fake: FakeProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """The command line in this process, in a folder of its own, pointed at the fake."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PAYKIT_PROCESSOR_URL", fake.url)
    monkeypatch.setenv("PAYKIT_ATTEMPTS_MAX", "1")

    def call(*words: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(words)
        told = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, told.out, told.err)

    return call


def settle(cli: Cli, *days: str) -> None:
    for day in days or (DAY,):
        done = cli("run", "--account", ACCOUNT, "--date", day)
        assert (done.code, done.err) == (0, "")


@asynccontextmanager
async def opened(fake: FakeProcessor) -> AsyncIterator[Host]:
    async with host(Path(DATABASE), fake.url) as here:
        yield here


def in_database(fake: FakeProcessor, work: Callable[[Host], Awaitable[object]]) -> None:
    async def run() -> None:
        async with opened(fake) as here:
            await work(here)

    asyncio.run(run())


# The demo.


def test_demos_settlement_is_explained_as_the_golden_file_shows_at_80_columns(tmp_path: Path) -> None:
    assert paykit("demo", cwd=tmp_path).returncode == 0
    done = paykit("explain", "setl_0001", "--database", "paykit-demo.db", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-01-16T06:00:00Z", done.stdout)
    shown = re.sub(r"paykit-settle \d+\.\d+\.\d+", "paykit-settle VERSION", shown)
    assert shown == (ROOT / "tests/golden/explain.txt").read_text(encoding="utf-8")
    assert max(map(len, shown.splitlines())) <= 80


def test_demo_leaves_a_database_with_the_reference_balance(cli: Cli, tmp_path: Path) -> None:
    for _ in range(2):  # made anew each time
        assert cli("demo").code == 0
    balances = columns(tmp_path / "paykit-demo.db", "SELECT tenant, id, currency, balance FROM accounts")
    assert balances == [("acct_123", "balance", "usd", 145199)]
    assert cli("verify", "setl_0001", "--database", "paykit-demo.db").code == 0


def test_service_on_the_demos_database_answers_its_balance(cli: Cli, tmp_path: Path) -> None:
    assert cli("demo").code == 0
    serve = (str(PAYKIT), "serve", "--port", "0", "--database", "paykit-demo.db")
    with running(*serve, cwd=tmp_path) as (_, line):
        url = line.split()[3].rstrip(",")
        answer = httpx.get(f"{url}/v1/tenants/acct_123/balance", trust_env=False, timeout=60)
    assert (answer.status_code, answer.json()) == (200, {"currency": "USD", "amount_minor": 145199})


# settlements, show, explain.


def test_settlements_lists_what_needs_a_person_first_and_names_missing_days(cli: Cli, fake: FakeProcessor) -> None:
    settle(cli, "2026-01-13", "2026-01-16")
    fake.fault("error_502", route=f"POST {SETTLEMENTS}")
    assert cli("run", "--account", ACCOUNT, "--date", "2026-01-17").code == 4
    fake.heal()
    fake.state.update_transaction(ACCOUNT, "txn_1902", status="odd")
    assert cli("run", "--account", ACCOUNT, "--date", "2026-01-19").code == 1
    listed = cli("settlements", "--account", ACCOUNT, "--from", "2026-01-12", "--to", "2026-01-19")
    assert [line.split()[:2] for line in listed.out.splitlines()] == [
        ["2026-01-17", "unknown"],
        ["2026-01-19", "failed"],
        ["2026-01-13", "posted"],
        ["2026-01-16", "posted"],
        ["2026-01-12", "missing"],
        ["2026-01-14", "missing"],
        ["2026-01-15", "missing"],
        ["2026-01-18", "missing"],
    ]
    assert "run_refused" in listed.out
    assert max(map(len, listed.out.splitlines())) <= 80
    between = cli("settlements", "--json")
    assert [(row["date"], row["state"]) for row in between.json][-3:] == [
        ("2026-01-14", "missing"),
        ("2026-01-15", "missing"),
        ("2026-01-18", "missing"),
    ]
    some = cli("settlements", "--account", ACCOUNT, "--from", "2026-01-16", "--to", "2026-01-17", "--json")
    assert [(row["date"], row["state"], row["error"]) for row in some.json] == [
        ("2026-01-17", "unknown", "outcome_unknown"),
        ("2026-01-16", "posted", None),
    ]


def test_settlements_names_the_gap_that_an_older_version_left(cli: Cli) -> None:
    settle(cli)
    settle(cli, "2026-01-16")
    begin_later(DATABASE, "2026-01-16", 18_000)
    listed = cli("settlements").out.splitlines()
    assert listed[2:] == [f"2026-01-16  gap       its window begins 18000 s after the day before ends: {ACCOUNT}"]
    assert cli("settlements", "--json").json[2:] == [
        {"state": "gap", "account": ACCOUNT, "date": "2026-01-16", "seconds": 18000}
    ]
    assert "no run's window holds the 5 h 0 min before it" in " ".join(cli("explain", "run_000002").out.split())
    assert cli("explain", "run_000002", "--json").json[0]["gap_before_s"] == 18_000
    assert cli("explain", "run_000001", "--json").json[0]["gap_before_s"] == 0


def begin_later(database: str, day: str, seconds: int) -> None:
    """Leaves a gap before a settled day, as versions did that let its window begin where another zone said."""
    connection = apsw.Connection(database)
    values = {"day": day, "seconds": seconds}
    connection.execute("UPDATE runs SET window_start_s = window_start_s + :seconds WHERE date = :day", values)
    connection.execute("UPDATE day_edges SET start_s = start_s + :seconds WHERE date = :day", values)
    connection.close()


def test_settlements_of_a_span_without_any_names_each_day(cli: Cli) -> None:
    settle(cli)
    none = cli("settlements", "--account", "acct_456", "--from", "2026-01-14", "--to", "2026-01-15")
    assert [line.split()[:2] for line in none.out.splitlines()] == [
        ["2026-01-14", "missing"],
        ["2026-01-15", "missing"],
    ]
    assert cli("settlements", "--account", "acct_456").out == "no settlements\n"
    assert cli("settlements", "--from", "15.1.2026").code == 2


@pytest.mark.parametrize("identity", ["setl_0001", "run_000001"])
def test_show_prints_totals_per_category_for_either_id(cli: Cli, identity: str) -> None:
    settle(cli)
    shown = cli("show", identity)
    assert (shown.code, shown.err) == (0, "")
    assert re.search(r"adjustment/other_adjustment +1 rows +net -\$5\.00", shown.out)
    (told,) = cli("show", identity, "--json").json
    assert (told["state"], told["total_net"], told["settlement_id"]) == ("posted", 145199, "setl_0001")
    assert sum(group["net"] for group in told["categories"] if group["currency"] == "usd") == 20715


def test_explain_in_json_holds_every_step_of_the_walk(cli: Cli) -> None:
    settle(cli)
    (told,) = cli("explain", "run_000001", "--json").json
    assert [line["fraction"] for line in told["lines"]] == ["100/92", "100/79", "100/150", "1/1"]
    assert json.loads(told["rate_table"])["rates"]["eur"] == "0.92"
    assert [page["rows"] for page in told["pages"]] == [13]
    assert [(each["number"], each["outcome"]) for each in told["attempts"]] == [(1, "posted")]
    assert sum(entry["amount"] for entry in told["journal"] if entry["currency"] == "usd") == 0


@pytest.mark.parametrize("command", ["show", "explain", "verify", "journal"])
def test_unknown_id_and_missing_database_are_usage_errors(cli: Cli, command: str) -> None:
    none = cli(command, "setl_0001")
    assert (none.code, "there is no database" in none.err) == (2, True)
    settle(cli)
    for identity in ("setl_0009", "run_000009", "run_x", ""):
        assert cli(command, identity).code == 2


# verify, journal.


def test_verify_passes_and_compares_the_processors_copy_on_request(cli: Cli, fake: FakeProcessor) -> None:
    settle(cli)
    assert cli("verify", "setl_0001").code == 0
    remote = cli("verify", "setl_0001", "--remote")
    assert (remote.code, "processor's copy" in remote.out) == (0, True)
    assert cli("verify", "setl_0001", "--json").json == [{"run_id": "run_000001", "verified": True, "differences": []}]
    in_database(fake, lambda here: here.client.post(SETTLEMENTS, posts(fake)[0].body, idempotency_key="again"))
    twice = cli("verify", "setl_0001", "--remote")
    assert (twice.code, "the processor has 2 settlements for this day" in twice.out) == (1, True)


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("UPDATE attempts SET body = replace(CAST(body AS TEXT), '145199', '145198')", "the body differs"),
        ("UPDATE attempts SET idempotency_key = 'other'", "the idempotency key is not"),
        ("UPDATE attempts SET evidence_sha256 = 'other'", "the pages are not the ones"),
        ("UPDATE attempts SET rates_body = replace(CAST(rates_body AS TEXT), '0.92', '0.93')", "the body differs"),
        ("UPDATE attempts SET settlement = replace(settlement, '145199', '145198')", "the settlement that is shown"),
        ("UPDATE pages SET body_sha256 = 'other'", "page 1 of 2026-01-15 is not the one that was received"),
        ("DELETE FROM pages", "the body differs"),
        ("UPDATE entries SET amount = -14001 WHERE amount = -14000", "the journal is not the one"),
        ("DELETE FROM entries WHERE account = '@fx'", "entries sum to"),
    ],
)
def test_verify_names_what_was_tampered_with_in_the_database(
    cli: Cli, fake: FakeProcessor, sql: str, named: str
) -> None:
    settle(cli)
    in_database(fake, lambda here: here.change(_as_blob(sql)))
    done = cli("verify", "setl_0001")
    assert (done.code, named in done.out) == (1, True), done.out


def _as_blob(sql: str) -> str:
    """SQLite's `replace` gives text; the columns are strict about being blobs."""
    return re.sub(r"= (replace\(CAST.*\))$", r"= CAST(\1 AS BLOB)", sql)


def test_run_without_a_settlement_has_nothing_to_verify(cli: Cli, fake: FakeProcessor) -> None:
    fake.state.update_transaction(ACCOUNT, "txn_01", status="odd")
    assert cli("run", "--account", ACCOUNT, "--date", DAY).code == 1
    done = cli("verify", "run_000001")
    assert (done.code, "nothing to verify yet" in done.err) == (2, True)
    assert "run_refused" in cli("show", "run_000001").out
    assert "run_refused" in cli("explain", "run_000001").out


def test_journal_as_csv_is_what_an_accountant_imports(cli: Cli) -> None:
    settle(cli)
    rows = list(csv.DictReader(io.StringIO(cli("journal", "setl_0001", "--csv").out)))
    assert len(rows) == 15
    assert rows[-1] == {
        "date": DAY,
        "settlement_id": "setl_0001",
        "account": "balance",
        "currency": "USD",
        "amount_minor": "145199",
        "balance_before": "0",
        "balance_after": "145199",
    }
    for currency in ("EUR", "GBP", "JPY", "USD"):
        assert sum(int(row["amount_minor"]) for row in rows if row["currency"] == currency) == 0
    assert cli("journal", "setl_0001").out.splitlines()[-1].split() == ["balance", "145199", "USD"]


# outstanding, resolve, prune, resume.


def test_outstanding_says_where_the_money_is_by_currency_and_age(cli: Cli, fake: FakeProcessor) -> None:
    settle(cli)
    listed = cli("outstanding", "--as-of", "2026-01-18")
    assert re.search(r"gbp +1 row, net -700", listed.out)
    assert re.search(r"2026-01-15 +3 d +txn_05 +charge +\$969\.73", listed.out)
    assert max(map(len, listed.out.splitlines())) <= 80
    rows = cli("outstanding", "--account", ACCOUNT, "--as-of", "2026-01-18", "--json").json
    assert [(row["id"], row["currency"], row["net"], row["age_days"]) for row in rows] == [
        ("txn_12", "gbp", -700, 3),
        ("txn_05", "usd", 96973, 3),
    ]
    fake.state.release_pending(ACCOUNT)
    # By the clock of this machine more days have no run than the processor is asked for.
    cli("run", "--account", ACCOUNT, "--date", "2026-01-16", "--after-restore-checked")
    assert cli("outstanding").out == "nothing is outstanding\n"
    assert "txn_05" in cli("outstanding", "--as-of", DAY).out


def test_write_off_needs_an_account_and_a_reason_and_keeps_who_and_why(cli: Cli, tmp_path: Path) -> None:
    settle(cli)
    assert cli("outstanding", "--write-off", "txn_05").code == 2
    assert cli("outstanding", "--write-off", "txn_05", "--account", ACCOUNT).code == 2
    done = cli("outstanding", "--write-off", "txn_05", "--account", ACCOUNT, "--reason", "chargeback", "--by", "ada")
    assert (done.code, "txn_05" in done.out) == (0, False)
    kept = columns(
        tmp_path / DATABASE, "SELECT written_off_by, reason FROM outstanding WHERE transaction_id = 'txn_05'"
    )
    assert kept == [(f"ada ({this_user()})", "chargeback")]
    again = cli("outstanding", "--write-off", "txn_05", "--account", ACCOUNT, "--reason", "x")
    assert again.code == 2


def lose(cli: Cli, fake: FakeProcessor, fault: str) -> None:
    """A run that is unknown: the answer was lost, and the look-up failed."""
    fake.fault(fault, route=f"POST {SETTLEMENTS}")
    fake.fault("error_503", route=f"GET {SETTLEMENTS}", after=1, retry_after_s=0)
    done = cli("run", "--account", ACCOUNT, "--date", DAY)
    assert (done.code, "outcome_unknown" in done.err) == (4, True)
    fake.heal()


def test_resolve_as_posted_books_it_and_keeps_who_and_why(cli: Cli, fake: FakeProcessor) -> None:
    lose(cli, fake, "reset_after_effect")
    for wrong in ((), ("--posted", "setl_0001", "--absent")):
        assert cli("resolve", "run_000001", *wrong, "--reason", "x").code == 2
    assert cli("resolve", "run_000001", "--posted", "setl_0001", "--reason", " ").code == 2
    done = cli("resolve", "run_000001", "--posted", "setl_0001", "--reason", "their support says so", "--by", "ada")
    assert (done.code, done.out) == (0, "run_000001 is posted now as setl_0001\n")
    assert "their support says so" in cli("explain", "setl_0001").out
    assert cli("verify", "setl_0001", "--remote").code == 0
    assert cli("resolve", "setl_0001", "--absent", "--reason", "x").code == 2


def test_resolve_as_absent_lets_it_be_run_again(cli: Cli, fake: FakeProcessor) -> None:
    lose(cli, fake, "error_502")
    done = cli("resolve", "run_000001", "--absent", "--reason", "they have nothing", "--by", "ada")
    assert (done.code, "run it again to post it" in done.out) == (0, True)
    settle(cli)
    told = cli("explain", "run_000001").out
    assert "Attempt 1" in told
    assert "Attempt 2" in told
    assert "they have nothing" in told
    assert cli("verify", "run_000001", "--remote").code == 0


def test_resume_ends_with_4_while_the_outcome_stays_unknown_and_with_0_once_it_is_known(
    cli: Cli, fake: FakeProcessor
) -> None:
    lose(cli, fake, "reset_after_effect")
    fake.fault("error_503", retry_after_s=0)
    still = cli("resume")
    assert (still.code, "outcome_unknown" in still.err, "1 run resumed" in still.out) == (4, True, True)
    fake.heal()
    done = cli("resume", "--json")
    assert (done.code, [row["settlement_id"] for row in done.json]) == (0, ["setl_0001"])
    assert cli("resume").out == "0 runs resumed\n"
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1


def test_rejected_day_is_run_again_on_request(cli: Cli, fake: FakeProcessor) -> None:
    cue = scripted(fake)
    cue.instead = refuse(422)
    assert cli("run", "--account", ACCOUNT, "--date", DAY).code == 1
    cue.behave()
    refused = cli("run", "--account", ACCOUNT, "--date", DAY)
    assert (refused.code, "on request only" in refused.err) == (1, True)
    done = cli("run", "--account", ACCOUNT, "--date", DAY, "--retry-rejected")
    assert (done.code, done.err) == (0, "")
    assert cli("verify", "setl_0001").code == 0


def test_prune_drops_old_bytes_and_keeps_digests(cli: Cli, fake: FakeProcessor) -> None:
    settle(cli, "2026-01-13", DAY, "2026-01-16", "2026-01-17")  # after that the thirteenth is listed no more
    assert cli("prune", "--older-than", "3").code == 2
    assert cli("prune", "--older-than", "30").out == "1 page pruned\n"  # the fifteenth still owes two rows
    assert cli("prune", "--older-than", "30").out == "0 pages pruned\n"
    told = cli("explain", "setl_0001").out
    assert ", pruned" in told
    verified = cli("verify", "setl_0001")
    assert (verified.code, "were pruned" in verified.out) == (1, True)
    assert cli("verify", "setl_0002").code == 0
