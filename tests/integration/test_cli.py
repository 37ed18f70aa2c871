"""The command line as a subprocess: what a person types, reads, and what a scheduler's exit code says.

Without these, an error could end with 0, a secret could be printed, or a failed day be skipped on the way to the next.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fake_processor import FakeProcessor
from tests.integration.broken_processor import broken_processor
from tests.programs import PAYKIT, PROGRAM_TIMEOUT_S, ROOT, environment, paykit, running

DAY = ("--account", "acct_123", "--date", "2026-01-15")
TABLE = {"base": "usd", "as_of": "2026-01-15T16:00:00Z", "rates": {"eur": "0.92", "gbp": "0.79", "jpy": "150"}}


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A fake processor in a process of its own; its URL."""
    cwd = tmp_path_factory.mktemp("processor")
    with running(sys.executable, "-m", "fake_processor", "--port", "0", cwd=cwd) as (_, line):
        yield line.split()[-1]


def test_demo_settles_and_prints_the_statement(tmp_path: Path) -> None:
    done = paykit("demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", done.stdout)
    shown = "\n".join(line.rstrip() for line in shown.splitlines()) + "\n"
    assert shown == (ROOT / "tests/golden/demo.txt").read_text(encoding="utf-8")
    assert max(map(len, shown.splitlines())) <= 80


def test_demo_speaks_json(tmp_path: Path) -> None:
    done = paykit("demo", "--json", cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert (answer["settlement_id"], answer["status"], answer["total_net"]) == ("setl_0001", "created", 145199)


def test_run_settles_a_day_by_hand(tmp_path: Path, processor: str) -> None:
    done = paykit("run", *DAY, "--processor-url", processor, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "total_net 145199 usd ($1,451.99)" in done.stdout
    assert re.search(r"setl_\d{4} created", done.stdout)
    assert "settled before" not in done.stdout


def test_replay_says_that_the_day_was_settled_before_and_not_that_the_processor_answered(
    tmp_path: Path, processor: str
) -> None:
    days = [paykit("run", *DAY, "--processor-url", processor, cwd=tmp_path).stdout.splitlines()[-1] for _ in range(2)]
    assert re.match(r"The processor answered: setl_\d{4} created, total_net", days[0])
    assert days[1] == days[0].replace("The processor answered", "This day was settled before")


def test_run_prints_one_json_object(tmp_path: Path, processor: str) -> None:
    done = paykit("run", *DAY, "--json", cwd=tmp_path, env={"PAYKIT_PROCESSOR_URL": processor})
    answer = json.loads(done.stdout)
    assert {line["currency"]: line["net_settlement"] for line in answer["lines"]} == {
        "eur": 14712, "gbp": 9772, "jpy": 100000, "usd": 20715,
    }  # fmt: skip
    assert answer["currency"] == "usd"


def test_dry_run_shows_the_payload_and_posts_nothing(tmp_path: Path, processor: str) -> None:
    day = ("--account", "acct_123", "--date", "2026-01-17")
    done = paykit("run", *day, "--dry-run", "--processor-url", processor, cwd=tmp_path)
    assert done.returncode == 0
    payload = json.loads(done.stdout.splitlines()[-1])
    assert set(payload) == {"account", "date", "settlement_currency", "lines", "total_net"}
    headers = {"Authorization": "Bearer sk_test_paykit"}
    query = {"account": "acct_123", "date": "2026-01-17"}
    received = httpx.get(f"{processor}/v1/settlements", params=query, headers=headers, trust_env=False, timeout=60)
    assert received.json()["data"] == []


def test_dry_run_may_look_at_a_day_that_has_not_ended(tmp_path: Path, processor: str) -> None:
    day = ("--account", "acct_123", "--date", "2999-01-01", "--processor-url", processor)
    assert paykit("run", *day, "--dry-run", "--json", cwd=tmp_path).returncode == 0
    refused = paykit("run", *day, cwd=tmp_path)
    assert (refused.returncode, refused.stderr.split()[1]) == (2, "window_open:")


def test_several_days_are_settled_in_order(tmp_path: Path, processor: str) -> None:
    days = ("--from", "2026-01-13", "--to", "2026-01-15")
    done = paykit("run", "--account", "acct_123", *days, "--json", "--processor-url", processor, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["date"] for answer in answers] == ["2026-01-13", "2026-01-14", "2026-01-15"]


def test_day_that_fails_ends_the_range(tmp_path: Path, processor: str) -> None:
    days = ("--from", "2999-01-01", "--to", "2999-01-03")
    done = paykit("run", "--account", "acct_123", *days, "--json", "--processor-url", processor, cwd=tmp_path)
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert (answer["error"], answer["date"]) == ("window_open", "2999-01-01")
    assert "2 later day(s) were not run" in done.stderr


def test_yesterday_is_a_date(tmp_path: Path, processor: str) -> None:
    done = paykit(
        "run", "--account", "acct_123", "--date", "yesterday", "--dry-run", "--json", "--processor-url", processor,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0
    assert json.loads(done.stdout)["lines"] == []


def test_rates_from_a_file_are_used(tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text(json.dumps(TABLE | {"rates": {"eur": "1", "gbp": "1", "jpy": "100"}}))
    with FakeProcessor() as fake:
        words = ("--json", "--rates", "rates.json", "--processor-url", fake.url)
        done = paykit("run", *DAY, "--dry-run", *words, cwd=tmp_path)
    assert json.loads(done.stdout)["total_net"] == 13535 + 7720 + 150000 + 20715


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "malformed"),
        ("[]", "must be an object"),
        ('{"base":"usd","rates":[]}', "rates must be an object"),
        ('{"base":"usd","base":"eur","rates":{}}', "twice"),
        ('{"base":"xqq","rates":{}}', "XQQ"),
        ('{"base":"usd","rates":{},"as_of":"2026-01-15T16:00:00"}', "no time zone"),
        ('{"base":"usd","rates":{}}', "undated"),
        ('{"base":"usd","rates":{"kwd":"0"},"as_of":"2026-01-15T16:00:00Z"}', "rate of KWD is zero"),
        ('{"base":"usd","rates":{"kwd":"1,5"},"as_of":"2026-01-15T16:00:00Z"}', "rate of KWD is not a positive"),
        ('{"base":"usd","rates":{"eur":"0.92","kwd":null},"as_of":"2026-01-15T16:00:00Z"}', "rate of KWD must be"),
        (None, "cannot be read"),
    ],
)
def test_rates_file_that_cannot_be_used_is_a_usage_error(tmp_path: Path, text: str | None, named: str) -> None:
    if text is not None:
        (tmp_path / "rates.json").write_text(text)
    done = paykit("run", *DAY, "--rates", "rates.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "rates.json" in done.stderr
    assert named in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("run",), "--account"),
        (("run", "--account", "a"), "--date"),
        (("run", "--account", "a", "--date", "15.1.2026"), "2026-01-15"),
        (("run", *DAY, "--currency", "xqq"), "XQQ"),
        (("run", *DAY, "--zone", "Mars/Olympus"), "Mars/Olympus"),
        (("run", *DAY, "--processor-url", "ftp://x"), "processor URL"),
        (("run", *DAY, "--processor-url", "http://user:hunter2@x"), "no user, password"),
        (("run", *DAY, "--processor-url", "https://processor.example"), "PAYKIT_PROCESSOR_KEY"),
        (("run", *DAY, "--no-such-option"), "--no-such-option"),
        (("settle",), "settle"),
        (("serve", "--processor-url", "https://processor.example"), "PAYKIT_PROCESSOR_KEY"),
    ],
)
def test_wrong_usage_ends_with_2_and_names_what_is_wrong(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    done = paykit(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert named in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def test_refused_run_ends_with_1_and_names_every_row(tmp_path: Path) -> None:
    with broken_processor() as url:
        done = paykit("run", *DAY, "--processor-url", url, cwd=tmp_path)
    assert done.returncode == 1
    assert "run_refused: settlement refused: 2 problems" in done.stderr
    assert "row txn_01: status 'failed'" in done.stderr
    assert "row txn_04: currency XQQ" in done.stderr


def test_processor_that_is_not_there_ends_with_3(tmp_path: Path) -> None:
    done = paykit("run", *DAY, "--processor-url", "http://127.0.0.1:1", cwd=tmp_path, env={"PAYKIT_ATTEMPTS_MAX": "1"})
    assert (done.returncode, "processor_unavailable" in done.stderr) == (3, True)


def test_error_in_json_goes_to_standard_output(tmp_path: Path) -> None:
    done = paykit("run", *DAY, "--json", "--processor-url", "http://127.0.0.1:1", cwd=tmp_path,
                  env={"PAYKIT_ATTEMPTS_MAX": "1"})  # fmt: skip
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["error"], answer["attempt"]) == (3, "processor_unavailable", 1)


def test_rejected_key_ends_with_1_and_is_not_printed(tmp_path: Path, processor: str) -> None:
    key = "pk_live_neverprintme"
    done = paykit("run", *DAY, "--processor-url", processor, cwd=tmp_path, env={"PAYKIT_PROCESSOR_KEY": key})
    assert (done.returncode, "processor_rejected" in done.stderr) == (1, True)
    assert "neverprintme" not in done.stdout + done.stderr


def test_serve_announces_itself_serves_and_ends_on_sigterm(tmp_path: Path, processor: str) -> None:
    serve = (str(PAYKIT), "serve", "--port", "0", "--processor-url", processor)
    with running(*serve, cwd=tmp_path) as (process, line):
        url = line.split()[3].rstrip(",")
        body = {"account": "acct_123", "date": "2026-01-15"}
        answer = httpx.post(f"{url}/settlements/run", json=body, trust_env=False, timeout=PROGRAM_TIMEOUT_S)
        assert (answer.status_code, answer.json()["total_net"]) == (200, 145199)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PROGRAM_TIMEOUT_S) == 0


