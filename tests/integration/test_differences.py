"""The register of differences as people and machines see it: listed, settled, dismissed, written off, checked again.

Without these a person could settle what was never settled, lose a decision without a trace, or be shown half a list.
The rows are entered as a run enters them; what runs read of earlier days is tested elsewhere.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date as Date
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

from fake_processor import FakeProcessor
from paykit_settle import recheck as rechecking
from paykit_settle.cli import main
from paykit_settle.person import this_user
from paykit_settle.recheck import RecheckedDay
from paykit_settle.store.differences import Seen, corrections_for, note_differences, take_corrections
from paykit_settle.store.packing import pack_ids
from paykit_settle.store.rows import change
from paykit_settle.store.runs import run_by_day, run_by_number
from tests.fault.stage import ACCOUNT, DAY, Host, a_processor, columns, host, wire_row
from tests.programs import PAYKIT, running

DATABASE = "paykit.db"
NEXT, THIRD = "2026-01-16", "2026-01-17"
SINCE_MS = 1_780_272_000_000


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
    with a_processor([wire_row("t1", 1000, fee=30), wire_row("t2", 500), wire_row("p1", 70, status="pending")]) as one:
        yield one


@pytest.fixture
def cli(
    fake: FakeProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """The command line in this process, in a folder of its own, with the reference day settled."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAYKIT_PROCESSOR_URL", fake.url)
    monkeypatch.setenv("PAYKIT_ATTEMPTS_MAX", "1")

    def call(*words: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(words)
        told = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, told.out, told.err)

    assert call("run", "--account", ACCOUNT, "--date", DAY).code == 0
    return call


