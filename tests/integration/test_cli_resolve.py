"""Resolve and forget as a finance engineer types them, and what all other commands and routes make of such a run.

Without these, an option could be taken for another, or a settlement that was taken break the pages that show it.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fake_processor import FakeProcessor
from paykit_settle.cli import main
from paykit_settle.cli_resolve import COVERED_FILE_BYTES_MAX
from tests.fault.foreign import a_line, foreign
from tests.fault.stage import ACCOUNT, DAY, a_processor, wire_row
from tests.integration.done import Done
from tests.programs import PAYKIT, running

NEXT = "2026-01-16"
Cli = Callable[..., Done]
WHY = ("--reason", "their support says so")


@pytest.fixture
def fake() -> Iterator[FakeProcessor]:
    rows = [wire_row("t1", 1000), wire_row("t2", 5), wire_row("e1", 92, currency="eur")]
    with a_processor(rows) as processor:
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


def conflict(cli: Cli, fake: FakeProcessor, **members: object) -> str:
    """A day of which the processor has another settlement; its id."""
    named = (
        fake.state.add_settlement(ACCOUNT, DAY, **members)
        if members
        else foreign(fake, 1200, a_line(1100), a_line(92, "eur", 100))
    )
    done = cli("run", "--account", ACCOUNT, "--date", DAY)
    assert (done.code, "settlement_conflict" in done.err) == (1, True)
    return named


def test_conflict_is_ended_with_what_the_processor_has(cli: Cli, fake: FakeProcessor) -> None:
    named = conflict(cli, fake)
    refused = cli("resolve", "run_000001", "--posted", named, *WHY)
    assert (refused.code, "--covers all, none or FILE" in refused.err) == (2, True)
    done = cli("resolve", "run_000001", "--posted", named, "--covers", "all", *WHY, "--by", "ada")
    assert (done.code, done.out.splitlines()) == (
        0,
        [
            f"run_000001 is posted now as {named}",
            "the processor's settlement was taken, not ours: $12.00, its lines were taken as they are; rows it covers: "
            "all",
        ],
    )
    assert "ada" in cli("changes").out
    verified = cli("verify", named, "--remote")
    assert (verified.code, verified.out) == (
        0,
        "run_000001: its lines were taken from the processor, not recomputed; bytes, digests and journal agree, and "
        "the processor's copy says the same\n",
    )
    assert cli("verify", named, "--json").json[0]["taken"] == "its lines were taken from the processor, not recomputed"
    assert cli("run", "--account", ACCOUNT, "--date", NEXT).code == 0
    assert cli("ledger", "check").code == 0


@pytest.mark.parametrize("command", ["show", "explain", "journal", "verify"])
@pytest.mark.parametrize("lines", [None, [a_line(1200, "eur", 1200)]], ids=["total only", "itemised"])
def test_taken_settlement_is_shown_by_every_command(
    cli: Cli, fake: FakeProcessor, command: str, lines: list[dict[str, Any]] | None
) -> None:
    named = conflict(cli, fake, total_net=1200, lines=lines)
    assert cli("resolve", named, "--posted", named, *WHY).code == 2  # no run has that settlement yet
    words = ("--covers", "none", "--total-only", *WHY)
    assert cli("resolve", "run_000001", "--posted", named, *words).code == 0
    done = cli(command, named)
    assert (done.code, done.err) == (0, "")
    if command != "journal":
        (shown,) = cli(command, named, "--json").json
        assert shown.get("taken")


def test_total_only_asks_for_attention_until_somebody_has_noted_it(cli: Cli, fake: FakeProcessor) -> None:
    assert cli("run", "--account", ACCOUNT, "--date", "2026-01-14").code == 0
    named = conflict(cli, fake, total_net=1200, lines=[])
    done = cli("resolve", "run_000002", "--posted", named, "--covers", "all", "--total-only", *WHY)
    assert "needs attention: " in done.out
    assert cli("run", "--account", ACCOUNT, "--date", NEXT).code == 0
    listed = cli("settlements").out.splitlines()
    assert listed[0].startswith(f"{DAY}  posted    run_000002")
    assert f"attention: {named} was taken by its total only" in listed[1]
    assert [run["attention"] is None for run in cli("settlements", "--json").json] == [False, True, True]
    verified = cli("verify", named)
    assert (verified.code, "its lines are not proved" in verified.out) == (0, True)
    again = cli("run", "--account", ACCOUNT, "--date", DAY, "--json").json[0]
    assert any("taken by its total only" in each for each in again["warnings"])
    assert cli("resolve", named, "--noted", *WHY).out == "run_000002 is noted\n"
    assert cli("settlements").out.splitlines()[0].startswith("2026-01-14")
    assert cli("resolve", named, "--noted", *WHY).code == 2


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--posted", "setl_0001", "--absent"),
        ("--posted", "setl_0001", "--noted"),
        ("--absent", "--noted"),
        ("--absent", "--covers", "all"),
        ("--absent", "--total-only"),
        ("--noted", "--covers", "none"),
        ("--noted", "--unseen"),
        ("--posted", "setl_0001", "--covers", "nowhere.txt"),
        ("--posted", "setl_0001", "--covers", "empty.txt"),
        ("--posted", "setl_0001", "--covers", "control.txt"),
        ("--posted", "setl_0001", "--covers", "latin.txt"),
        ("--posted", "setl_0001", "--covers", "large.txt"),
        ("--posted", "setl_0001", "--covers", "."),
    ],
)
def test_words_that_do_not_go_together_are_refused(
    cli: Cli, fake: FakeProcessor, tmp_path: Path, words: tuple[str, ...]
) -> None:
    conflict(cli, fake)
    (tmp_path / "empty.txt").write_text("\n  \n", encoding="utf-8")
    (tmp_path / "control.txt").write_text("t1\u0007\n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"t\xff\n")
    with (tmp_path / "large.txt").open("wb") as large:
        large.truncate(COVERED_FILE_BYTES_MAX + 1)
    asked = len(fake.requests)
    done = cli("resolve", "run_000001", *words, *WHY)
    assert (done.code, len(fake.requests)) == (2, asked)


def test_rows_are_listed_in_a_file_one_a_line(cli: Cli, fake: FakeProcessor, tmp_path: Path) -> None:
    named = conflict(cli, fake)
    (tmp_path / "rows.txt").write_text("t1\r\n\n  e1 \nt1\n", encoding="utf-8")
    done = cli("resolve", "run_000001", "--posted", named, "--covers", "rows.txt", *WHY)
    assert "rows it covers: listed" in done.out
    settled = cli("run", "--account", ACCOUNT, "--date", NEXT, "--json", "--after-restore-checked").json[0]
    assert settled["total_net"] == 5
    assert [late["rows"] for late in settled["late"]] == [1]


def test_routes_show_a_taken_settlement(cli: Cli, fake: FakeProcessor, tmp_path: Path) -> None:
    named = conflict(cli, fake, total_net=1200, lines=[])
    assert cli("resolve", "run_000001", "--posted", named, "--covers", "all", "--total-only", *WHY).code == 0
    words = ("serve", "--port", "0", "--processor-url", fake.url)
    with running(str(PAYKIT), *words, cwd=tmp_path) as (_, line):
        url = line.split()[3].rstrip(",")
        with httpx.Client(base_url=url, trust_env=False) as client:
            shown = client.get(f"/settlements/{named}").json()
            assert (shown["taken"], shown["total_net"], shown["lines"]) == ("total only", 1200, [])
            assert "total only" in shown["attention"]
            assert client.get("/settlements").json()["data"][0]["attention"] == shown["attention"]
            assert client.get(f"/settlements/{named}/explain").json()["covers"] == "all"
            rows = client.get(f"/settlements/{named}/transactions?format=jsonl").text.splitlines()
            assert sorted(json.loads(row)["id"] for row in rows) == ["e1", "t1", "t2"]
            asked = {"account": ACCOUNT, "date": DAY}
            again = client.post("/settlements/run", json=asked).json()
            assert (again["replayed"], again["settlement_id"]) == (True, named)
            assert client.post("/settlements/run", json={**asked, "settlement_currency": "eur"}).status_code == 409


def test_forget_is_done_once_and_said(cli: Cli, fake: FakeProcessor) -> None:
    conflict(cli, fake)
    assert cli("forget", "run_000001", "--reason", " ").code == 2
    done = cli("forget", "run_000001", "--reason", "begun by mistake")
    assert (done.code, done.out) == (0, f"run_000001 of {ACCOUNT} on {DAY} is forgotten\n")
    assert cli("show", "run_000001").code == 2
    assert cli("forget", "run_000001", "--reason", "x").code == 2
    assert cli("settlements").out == "no settlements\n"
    assert "forget" in cli("changes").out