def test_serve_says_plainly_that_its_port_is_taken(tmp_path: Path, processor: str) -> None:
    port = processor.rsplit(":", 1)[1]
    done = paykit("serve", "--port", port, cwd=tmp_path)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr


def test_statement_never_cuts_an_amount_on_a_narrow_terminal(tmp_path: Path, processor: str) -> None:
    done = paykit("run", *DAY, "--processor-url", processor, cwd=tmp_path, env={"COLUMNS": "20"})
    for shown in ("¥150,000", "$1,451.99", "145199", "-$35.00"):
        assert shown in done.stdout
    assert "…" not in done.stdout


def test_statement_survives_a_terminal_without_currency_signs(tmp_path: Path, processor: str) -> None:
    done = paykit("run", *DAY, "--processor-url", processor, cwd=tmp_path, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, "$1,451.99" in done.stdout) == (0, True)


def test_help_and_version_are_printed(tmp_path: Path) -> None:
    assert "settlement" in paykit("--help", cwd=tmp_path).stdout
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", paykit("--version", cwd=tmp_path).stdout)
    assert "--dry-run" in paykit("run", "--help", cwd=tmp_path).stdout
    assert paykit(cwd=tmp_path).returncode == 0


def test_module_runs_as_the_program_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "paykit_settle", "--version"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == paykit("--version", cwd=tmp_path).stdout
