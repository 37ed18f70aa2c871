"""When a fault fires: by route, count, number and seeded chance, without a socket.

A soak that fails for one seed is worth something only if the same seed fails again. These rules are what makes a fault
come back exactly where it was.
"""

from __future__ import annotations

import pytest

from fake_processor.clock import NS_PER_S
from fake_processor.fault_catalogue import FAULTS
from fake_processor.faults import FaultBook
from fake_processor.limits import RateLimit
from fake_processor.wire import Refusal, Request

LIST = Request(method="GET", path="/v1/balance_transactions")
POST = Request(method="POST", path="/v1/settlements")


def hits(book: FaultBook, requests: int, request: Request = LIST) -> list[int]:
    """The numbers, from 1, of the requests that were hit."""
    return [number for number in range(1, requests + 1) if book.fire(request)]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"count": 2}, [1, 2]),
        ({"after": 4}, [5, 6]),
        ({"after": 1, "count": 3}, [2, 3, 4]),
        ({"nth": 4}, [4]),
        ({"count": 0}, []),
        ({"per_mille": 0}, []),
    ],
)
def test_fault_fires_on_the_requests_it_is_told_to(when: dict[str, int], expected: list[int]) -> None:
    book = FaultBook()
    book.add("latency", **when)  # type: ignore[arg-type]  # names of the cases above
    assert hits(book, 6) == expected


@pytest.mark.parametrize(
    ("route", "on_list", "on_post"),
    [
        ("*", True, True),
        ("GET /v1/balance_transactions", True, False),
        ("get /v1/balance_transactions", True, False),
        ("/v1/settlements", False, True),
        ("POST /v1/settlements", False, True),
        ("GET /v1/settlements", False, False),
        ("/v1/*", True, True),
        ("POST /v1/*", False, True),
        ("/v1/balance", False, False),
    ],
)
def test_route_is_a_path_with_a_method_or_without(route: str, on_list: bool, on_post: bool) -> None:
    book = FaultBook()
    rule = book.add("latency", route=route)
    assert (bool(book.fire(LIST)), bool(book.fire(POST))) == (on_list, on_post)
    assert rule.seen == on_list + on_post


def test_chance_is_the_seeds_and_comes_back_the_same() -> None:
    def drawn(seed: int) -> list[int]:
        book = FaultBook()
        book.add("latency", per_mille=300, seed=seed)
        return hits(book, 1000)

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert 250 < len(drawn(7)) < 350


def test_several_faults_fire_together_and_heal_ends_them() -> None:
    book = FaultBook()
    book.add("latency")
    book.add("error_500", nth=1)
    book.add("bom", route="/v1/nothing")
    assert [fault.name for fault in book.fire(LIST)] == ["latency", "error_500"]
    assert [fault.name for fault in book.fire(LIST)] == ["latency"]
    book.heal()
    assert book.fire(LIST) == []


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("no_such_fault", {}, "unknown fault 'no_such_fault'"),
        ("latency", {"seconds": 1}, "no option 'seconds'"),
        ("latency", {"wait_ms": "1"}, "wait_ms must be like 100"),
        ("latency", {"wait_ms": True}, "wait_ms must be like 100"),
        ("latency", {"wait_ms": -1}, "wait_ms must be like 100"),
        ("latency", {"per_mille": 1001}, "per_mille must be an integer, 0 to 1000"),
        ("latency", {"nth": 0}, "nth must be an integer, 1 or more"),
        ("latency", {"count": 1.5}, "count must be an integer"),
        ("latency", {"route": "v1/settlements"}, "neither \\* nor a path"),
        ("latency", {"route": 7}, "route must be a text"),
    ],
)
def test_fault_that_cannot_be_is_refused_when_it_is_set(name: str, setting: dict[str, object], message: str) -> None:
    book = FaultBook()
    with pytest.raises(ValueError, match=message):
        book.add(name, **setting)  # type: ignore[arg-type]  # the claim is that this fails
    assert book.rules == []


def test_every_fault_says_in_one_line_what_it_does() -> None:
    for name, kind in FAULTS.items():
        assert name == kind.name
        assert name.replace("_", "").isalnum()
        assert kind.description.endswith(".")
        assert "\n" not in kind.description
        assert 20 < len(kind.description) <= 120
        for option in kind.options:
            assert option in kind.description or option in ("should_retry", "burst"), (
                f"{name} does not explain {option}"
            )


def test_token_bucket_refills_by_the_clock_it_is_given() -> None:
    limit = RateLimit(per_second=2, burst=0, in_flight=0, should_retry=0)
    now_ns = 5 * NS_PER_S
    limit.enter(now_ns)
    limit.enter(now_ns)
    assert limit.headers(now_ns) == {"RateLimit-Policy": '"default";q=2;w=1', "RateLimit": '"default";r=0;t=1'}
    with pytest.raises(Refusal) as refusal:
        limit.enter(now_ns + NS_PER_S // 2 - 1)
    assert refusal.value.status == 429
    assert refusal.value.headers == {"Retry-After": "1", "Stripe-Rate-Limited-Reason": "global-rate"}
    limit.enter(now_ns + NS_PER_S // 2)
    assert limit.headers(now_ns + 10 * NS_PER_S)["RateLimit"] == '"default";r=2;t=0'


def test_burst_is_the_size_of_the_bucket() -> None:
    limit = RateLimit(per_second=1, burst=3, in_flight=0, should_retry=1)
    for _ in range(3):
        limit.enter(0)
    with pytest.raises(Refusal) as refusal:
        limit.enter(0)
    assert refusal.value.headers["Stripe-Should-Retry"] == "true"
    assert limit.headers(0)["RateLimit-Policy"] == '"default";q=3;w=3'


def test_requests_at_once_are_bounded_apart_from_their_rate() -> None:
    limit = RateLimit(per_second=0, burst=0, in_flight=1, should_retry=0)
    limit.enter(0)
    with pytest.raises(Refusal) as refusal:
        limit.enter(0)
    assert refusal.value.headers["Stripe-Rate-Limited-Reason"] == "global-concurrency"
    limit.leave()
    limit.enter(0)
    assert limit.headers(0) == {}