def in_database(fake: FakeProcessor, work: Callable[[Host], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with host(Path(DATABASE), fake.url) as here:
            return await work(here)

    return asyncio.run(run())


def seen(
    identity: str = "t1",
    now: Mapping[str, object] | None = None,
    *,
    kind: str = "changed",
    held: bool = True,
    was: Mapping[str, object] | None = None,
    detail: str | None = None,
) -> Seen:
    before = was or wire_row("t1", 1000, fee=30)
    return Seen(
        account=ACCOUNT,
        transaction_id=identity,
        kind=kind,  # type: ignore[arg-type]
        period=Date.fromisoformat(DAY),
        held_by_run=1 if held else None,
        was=None if kind == "wrong" else json.dumps(before).encode(),
        is_now=None if now is None else json.dumps(now).encode(),
        detail=detail,
    )


def note(fake: FakeProcessor, *rows: Seen, now_ms: int = SINCE_MS) -> None:
    """Enters what a recheck has seen."""
    in_database(
        fake,
        lambda here: here.store.write(lambda connection: note_differences(connection, None, rows, now_ms=now_ms)),
    )


CHANGED = wire_row("t1", 1200, fee=36)


def differences(cli: Cli, *words: str) -> Done:
    return cli("differences", "--account", ACCOUNT, *words)


def states(cli: Cli) -> list[tuple[str, str]]:
    """Each entry and its state, oldest first."""
    return [(row["difference_id"], row["state"]) for row in reversed(differences(cli, "--all", "--json").json)]


# Listing.


def test_differences_say_what_a_row_was_what_it_is_and_since_when(cli: Cli, fake: FakeProcessor) -> None:
    assert differences(cli).out == "no open differences\n"
    note(fake, seen(now=CHANGED), seen("t2", kind="vanished", was=wire_row("t2", 500)))
    listed = differences(cli)
    assert (listed.code, listed.err) == (0, "")
    assert listed.out.splitlines() == [
        "2026-01-15  t2                   vanished  open",
        "    since 2026-06-01 00:00 UTC, settled by run_000001",
        "    was  charge available $5.00, fee $0.00",
        "    is   not there",
        "2026-01-15  t1                   changed   open",
        "    since 2026-06-01 00:00 UTC, settled by run_000001",
        "    was  charge available $10.00, fee $0.30",
        "    is   charge available $12.00, fee $0.36",
    ]
    vanished, changed = differences(cli, "--json").json
    assert (vanished["is"], vanished["kind"], vanished["held_by_run"]) == (None, "vanished", "run_000001")
    assert {name: changed[name] for name in ("difference_id", "id", "revision", "period", "state", "since")} == {
        "difference_id": "t1/1",
        "id": "t1",
        "revision": 1,
        "period": DAY,
        "state": "open",
        "since": "2026-06-01T00:00:00Z",
    }
    assert (changed["was"]["amount"], changed["is"]["amount"], changed["is"]["fee"]) == (1000, 1200, 36)
    assert cli("differences", "--account", "another").out == "no open differences\n"


def test_list_is_whole_however_long_it_is(cli: Cli, fake: FakeProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paykit_settle.cli_differences.PAGE", 2)
    names = [f"n{number}" for number in range(7)]
    note(fake, *(seen(name, kind="vanished") for name in names))
    assert sorted(row["id"] for row in differences(cli, "--json").json) == names


def test_row_that_cannot_be_shown_in_major_units_is_shown_as_it_came(cli: Cli, fake: FakeProcessor) -> None:
    odd = wire_row("w1", 7, currency="xxx")
    note(fake, seen("w1", odd, kind="wrong", held=False, detail="currency XXX has no exponent in ISO 4217"))
    shown = differences(cli).out
    assert "is   charge available 7 xxx, fee 0 xxx" in shown
    assert "was  not there" in shown
    assert "never settled" in shown
    assert "why  currency XXX has no exponent" in shown


# Deciding.


def test_settled_difference_is_taken_by_the_next_run_of_a_later_date_once(cli: Cli, fake: FakeProcessor) -> None:
    note(fake, seen(now=CHANGED))
    fake.state.update_transaction(ACCOUNT, "t1", amount=1200, fee=36, net=1164)
    done = differences(cli, "--settle", "t1", "--by", "ada")
    assert (done.code, "t1                   changed   to be settled\n" in done.out) == (0, True)
    assert f"said ada ({this_user()})" in done.out

    totals = [
        cli("run", "--account", ACCOUNT, "--date", day, "--json").json[0]["total_net"]
        for day in ("2026-01-14", NEXT, THIRD)
    ]
    assert totals == [0, 200 - 6, 0]
    assert differences(cli).out == "no open differences\n"
    assert "changed   settled in run_000003 of 2026-01-16\n" in differences(cli, "--all").out
    (told,) = differences(cli, "--all", "--json").json
    assert (told["state"], told["settled_in_run"], told["settled_on"]) == ("settled", "run_000003", NEXT)


def test_correction_that_somebody_takes_or_takes_back_meanwhile_is_not_taken(cli: Cli, fake: FakeProcessor) -> None:
    assert cli("run", "--account", ACCOUNT, "--date", NEXT).code == 0
    note(fake, seen(now=CHANGED), seen("t2", kind="vanished", was=wire_row("t2", 500)))
    for identity in ("t1", "t2"):
        assert differences(cli, "--settle", identity).code == 0

    def story(connection: apsw.Connection) -> list[bool]:
        run = run_by_day(connection, ACCOUNT, Date.fromisoformat(NEXT))
        assert run is not None
        both = corrections_for(connection, run)
        return [take_corrections(connection, run, both[:1]), take_corrections(connection, run, both)]

    assert in_database(fake, lambda here: here.store.write(story)) == [True, False]
    assert columns(Path(DATABASE), "SELECT transaction_id, taken_by_run FROM differences ORDER BY 1") == [
        ("t1", 2),
        ("t2", None),
    ]
    assert differences(cli, "--dismiss", "t2", "--reason", "it is there on their screen").code == 0
    assert in_database(fake, lambda here: here.store.read(lambda c: corrections_for(c, run_by_number(c, 2)))) == []


def test_dismissed_difference_stays_dismissed_until_the_row_changes_again(cli: Cli, fake: FakeProcessor) -> None:
    note(fake, seen(now=CHANGED))
    assert differences(cli, "--dismiss", "t1").code == 2
    done = differences(cli, "--dismiss", "t1", "--reason", "agreed by phone", "--by", "ada")
    assert (done.code, done.out) == (0, "no open differences\n")
    assert f"said ada ({this_user()}): agreed by phone" in differences(cli, "--all").out
    note(fake, seen(now=CHANGED), seen(now={**CHANGED, "created": 1}))
    assert states(cli) == [("t1/1", "dismissed")]
    note(fake, seen(now=wire_row("t1", 1300)))
    (again,) = differences(cli, "--json").json
    assert (again["difference_id"], again["was"]["amount"], again["is"]["amount"]) == ("t1/2", 1000, 1300)


def test_dismissal_can_be_taken_back_and_so_can_a_settlement_that_no_run_has(cli: Cli, fake: FakeProcessor) -> None:
    note(fake, seen(now=CHANGED))
    why = ("--reason", "x", "--by", "ada")
    for words in (("--settle", "t1"), ("--dismiss", "t1"), ("--settle", "t1")):
        assert differences(cli, *words, *why).code == 0
    assert states(cli) == [("t1/1", "superseded"), ("t1/2", "dismissed"), ("t1/3", "to_settle")]
    assert f"it was to be settled, said ada ({this_user()})" in differences(cli, "--all").out
    assert differences(cli, "--settle", "t1", *why).code == 2  # as it is already


def test_row_is_decided_about_as_it_was_looked_at(cli: Cli, fake: FakeProcessor) -> None:
    """It changed again between the list and the decision: named with its revision, it is refused."""
    note(fake, seen(now=CHANGED))
    note(fake, seen(now=wire_row("t1", 9)), now_ms=SINCE_MS + 1)
    refused = differences(cli, "--settle", "t1/1")
    assert (refused.code, "t1/1 is not how the row is now: look at t1/2" in refused.err) == (2, True)
    assert differences(cli, "--settle", "t1/2").code == 0
    assert states(cli) == [("t1/1", "superseded"), ("t1/2", "to_settle")]
    for missing in ("t1/3", "t9", "t9/1", "t1/", "/1"):
        assert differences(cli, "--settle", missing).code == 2


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (seen("w1", wire_row("w1", 7, status="odd"), kind="wrong", held=False, detail="status odd"), "it is wrong"),
        (seen("p1", None, kind="vanished", held=False), "it was only owed"),
    ],
)
def test_row_of_which_nothing_was_settled_is_refused_with_the_way_out(
    cli: Cli, fake: FakeProcessor, row: Seen, told: str
) -> None:
    note(fake, row)
    refused = differences(cli, "--settle", row.transaction_id)
    assert (refused.code, told in refused.err) == (2, True)
    assert f"outstanding --write-off {row.transaction_id}" in refused.err
    written = (
        "outstanding",
        "--account",
        ACCOUNT,
        "--write-off",
        row.transaction_id,
        "--reason",
        "gone",
        "--by",
        "ada",
    )
    assert cli(*written).code == 0
    assert states(cli) == [(f"{row.transaction_id}/1", "written_off")]
    note(fake, row)
    assert len(states(cli)) == 1  # for good


def test_difference_of_a_run_that_is_not_posted_cannot_be_settled(cli: Cli, fake: FakeProcessor) -> None:
    """What a rejected run held is read again when that run is tried anew."""
    note(fake, seen(now=CHANGED))
    in_database(fake, lambda here: here.change("UPDATE runs SET state = 'rejected'"))
    refused = differences(cli, "--settle", "t1")
    assert (refused.code, "held by run_000001 of 2026-01-15, which is rejected" in refused.err) == (2, True)


def test_row_whose_settled_content_is_not_kept_is_named_and_cannot_be_settled(cli: Cli, fake: FakeProcessor) -> None:
    """Its page was pruned. Where an earlier revision has the content, that is it."""
    note(fake, replace(seen(kind="vanished"), was=None))
    assert "why  what was settled of it is not kept any more" in differences(cli).out
    assert differences(cli, "--settle", "t1").code == 2
    note(fake, seen("t2", now=wire_row("t2", 501), was=wire_row("t2", 500)))
    note(fake, replace(seen("t2", kind="vanished"), was=None))
    assert differences(cli, "--settle", "t2").code == 0
    (entry,) = [row for row in differences(cli, "--json").json if row["difference_id"] == "t2/2"]
    assert (entry["was"]["amount"], entry["detail"]) == (500, None)


def test_difference_without_an_exact_value_cannot_be_settled(cli: Cli, fake: FakeProcessor) -> None:
    note(fake, seen(now=wire_row("t1", 1200, currency="xxx")))
    refused = differences(cli, "--settle", "t1")
    assert (refused.code, "cannot be settled as it is now: currency XXX has no exponent" in refused.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("--settle", "t1", "--dismiss", "t1", "--reason", "x"),
        ("--reason", "x"),
        ("--by", "ada"),
        ("--settle", "t1", "--by", ""),
        ("--settle", "t1", "--by", " \u00a0\u200b"),
        ("--settle", "t1", "--by", "a\u001bb"),
        ("--settle", "t1", "--by", "a" * 256),
        ("--settle", "t1", "--reason", ""),
        ("--dismiss", "t1", "--reason", "  \t"),
        ("--dismiss", "t1", "--reason", "a\nb"),
        ("--dismiss", "t1", "--reason", "a\u202eb"),
        ("--dismiss", "t1", "--reason", "a" * 1001),
    ],
)
def test_blank_and_unprintable_names_and_reasons_are_refused(
    cli: Cli, fake: FakeProcessor, words: Sequence[str]
) -> None:
    note(fake, seen(now=CHANGED))
    assert differences(cli, *words).code == 2
    assert states(cli) == [("t1/1", "open")]


