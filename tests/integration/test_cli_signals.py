"""Ctrl-C and SIGTERM at the command line: what becomes of the run, what is printed, and with which code it ends.

Real processes and real signals; a gate at the processor holds the run where the signal is to find it. Without these a
person who stops a run would not know whether it was posted.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from fake_processor import FakeProcessor
from tests.fault.gate import GATE_TIMEOUT_S, Gate
from tests.fault.stage import ACCOUNT, DAY, LIST, SETTLEMENTS, check_sent_once, columns, posts
from tests.programs import PAYKIT, PROGRAM_TIMEOUT_S, environment, paykit, paykit_with

DATABASE = "paykit.db"
ONE_DAY = ("run", "--account", ACCOUNT, "--date", DAY)
THREE_DAYS = ("run", "--account", ACCOUNT, "--from", DAY, "--to", "2026-01-17")
SENDING = "a settlement is being posted"
STATE = "SELECT state, owner, error_code, retry_at_ms FROM runs WHERE date = '2026-01-15'"
SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture
def fake() -> Iterator[FakeProcessor]:
    with FakeProcessor() as processor:
        yield processor


@contextmanager
def started(fake: FakeProcessor, folder: Path, *words: str, attempts_max: int = 1) -> Iterator["subprocess.Popen[str]"]:
    """The program at work, in a folder of its own; killed at the end if it is still there."""
    settings = {"PAYKIT_PROCESSOR_URL": fake.url, "PAYKIT_ATTEMPTS_MAX": str(attempts_max)}
    process = subprocess.Popen(
        [str(PAYKIT), *words],
        cwd=folder,
        env=environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=PROGRAM_TIMEOUT_S)


def reached(gate: Gate) -> None:
    assert gate.reached.wait(GATE_TIMEOUT_S)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PROGRAM_TIMEOUT_S)
    return process.returncode, out, err


def first_error(process: "subprocess.Popen[str]") -> str:
    """The first line on standard error: the program has heard the signal then."""
    assert process.stderr is not None
    return process.stderr.readline()


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def again(fake: FakeProcessor, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return paykit(*words, cwd=folder, env={"PAYKIT_PROCESSOR_URL": fake.url})


def check_posted(folder: Path) -> None:
    assert columns(folder / DATABASE, STATE) == [("posted", None, None, None)]


# While it reads.


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("as_json", [False, True])
def test_signal_while_pulling_ends_the_run_as_failed_and_says_so(
    fake: FakeProcessor, tmp_path: Path, number: int, as_json: bool
) -> None:
    gate = Gate(fake, "GET", LIST)
    with started(fake, tmp_path, *ONE_DAY, *["--json"] * as_json) as process:
        reached(gate)
        process.send_signal(number)
        code, out, err = ended(process)
    gate.open()
    told = "nothing was posted; run it again to go on"
    assert code == 130
    if as_json:
        assert (lines(out), err) == ([{"error": "interrupted", "detail": told, "date": DAY}], "")
    else:
        assert (out, err) == ("", f"{DAY} interrupted: {told}\n")
    assert columns(tmp_path / DATABASE, STATE) == [("failed", None, "interrupted", None)]
    assert posts(fake) == []
    resumed = again(fake, tmp_path, "resume")
    assert (resumed.returncode, resumed.stdout) == (0, "0 runs resumed\n")
    assert again(fake, tmp_path, "resume", "run_000001").returncode == 2
    assert again(fake, tmp_path, *ONE_DAY).returncode == 0
    check_sent_once(fake)
    check_posted(tmp_path)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_the_first_of_several_days_is_read_runs_none_of_the_others(
    fake: FakeProcessor, tmp_path: Path, number: int
) -> None:
    gate = Gate(fake, "GET", LIST)
    with started(fake, tmp_path, *THREE_DAYS) as process:
        reached(gate)
        process.send_signal(number)
        code, out, err = ended(process)
    gate.open()
    assert (code, out) == (130, "")
    assert err.endswith("2 later day(s) were not run\n")
    assert columns(tmp_path / DATABASE, "SELECT date, state FROM runs") == [(DAY, "failed")]


def test_signal_while_a_resumed_run_is_read_ends_it_too(fake: FakeProcessor, tmp_path: Path) -> None:
    gate = Gate(fake, "GET", LIST)
    with started(fake, tmp_path, *ONE_DAY) as process:
        reached(gate)
        process.kill()
        ended(process)
    gate.open()
    gate = Gate(fake, "GET", LIST)
    with started(fake, tmp_path, "resume") as process:
        reached(gate)
        process.send_signal(signal.SIGINT)
        code, out, err = ended(process)
    gate.open()
    assert (code, out) == (130, "1 run resumed\n")
    assert err == f"{DAY} interrupted: nothing was posted; run it again to go on\n"
    assert columns(tmp_path / DATABASE, STATE) == [("failed", None, "interrupted", None)]


def test_signal_while_one_of_several_runs_is_resumed_names_the_others(fake: FakeProcessor, tmp_path: Path) -> None:
    for day in (DAY, "2026-01-16"):
        gate = Gate(fake, "GET", LIST)
        with started(fake, tmp_path, "run", "--account", ACCOUNT, "--date", day) as process:
            reached(gate)
            process.kill()
            ended(process)
        gate.open()
    gate = Gate(fake, "GET", LIST)
    with started(fake, tmp_path, "resume") as process:
        reached(gate)
        process.send_signal(signal.SIGTERM)
        code, _, err = ended(process)
    gate.open()
    assert code == 130
    assert "2026-01-16 run_000002 of acct_123 is pulling: it is due, and was not taken up" in err
    assert columns(tmp_path / DATABASE, "SELECT state FROM runs ORDER BY id") == [("failed",), ("pulling",)]


# Once it is frozen.


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(("method", "path"), [("GET", SETTLEMENTS), ("POST", SETTLEMENTS)])
def test_signal_after_the_freeze_lets_the_run_end_and_prints_what_came_of_it(
    fake: FakeProcessor, tmp_path: Path, number: int, as_json: bool, method: str, path: str
) -> None:
    gate = Gate(fake, method, path)
    with started(fake, tmp_path, *ONE_DAY, *["--json"] * as_json) as process:
        reached(gate)
        process.send_signal(number)
        assert SENDING in first_error(process)
        gate.open()
        code, out, err = ended(process)
    assert (code, err) == (0, "")
    if as_json:
        (posted,) = lines(out)
        assert (posted["settlement_id"], posted["total_net"]) == ("setl_0001", 145199)
    else:
        assert "The processor answered: setl_0001 created, total_net 145199 usd" in out
    check_sent_once(fake)
    check_posted(tmp_path)


def test_run_that_ends_otherwise_after_a_signal_keeps_its_own_code(fake: FakeProcessor, tmp_path: Path) -> None:
    gate = Gate(fake, "GET", SETTLEMENTS)
    fake.fault("error_503", route=f"POST {SETTLEMENTS}", retry_after_s=0)
    with started(fake, tmp_path, *ONE_DAY) as process:
        reached(gate)
        process.send_signal(signal.SIGINT)
        assert SENDING in first_error(process)
        gate.open()
        code, out, err = ended(process)
    ((state, code_stored),) = columns(tmp_path / DATABASE, "SELECT state, error_code FROM runs")
    assert (code, out) == ({"unknown": 4, "failed": 3}[str(state)], "")
    assert str(code_stored) in err


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_after_the_freeze_of_one_of_several_days_finishes_that_day_and_ends_with_130(
    fake: FakeProcessor, tmp_path: Path, number: int
) -> None:
    gate = Gate(fake, "POST", SETTLEMENTS)
    with started(fake, tmp_path, *THREE_DAYS) as process:
        reached(gate)
        process.send_signal(number)
        assert SENDING in first_error(process)
        gate.open()
        code, out, err = ended(process)
    assert (code, err) == (130, "2 later day(s) were not run\n")
    assert "setl_0001" in out
    assert columns(tmp_path / DATABASE, "SELECT date, state FROM runs") == [(DAY, "posted")]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("as_json", [False, True])
def test_second_signal_leaves_the_run_to_resume_and_says_so(
    fake: FakeProcessor, tmp_path: Path, number: int, as_json: bool
) -> None:
    gate = Gate(fake, "POST", SETTLEMENTS)
    with started(fake, tmp_path, *ONE_DAY, *["--json"] * as_json) as process:
        reached(gate)
        process.send_signal(number)
        assert SENDING in first_error(process)
        process.send_signal(number)
        code, out, err = ended(process)
    gate.open()
    told = "run_000001 is frozen: `paykit-settle resume` goes on with it"
    assert code == 130
    if as_json:
        assert (lines(out), err) == ([{"error": "interrupted", "detail": told, "date": DAY}], "")
    else:
        assert (out, err) == ("", f"{DAY} interrupted: {told}\n")
    assert columns(tmp_path / DATABASE, STATE) == [("frozen", None, None, None)]  # due at once
    resumed = again(fake, tmp_path, "resume")
    assert (resumed.returncode, "1 run resumed" in resumed.stdout) == (0, True)
    check_sent_once(fake)
    check_posted(tmp_path)


# What `resume` leaves alone.


def leave_unknown(fake: FakeProcessor, folder: Path) -> None:
    fake.fault("reset_after_effect", route=f"POST {SETTLEMENTS}")
    fake.fault("error_503", route=f"GET {SETTLEMENTS}", after=1, retry_after_s=0)
    settings = {"PAYKIT_PROCESSOR_URL": fake.url, "PAYKIT_ATTEMPTS_MAX": "1"}
    assert paykit(*ONE_DAY, cwd=folder, env=settings).returncode == 4
    fake.heal()


def test_resume_names_the_run_that_waits_for_its_time_and_takes_it_by_its_id(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    leave_unknown(fake, tmp_path)
    (row,) = columns(tmp_path / DATABASE, "SELECT retry_at_ms FROM runs")
    assert isinstance(row[0], int)
    waits = again(fake, tmp_path, "resume")
    assert (waits.returncode, waits.stdout) == (3, "0 runs resumed\n")
    assert f"{DAY} run_000001 of {ACCOUNT} is unknown: it waits until 20" in waits.stderr
    (told,) = lines(again(fake, tmp_path, "resume", "--json").stdout)
    assert (told["run_id"], told["state"], told["waits_for_processor"]) == ("run_000001", "unknown", None)
    assert (told["needs_person"], told["in_progress"], told["waits_until"][-1]) == (False, False, "Z")
    done = again(fake, tmp_path, "resume", "run_000001")
    assert (done.returncode, "setl_0001" in done.stdout) == (0, True)
    check_sent_once(fake)
    assert again(fake, tmp_path, "resume", "run_000001").returncode == 0  # harmless
    assert again(fake, tmp_path, "resume", "run_000009").returncode == 2


def test_resume_names_the_processor_that_a_run_waits_for(fake: FakeProcessor, tmp_path: Path) -> None:
    leave_unknown(fake, tmp_path)
    before = columns(tmp_path / DATABASE, "SELECT * FROM runs")
    with FakeProcessor() as other:
        waits = again(other, tmp_path, "resume")
        (told,) = lines(again(other, tmp_path, "resume", "--json").stdout)
        named = again(other, tmp_path, "resume", "run_000001")
        assert other.requests == []
    assert (waits.returncode, named.returncode) == (3, 1)
    assert f"it waits for a process that is configured for {fake.url}" in waits.stderr
    assert told["waits_for_processor"] == f"{fake.url} (test key)"
    assert f"is settled at {fake.url}" in named.stderr
    assert columns(tmp_path / DATABASE, "SELECT * FROM runs") == before


def test_resume_names_the_run_that_waits_for_a_person(fake: FakeProcessor, tmp_path: Path) -> None:
    leave_unknown(fake, tmp_path)
    connection = apsw.Connection(str(tmp_path / DATABASE))
    connection.execute("UPDATE runs SET needs_person = 1, retry_at_ms = NULL, error_detail = 'ask them'")
    connection.close()
    waits = again(fake, tmp_path, "resume")
    assert (waits.returncode, "it waits for a person: ask them" in waits.stderr) == (3, True)
    assert lines(again(fake, tmp_path, "resume", "--json").stdout)[0]["needs_person"] is True
    assert again(fake, tmp_path, "resume", "run_000001").returncode == 0
    check_posted(tmp_path)


# Services that stop, and several that start.


def serve(fake: FakeProcessor) -> tuple[str, ...]:
    return ("serve", "--port", "0", "--database", DATABASE, "--processor-url", fake.url)


def test_services_and_a_resume_that_race_for_a_dead_run_settle_it_once(fake: FakeProcessor, tmp_path: Path) -> None:
    gate = Gate(fake, "POST", SETTLEMENTS)
    with started(fake, tmp_path, *ONE_DAY) as process:
        reached(gate)
        process.kill()
        ended(process)
    gate.open()
    with started(fake, tmp_path, *serve(fake)) as one, started(fake, tmp_path, *serve(fake)) as two:
        with started(fake, tmp_path, "resume") as resuming:
            code, out, err = ended(resuming)
        for service in (one, two):
            assert service.stdout is not None
            assert "listens on" in service.stdout.readline()
            service.send_signal(signal.SIGTERM)
        told = [ended(service) for service in (one, two)]
    assert code in (0, 3), err
    assert [each[0] for each in told] == [0, 0]
    check_posted(tmp_path)
    check_sent_once(fake)
    lines_said = [line for each in told for line in each[2].splitlines()]
    by_services = sum("posted as setl_0001" in line for line in lines_said)
    assert by_services + out.count("1 run resumed") == 1
    assert len(lines_said) == by_services


def test_service_that_is_stopped_while_it_resumes_gives_the_run_back_without_noise(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    gate = Gate(fake, "GET", LIST)
    with started(fake, tmp_path, *ONE_DAY) as process:
        reached(gate)
        process.kill()
        ended(process)
    gate.open()
    gate = Gate(fake, "GET", LIST)
    command = paykit_with({"service.SHUTDOWN_TIMEOUT_S": 0}, *serve(fake))
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    reached(gate)
    process.send_signal(signal.SIGTERM)
    code, _, err = ended(process)
    gate.open()
    assert (code, err) == (0, "")
    assert columns(tmp_path / DATABASE, STATE) == [("pulling", None, None, None)]
    assert again(fake, tmp_path, "resume").returncode == 0
    check_posted(tmp_path)
    check_sent_once(fake)
