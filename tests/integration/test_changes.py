"""What was done by whom stands beside the thing itself: in one commit with it, and for good.

Without these a settlement could be resolved, or a row written off, and nobody could tell who did it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from fake_processor import FakeProcessor
from paykit_settle.cli import main
from paykit_settle.person import this_user
from tests.fault.stage import ACCOUNT, DAY, a_processor, wire_row

NEXT = "2026-01-16"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProcessor]:
    rows = [wire_row("t1", 1000, fee=30), wire_row("p1", 70, status="pending"), wire_row("t2", 5, day=NEXT)]
    with a_processor(rows) as one:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PAYKIT_PROCESSOR_URL", one.url)
        yield one


def cli(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def changes(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert cli("changes", "--json", *words) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def run(day: str, account: str = ACCOUNT) -> int:
    return cli("run", "--account", account, "--date", day)


def test_run_leaves_each_of_its_transitions(fake: FakeProcessor, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(DAY) == 0
    found = changes(capsys)
    assert [(each["what"], each["detail"]) for each in reversed(found)] == [
        ("begin", f"{DAY} in usd"),
        ("state", "pulling to frozen"),
        ("state", "frozen to posted: setl_0001"),
    ]
    assert {(each["subject"], each["account"], each["channel"], each["principal"]) for each in found} == {
        ("run_000001", ACCOUNT, "cli", this_user())
    }
    assert [each["number"] for each in found] == [3, 2, 1]
    assert run(DAY) == 0
    assert changes(capsys) == found  # a replay changes nothing


def test_run_that_fails_and_is_tried_again_shows_both(fake: FakeProcessor, capsys: pytest.CaptureFixture[str]) -> None:
    fake.fault("forbidden", route="GET /v1/balance_transactions", nth=1)
    assert run(DAY) != 0
    assert run(DAY) == 0
    said = [each["detail"] for each in reversed(changes(capsys))]
    assert said[1:3] == ["pulling to failed: processor_rejected", "failed to pulling"]


def test_act_of_a_person_names_the_user_and_keeps_the_remark_beside_it(
    fake: FakeProcessor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(DAY) == 0
    words = ["--account", ACCOUNT, "--write-off", "p1", "--reason", "paid by hand", "--by", "Ada"]
    assert cli("outstanding", *words) == 0
    [newest, *_] = changes(capsys)
    assert (newest["what"], newest["subject"]) == ("write-off", "p1")
    assert (newest["principal"], newest["detail"]) == (this_user(), "paid by hand (says Ada)")


def test_changed_zone_is_kept(fake: FakeProcessor, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(DAY) == 0
    words = ["--account", ACCOUNT, "--date", NEXT, "--zone", "Europe/Paris", "--zone-changed"]
    assert cli("run", *words) == 0
    [changed] = [each for each in changes(capsys) if each["what"] == "zone changed"]
    assert (changed["subject"], changed["detail"]) == (ACCOUNT, "from Etc/UTC to Europe/Paris")


def test_list_is_of_one_account_and_bounded_when_asked(fake: FakeProcessor, capsys: pytest.CaptureFixture[str]) -> None:
    assert (run(DAY), run(DAY, "acct_other")) == (0, 1)
    assert {each["account"] for each in changes(capsys, "--account", "acct_other")} == {"acct_other"}
    assert len(changes(capsys, "--limit", "2")) == 2
    assert len(changes(capsys, "--limit", "0")) == 5
    assert cli("changes", "--limit", "-1") == 2
    capsys.readouterr()
    assert cli("changes", "--account", "nobody") == 0
    assert capsys.readouterr().out == "no changes\n"


@pytest.mark.parametrize("statement", ["UPDATE changes SET principal = 'nobody'", "DELETE FROM changes"])
def test_database_itself_refuses_to_change_what_was_done(fake: FakeProcessor, statement: str) -> None:
    assert run(DAY) == 0
    connection = apsw.Connection("paykit.db")
    try:
        with pytest.raises(apsw.ConstraintError, match="changes are never"):
            connection.execute(statement)
    finally:
        connection.close()