def test_name_that_is_given_stands_beside_the_users_and_not_in_its_place(
    cli: Cli, fake: FakeProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_number: int) -> None:
        raise KeyError("uid not found")

    note(fake, seen(now=CHANGED))
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert differences(cli, "--settle", "t1", "--by", "ﺁﺩﺍ\u200cnö").code == 0
    changed = cli("changes", "--account", ACCOUNT, "--json").json[0]
    assert changed["what"] == "settle difference"
    assert (changed["principal"], changed["channel"]) == (f"uid {os.getuid()}", "cli")
    assert changed["detail"] == "(says ﺁﺩﺍ\u200cnö)"


# What runs see.


def test_row_that_is_back_ends_its_difference_and_another_time_it_is_new(cli: Cli, fake: FakeProcessor) -> None:
    note(fake, seen(now=CHANGED))
    assert differences(cli, "--settle", "t1").code == 0
    note(fake, seen(now=wire_row("t1", 1000, fee=30, second=7)))
    note(fake, seen(now=CHANGED))
    assert states(cli) == [("t1/1", "came_back"), ("t1/2", "open")]


def test_vanished_row_that_stands_under_another_day_has_moved(cli: Cli, fake: FakeProcessor) -> None:
    note(fake, seen(kind="vanished"))
    fake.state.update_transaction(ACCOUNT, "t1", created=wire_row("t1", 1, day=NEXT)["created"])
    in_database(fake, lambda here: here.run(NEXT))
    note(fake, seen(kind="vanished"))
    assert states(cli) == [("t1/1", "moved")]


