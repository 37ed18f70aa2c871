"""Idempotency keys and the fake's own clock, without a socket.

Promises of "exactly once" are proved against these rules. A fake that forgot a key too early, replayed a refusal or let
two requests run under one key would make a double settlement look impossible, or a right client look wrong.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fake_processor import Clock, ProcessorState, load_fixtures
from fake_processor.clock import NS_PER_S, unix_s
from fake_processor.keys import KEY_AGE_MAX_S
from fake_processor.processor import Processor
from fake_processor.wire import Answer, Refusal, Request

DAY = "2026-01-12"
BODY = {"account": "acct_123", "date": DAY, "settlement_currency": "usd", "lines": [], "total_net": 0}
CONTENT = json.dumps(BODY).encode()
FORM = b"account=acct_123&date=2026-01-12&settlement_currency=usd&lines=&total_net=0"


def post(processor: Processor, *, key: str = "key-1", body: bytes = CONTENT, kind: str = "application/json") -> Answer:
    headers = {"authorization": "Bearer sk_test_unit", "content-type": kind, "idempotency-key": key}
    reply = processor.ask(Request(method="POST", path="/v1/settlements", headers=headers, body=body))
    assert reply.answer is not None
    return reply.answer


def said(answer: Answer) -> tuple[int, str | None]:
    return answer.status, json.loads(answer.body).get("error", {}).get("code")


@pytest.fixture
def processor() -> Processor:
    processor = Processor(state=load_fixtures())
    processor.state.clock.freeze(unix_s("2026-01-16T06:00:00Z"))
    return processor


def test_key_is_kept_for_24_hours_of_the_fakes_own_clock(processor: Processor) -> None:
    first = post(processor)
    processor.state.clock.advance(KEY_AGE_MAX_S - 1)
    assert post(processor).body == first.body
    assert len(processor.state.settlements()) == 1
    processor.state.clock.advance(1)
    late = post(processor)
    assert json.loads(late.body)["id"] == "setl_0002"
    assert "Idempotent-Replayed" not in late.headers


def test_replay_does_not_make_a_key_last_longer(processor: Processor) -> None:
    post(processor)
    processor.state.clock.advance(KEY_AGE_MAX_S - 1)
    assert post(processor).headers["Idempotent-Replayed"] == "true"
    processor.state.clock.advance(1)
    assert "Idempotent-Replayed" not in post(processor).headers


def test_expired_key_may_be_used_for_something_else(processor: Processor) -> None:
    post(processor)
    other = CONTENT.replace(b"usd", b"eur")
    assert said(post(processor, body=other)) == (400, "idempotency_key_reused")
    processor.state.clock.advance(KEY_AGE_MAX_S)
    assert said(post(processor, body=other)) == (200, None)


def test_failure_is_replayed_although_nothing_was_settled(processor: Processor) -> None:
    processor.faults.add("error_500", count=1)
    assert said(post(processor)) == (500, "internal")
    again = post(processor)
    assert said(again) == (500, "internal")
    assert again.headers["Idempotent-Replayed"] == "true"
    assert processor.state.settlements() == []
    processor.state.clock.advance(KEY_AGE_MAX_S)
    assert said(post(processor)) == (200, None)


def test_failure_after_the_effect_is_replayed_and_the_settlement_is_there(processor: Processor) -> None:
    processor.faults.add("error_500_after_effect", count=1)
    assert said(post(processor)) == (500, "internal")
    assert said(post(processor)) == (500, "internal")
    assert [row["id"] for row in processor.state.settlements()] == ["setl_0001"]
    assert said(post(processor, body=CONTENT.replace(b"usd", b"eur"))) == (400, "idempotency_key_reused")


def test_failure_of_a_request_that_is_wrong_leaves_its_key_free(processor: Processor) -> None:
    processor.faults.add("error_500", count=1)
    assert said(post(processor, body=b"{}")) == (500, "internal")
    assert said(post(processor)) == (200, None)


@pytest.mark.parametrize("fault", ["error_502", "error_503", "too_many_requests", "unauthorized", "in_flight"])
def test_refusal_before_execution_leaves_the_key_free(processor: Processor, fault: str) -> None:
    processor.faults.add(fault, count=1)
    reply = processor.ask(Request(method="POST", path="/v1/settlements"))
    assert reply.answer is not None
    assert reply.answer.status >= 400
    answer = post(processor)
    assert said(answer) == (200, None)
    assert "Idempotent-Replayed" not in answer.headers


def test_saved_answer_survives_a_failure_of_a_later_attempt(processor: Processor) -> None:
    first = post(processor)
    processor.faults.add("error_500", count=1)
    assert said(post(processor)) == (500, "internal")
    assert post(processor).body == first.body


def test_second_request_under_a_key_in_flight_is_a_conflict(processor: Processor) -> None:
    headers = {
        "authorization": "Bearer sk_test_unit",
        "content-type": "application/json",
        "idempotency-key": '"key-1"',
    }
    request = Request(method="POST", path="/v1/settlements", headers=headers, body=CONTENT)
    with processor.exchange(request) as first:
        conflict = post(processor)
        assert said(conflict) == (409, "idempotency_key_in_use")
        assert json.loads(conflict.body)["error"]["type"] == "idempotency_error"
        assert said(post(processor, key="key-2")) == (200, None)
        done = first.reply().answer
    assert done is not None
    assert (done.status, post(processor).headers["Idempotent-Replayed"]) == (200, "true")


def test_form_and_json_settle_alike(processor: Processor) -> None:
    form = post(processor, body=FORM, kind="application/x-www-form-urlencoded; charset=utf-8")
    assert said(form) == (200, None)
    assert json.loads(post(processor, key="key-2").body) == {**json.loads(form.body), "id": "setl_0002"}


def test_clock_stands_still_jumps_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    before, now, after = clock.machine_s, clock.now_s, clock.machine_s
    assert before <= now <= after
    clock.freeze(1_000)
    clock.advance(5)
    assert (clock.now_s, clock.frozen, clock.text()) == (1_005, True, "1970-01-01T00:16:45Z")
    machine_ns = 1_800_000_000 * NS_PER_S
    monkeypatch.setattr(time, "time_ns", lambda: machine_ns)
    clock.run()
    assert (clock.now_s, clock.frozen) == (1_005, False)
    machine_ns += 7 * NS_PER_S
    assert clock.now_s == 1_012
    clock.advance(3_600)
    assert clock.now_s == 4_612
    clock.freeze()
    machine_ns += 7 * NS_PER_S
    assert clock.now_s == 4_612
    with pytest.raises(ValueError, match="forward only"):
        clock.advance(-1)


@pytest.mark.parametrize("text", ["2026-01-16", "2026-01-16T06:00:00", "tomorrow"])
def test_time_without_a_zone_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the library's own words for the last one
        unix_s(text)


def test_state_refuses_by_itself_what_it_answers_over_a_socket(tmp_path: Path) -> None:
    state = ProcessorState(accounts={"acct_123": []})
    state.fail(CONTENT, idempotency_key="key-1")
    with pytest.raises(Refusal) as refusal:
        state.settle(CONTENT, idempotency_key="key-1")
    assert (refusal.value.status, refusal.value.headers) == (500, {"Idempotent-Replayed": "true"})
    assert list(tmp_path.iterdir()) == []