def test_run_that_is_pulled_anew_gives_its_corrections_back_and_holds_its_rows_no_more(
    cli: Cli, fake: FakeProcessor
) -> None:
    fake.state.update_transaction(ACCOUNT, "t1", amount=1200, fee=36, net=1164)
    note(fake, seen(now=CHANGED))
    assert differences(cli, "--settle", "t1").code == 0

    async def reject(here: Host) -> None:
        await here.run(NEXT)
        run = await here.stored(NEXT)
        wanted = await here.store.read(lambda connection: corrections_for(connection, run))
        assert await here.store.write(lambda connection: take_corrections(connection, run, wanted))
        await here.change("UPDATE runs SET state = 'rejected' WHERE id = 2")
        held = replace(seen("own", wire_row("own", 5)), held_by_run=2)
        await here.store.write(lambda connection: note_differences(connection, None, [held], now_ms=1))

    in_database(fake, reject)
    assert "settled in run_000002 of 2026-01-16, which is rejected" in differences(cli, "--all").out
    fake.fault("error_503", route="GET /v1/balance_transactions", retry_after_s=0)
    assert cli("run", "--account", ACCOUNT, "--date", NEXT, "--retry-rejected").code == 3
    assert sorted(states(cli)) == [("own/1", "superseded"), ("t1/1", "to_settle")]


# Writing off.


def write_off(cli: Cli, identity: str, *words: str) -> Done:
    decided = ("--reason", "lost", "--by", "ada")
    return cli("outstanding", "--account", ACCOUNT, "--write-off", identity, *decided, *words)


def test_write_offs_are_listed_with_who_when_and_why_and_what_became_of_them(cli: Cli, fake: FakeProcessor) -> None:
    assert cli("outstanding", "--written-off").out == "nothing was written off\n"
    assert write_off(cli, "p1").code == 0
    listed = cli("outstanding", "--written-off").out
    assert listed.startswith(f"2026-01-15  p1                   charge               $0.70  {ACCOUNT}\n    20")
    assert f"UTC, ada ({this_user()}): lost\n" in listed
    (told,) = cli("outstanding", "--written-off", "--account", ACCOUNT, "--json").json
    assert (told["id"], told["net"], told["reason"]) == ("p1", 70, "lost")
    assert told["written_off_by"] == f"ada ({this_user()})"
    assert told["available_in_run"] is None
    assert cli("outstanding", "--written-off", "--account", "another", "--json").json == []
    in_database(fake, lambda here: here.change("UPDATE outstanding SET available_run = 1"))
    assert "became available after all: run_000001 of 2026-01-15 saw it" in cli("outstanding", "--written-off").out


@pytest.mark.parametrize("kind", ["payout", "topup_reversal"])
def test_row_that_was_never_registered_can_be_written_off_from_its_days_evidence(
    cli: Cli, fake: FakeProcessor, kind: str
) -> None:
    fake.state.add_transactions(ACCOUNT, [wire_row("o1", -900, day=NEXT, kind=kind, status="pending")])
    assert cli("run", "--account", ACCOUNT, "--date", NEXT).code == 0
    assert "o1" not in cli("outstanding").out
    assert write_off(cli, "o1", "--day", DAY).code == 2
    assert write_off(cli, "o1", "--day", NEXT).code == 0
    (told,) = cli("outstanding", "--written-off", "--json").json
    assert (told["id"], told["period"], told["type"], told["amount"]) == ("o1", NEXT, kind, -900)
    assert "o1" not in cli("outstanding", "--as-of", NEXT).out  # it never was owed
    assert write_off(cli, "o1").code == 2


def test_wrong_row_can_be_written_off_even_if_its_amount_has_no_value(cli: Cli, fake: FakeProcessor) -> None:
    odd = wire_row("w1", 7, currency="xxx")
    note(fake, seen("w1", odd, kind="wrong", held=False, detail="currency"))
    assert write_off(cli, "w1").code == 0
    assert "7 xxx" in cli("outstanding", "--written-off").out
    assert cli("outstanding", "--as-of", DAY).code == 0


def test_settled_row_cannot_be_written_off_and_its_run_is_named(cli: Cli, fake: FakeProcessor) -> None:
    refused = write_off(cli, "t1")
    assert (refused.code, "run_000001 of 2026-01-15 has settled it" in refused.err) == (2, True)
    fake.state.release_pending(ACCOUNT)
    assert cli("run", "--account", ACCOUNT, "--date", NEXT, "--after-restore-checked").code == 0
    late = write_off(cli, "p1")
    assert (late.code, "run_000002 of 2026-01-16 has settled it" in late.err) == (2, True)
    note(fake, seen(now=CHANGED))
    assert write_off(cli, "t1").code == 2
    assert write_off(cli, "nowhere").code == 2
    assert "no stored page of a posted day has it" in write_off(cli, "nowhere").err


def test_row_of_a_pruned_page_is_known_to_be_settled(cli: Cli, fake: FakeProcessor) -> None:
    def pruned(connection: apsw.Connection) -> None:
        change(connection, "UPDATE pages SET body = NULL, available_ids = :ids", ids=pack_ids(["t1", "t2"]))

    in_database(fake, lambda here: here.store.write(pruned))
    refused = write_off(cli, "t1")
    assert (refused.code, "run_000001 of 2026-01-15 has settled it" in refused.err) == (2, True)


@pytest.mark.parametrize("bad", [" ", "", "a\u0007b"])
def test_blank_names_and_reasons_are_refused_wherever_a_person_decides(cli: Cli, fake: FakeProcessor, bad: str) -> None:
    off = ("outstanding", "--account", ACCOUNT, "--write-off", "p1")
    assert cli(*off, "--reason", bad).code == 2
    assert cli(*off, "--reason", "x", "--by", bad).code == 2
    in_database(fake, lambda here: here.change("UPDATE runs SET state = 'unknown', owner = NULL"))
    ended = ("resolve", "run_000001", "--posted")
    assert cli(*ended, "setl_0001", "--reason", bad).code == 2
    assert cli(*ended, "setl_0001", "--reason", "x", "--by", bad).code == 2
    assert cli(*ended, bad, "--reason", "x").code == 2
    assert columns(Path(DATABASE), "SELECT count(*) FROM resolutions") == [(0,)]
    assert columns(Path(DATABASE), "SELECT count(*) FROM outstanding WHERE reason IS NOT NULL") == [(0,)]


# Over HTTP.


def test_differences_over_http_come_in_pages_and_are_asked_for_strictly(cli: Cli, fake: FakeProcessor) -> None:
    names = [f"n{number}" for number in range(5)]
    for number, name in enumerate(names):
        note(fake, seen(name, kind="vanished"), now_ms=SINCE_MS + number // 2)
    assert differences(cli, "--dismiss", "n2", "--reason", "x").code == 0
    with running(str(PAYKIT), "serve", "--port", "0", cwd=Path.cwd()) as (_, line):
        url = line.split()[3].rstrip(",")
        with httpx.Client(base_url=url, trust_env=False) as client:

            def pages(**query: str) -> list[str]:
                found, more = list[str](), True
                while more:
                    answer = client.get("/differences", params={"account": ACCOUNT, "limit": "2", **query}).json()
                    found += [row["id"] for row in answer["data"]]
                    more = answer["has_more"]
                    query["starting_after"] = answer["data"][-1]["difference_id"] if answer["data"] else ""
                return found

            assert pages() == ["n4", "n3", "n1", "n0"]
            assert pages(state="all") == ["n4", "n3", "n2", "n1", "n0"]
            (first, *_) = client.get("/differences", params={"account": ACCOUNT}).json()["data"]
            assert first == differences(cli, "--json").json[0]
            assert client.get("/differences", params={"account": "another"}).json()["data"] == []
            wrong = [
                {},
                {"account": ACCOUNT, "state": "x"},
                {"account": ACCOUNT, "limit": "0"},
                {"account": ACCOUNT, "limit": "101"},
                {"account": ACCOUNT, "limit": "9" * 5000},
                {"account": ACCOUNT, "starting_after": "n0"},
                {"account": ACCOUNT, "starting_after": "n0/01"},
                {"account": ACCOUNT, "starting_after": "n0/9"},
                {"account": "another", "starting_after": "n0/1"},
                {"account": ACCOUNT, "from": DAY},
            ]
            answers = [client.get("/differences", params=query) for query in wrong]
            assert [(answer.status_code, answer.json()["error"]) for answer in answers] == [
                (400, "invalid_request")
            ] * len(wrong)
            assert client.post("/differences").status_code == 405


# Checking again.


@pytest.fixture
def shows(monkeypatch: pytest.MonkeyPatch) -> list[RecheckedDay]:
    """What the processor shows, for `recheck` to report: the reading itself is not what is tested here."""
    days: list[RecheckedDay] = []

    async def scripted(*_asked: object) -> list[RecheckedDay]:
        return days

    monkeypatch.setattr(rechecking, "recheck", scripted)
    return days


def recheck(cli: Cli, *words: str) -> Done:
    return cli("recheck", "--account", ACCOUNT, "--from", DAY, "--to", THIRD, *words)


def test_recheck_reports_each_day_and_registers_what_differs(cli: Cli, shows: list[RecheckedDay]) -> None:
    day, next_day, third = (Date.fromisoformat(each) for each in (DAY, NEXT, THIRD))
    odd = seen("w1", wire_row("w1", 7, status="odd"), kind="wrong", held=False, detail="status 'odd'")
    gone = seen("t2", kind="vanished", was=wire_row("t2", 500))
    shows[:] = [
        RecheckedDay(
            day=day,
            row_count=5,
            late_ids=["l1"],
            pending_ids=["p1"],
            changed=[seen(now=CHANGED)],
            vanished=[gone],
            wrong=[odd],
        ),
        RecheckedDay(day=next_day, row_count=1),
        RecheckedDay(day=third, reason="it is not settled"),
    ]
    done = recheck(cli)
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines() == [
        "2026-01-15  5 rows",
        "    late      l1",
        "    pending   p1",
        "    changed   t1",
        "    vanished  t2",
        "    wrong     w1  status 'odd'",
        "2026-01-16  1 row, as they were settled",
        "2026-01-17  not read: it is not settled",
    ]
    told = recheck(cli, "--json").json
    assert [(row["date"], row["rows"], row["late"], row["reason"]) for row in told] == [
        (DAY, 5, ["l1"], None),
        (NEXT, 1, [], None),
        (THIRD, 0, [], "it is not settled"),
    ]
    assert told[0]["wrong"] == [{"id": "w1", "detail": "status 'odd'"}]
    assert sorted(states(cli)) == [("t1/1", "open"), ("t2/1", "open"), ("w1/1", "open")]
    shows[:] = [RecheckedDay(day=day, row_count=5, pending_ids=["p1"], unchanged_ids=["t1", "t2", "w1"])]
    assert recheck(cli).code == 0  # what is pending is owed, and nothing to look at
    assert {state for _, state in states(cli)} == {"came_back"}


def test_recheck_refuses_a_span_that_is_none(cli: Cli, shows: list[RecheckedDay]) -> None:
    for first, last in ((THIRD, DAY), ("2026-1-5", DAY), ("2020-01-01", DAY)):
        assert cli("recheck", "--account", ACCOUNT, "--from", first, "--to", last).code == 2
    assert cli("recheck", "--account", ACCOUNT, "--from", DAY).code == 2
