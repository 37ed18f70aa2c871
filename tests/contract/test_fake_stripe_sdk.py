"""The official stripe SDK, unmodified, against the fake: what it reads, how it pages, which exception it raises.

Real clients are written against this SDK. If it had to be patched, or raised another class than at the real processor,
what is proved against the fake would be worth nothing. stripe is needed by the tests only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stripe

from fake_processor import FakeProcessor, Plan, generated_state
from fake_processor.listing import PageQuery
from fake_processor.wire import Request

DAY_START_S = 1768435200  # 2026-01-15T00:00:00Z
DAY_END_S = DAY_START_S + 86_400
WINDOW: Any = {"gte": DAY_START_S, "lt": DAY_END_S}
DAY_IDS = [f"txn_{number:02d}" for number in range(1, 14)]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProcessor]:
    # Otherwise the SDK writes a file of its own into the tester's home.
    monkeypatch.setattr(stripe, "enable_telemetry", False)
    with FakeProcessor() as fake:
        yield fake


def client_of(fake: FakeProcessor, **options: Any) -> stripe.StripeClient:
    options = {"base_addresses": {"api": fake.url}, **options}
    return stripe.StripeClient(options.pop("key", "sk_test_sdk"), **options)


@pytest.fixture
def client(fake: FakeProcessor) -> stripe.StripeClient:
    return client_of(fake)


def ids(client: stripe.StripeClient, **params: Any) -> list[str]:
    wanted: Any = {"limit": 3, **params}
    listed = client.v1.balance_transactions.list(params=wanted)
    return [row.id for row in listed.auto_paging_iter()]


def test_it_pages_forwards_through_every_row(fake: FakeProcessor, client: stripe.StripeClient) -> None:
    assert ids(client) == [row["id"] for row in fake.state.transactions("acct_123")]
    assert len(fake.requests) > 5


def test_it_pages_backwards_from_a_cursor(client: stripe.StripeClient) -> None:
    # The SDK reverses each page, so that the caller sees the rows moving away from the cursor.
    assert ids(client, created=WINDOW, ending_before="txn_13") == DAY_IDS[-2::-1]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("library", ["httpx", "aiohttp"])
async def test_it_pages_asynchronously_in_both_directions(fake: FakeProcessor, library: str, backwards: bool) -> None:
    transport: Any = stripe.HTTPXClient() if library == "httpx" else stripe.AIOHTTPClient()
    client = client_of(fake, http_client=transport)
    params: Any = {"created": WINDOW, "limit": 4} | ({"ending_before": "txn_13"} if backwards else {})
    try:
        listed = await client.v1.balance_transactions.list_async(params=params)
        found = [row.id async for row in listed.auto_paging_iter()]
    finally:
        await transport.close_async()
    assert found == (DAY_IDS[-2::-1] if backwards else DAY_IDS)


def test_module_style_pages_too(fake: FakeProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stripe, "api_base", fake.url)
    monkeypatch.setattr(stripe, "api_key", "sk_test_module")
    listed = stripe.BalanceTransaction.list(limit=5, created=WINDOW)
    assert [row.id for row in listed.auto_paging_iter()] == DAY_IDS


def test_generated_rows_are_paged_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stripe, "enable_telemetry", False)
    state = generated_state(Plan(transactions=1_200, days=4))
    with FakeProcessor(state) as fake:
        client = client_of(fake)
        listed = client.v1.balance_transactions.list(params={"limit": 100, "created": WINDOW})
        rows = list(listed.auto_paging_iter())
    expected = state.page("acct_123", PageQuery(limit=100, start_s=DAY_START_S, end_s=DAY_END_S))
    assert len(rows) == 300
    assert [row.to_dict() for row in rows[:100]] == expected.rows
    assert all(type(row.amount) is int for row in rows)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"created": DAY_START_S}, ["txn_13"]),
        ({"created": {"gt": DAY_START_S, "lte": DAY_START_S + 9 * 3600 + 758}}, ["txn_11", "txn_12"]),
        ({"created": WINDOW, "currency": "eur"}, ["txn_04", "txn_10"]),
        ({"created": WINDOW, "type": "refund"}, ["txn_03", "txn_12"]),
        ({"source": "ch_10"}, ["txn_10"]),
        ({"payout": "po_09"}, ["txn_09", "txn_1401", "txn_1404", "txn_1407", "txn_1301"]),
        ({"created": WINDOW, "limit": 100}, DAY_IDS),
    ],
)
def test_every_filter_selects(client: stripe.StripeClient, params: dict[str, Any], expected: list[str]) -> None:
    assert ids(client, **params) == expected


def test_one_transaction_is_retrieved_whole(client: stripe.StripeClient) -> None:
    row = client.v1.balance_transactions.retrieve("txn_02")
    assert isinstance(row, stripe.BalanceTransaction)
    assert (row.amount, row.fee, row.net, row.currency, row.status) == (5000, 175, 4825, "usd", "available")
    assert (row.type, row.reporting_category, row.source, row.exchange_rate) == ("charge", "charge", "ch_02", None)
    assert (row.created, row.available_on, row.object) == (1768516867, 1768608000, "balance_transaction")
    assert (row.description, row.fee_details[0].amount, row.fee_details[0].type) == ("Order 2", 175, "stripe_fee")


def test_source_is_expanded_into_an_object(client: stripe.StripeClient) -> None:
    row = client.v1.balance_transactions.retrieve("txn_03", params={"expand": ["source"]})
    assert isinstance(row.source, stripe.Refund)
    listed = client.v1.balance_transactions.list(params={"limit": 1, "expand": ["data.source"]})
    assert isinstance(listed.data[0].source, stripe.Charge)


def test_balance_is_read(client: stripe.StripeClient) -> None:
    balance = client.v1.balance.retrieve()
    assert isinstance(balance, stripe.Balance)
    assert {entry.currency for entry in balance.available} == {"usd", "eur", "gbp", "jpy", "kwd"}


def test_account_header_scopes_what_is_listed(client: stripe.StripeClient) -> None:
    listed = client.v1.balance_transactions.list(options={"stripe_account": "acct_456"})
    assert {row.id for row in listed.data} >= {"txn_456_1501", "txn_456_1502"}


def test_request_id_and_version_come_back(fake: FakeProcessor, client: stripe.StripeClient) -> None:
    response = client.v1.balance_transactions.list().last_response
    assert response is not None
    assert response.request_id == "req_000001"
    assert response.headers["Stripe-Version"] == stripe.api_version


def listing(**params: Any) -> Callable[[stripe.StripeClient], object]:
    return lambda client: client.v1.balance_transactions.list(params=params)  # type: ignore[arg-type]  # some are wrong


SETTLEMENT = {"account": "acct_123", "date": "2026-01-15", "settlement_currency": "usd", "total_net": "0", "lines": ""}


def settling(*, key: str = "key-1", **members: str) -> Callable[[stripe.StripeClient], object]:
    body = {**SETTLEMENT, **members}
    return lambda client: client.raw_request("post", "/v1/settlements", idempotency_key=key, **body)


@pytest.mark.parametrize(
    ("ask", "raised", "status", "code", "param"),
    [
        (listing(limit=1000), stripe.InvalidRequestError, 400, "parameter_invalid_integer", "limit"),
        (listing(color="red"), stripe.InvalidRequestError, 400, "parameter_unknown", "color"),
        (listing(starting_after="txn_none"), stripe.InvalidRequestError, 400, "resource_missing", "starting_after"),
        (listing(ending_before="txn_none"), stripe.InvalidRequestError, 400, "resource_missing", "ending_before"),
        (listing(payout="po_none"), stripe.InvalidRequestError, 400, "resource_missing", "payout"),
        (
            lambda client: client.v1.balance_transactions.retrieve("txn_none"),
            stripe.InvalidRequestError,
            404,
            "resource_missing",
            "id",
        ),
        (
            lambda client: client.raw_request("get", "/v1/fx/rates"),
            stripe.InvalidRequestError,
            400,
            "parameter_missing",
            "base",
        ),
        (settling(total_net="1"), stripe.InvalidRequestError, 400, "amount_mismatch", "total_net"),
    ],
)
def test_wrong_request_raises_the_class_that_the_real_one_raises(
    client: stripe.StripeClient,
    ask: Callable[[stripe.StripeClient], object],
    raised: type[stripe.StripeError],
    status: int,
    code: str,
    param: str,
) -> None:
    with pytest.raises(raised) as caught:
        ask(client)
    error = caught.value
    assert type(error) is raised
    assert (error.http_status, error.code, getattr(error, "param", None)) == (status, code, param)
    assert error.request_id == "req_000001"
    assert error.user_message


def test_wrong_key_raises_authentication_error(fake: FakeProcessor) -> None:
    with pytest.raises(stripe.AuthenticationError) as caught:
        client_of(fake, key="sk_live_wrong").v1.balance_transactions.list()
    assert caught.value.http_status == 401
    assert "sk_live_wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "raised", "status"),
    [
        ("too_many_requests", stripe.RateLimitError, 429),
        ("error_500", stripe.APIError, 500),
        ("error_503", stripe.APIError, 503),
        ("forbidden", stripe.PermissionError, 403),
        ("in_flight", stripe.APIError, 409),
        ("html", stripe.APIError, 200),
        ("reset_before_headers", stripe.APIConnectionError, None),
    ],
)
def test_misbehaviour_raises_the_class_that_the_real_one_raises(
    fake: FakeProcessor, client: stripe.StripeClient, fault: str, raised: type[stripe.StripeError], status: int | None
) -> None:
    fake.fault(fault, route="*")
    with pytest.raises(raised) as caught:
        client.v1.balance_transactions.list()
    assert (type(caught.value), caught.value.http_status) == (raised, status)


def test_rate_limit_raises_and_is_retried_only_when_told_to(
    fake: FakeProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.clock.freeze()
    rule = fake.fault("rate_limit", per_second=1)
    client = client_of(fake, max_network_retries=1)
    monkeypatch.setattr(client._requestor._get_http_client(), "_sleep_time_seconds", lambda *_, **__: 0)
    client.v1.balance_transactions.list()
    with pytest.raises(stripe.RateLimitError):
        client.v1.balance_transactions.list()
    assert rule.seen == 2
    fake.heal()
    told = fake.fault("too_many_requests", count=1, should_retry=1)
    client.v1.balance_transactions.list()
    assert told.seen == 2


def test_settlement_is_posted_as_a_form_replayed_and_never_mixed_up(
    fake: FakeProcessor, client: stripe.StripeClient
) -> None:
    first: Any = settling()(client)
    again: Any = settling()(client)
    assert (first.headers.get("Idempotent-Replayed"), again.headers["Idempotent-Replayed"]) == (None, "true")
    assert again.headers["Idempotency-Key"] == "key-1"
    assert len(fake.state.settlements()) == 1
    with pytest.raises(stripe.IdempotencyError) as caught:
        settling(date="2026-01-14")(client)
    assert caught.value.http_status == 400
    settling(key="key-2")(client)
    assert len(fake.state.settlements()) == 2


def test_second_request_under_a_key_in_flight_is_a_conflict(fake: FakeProcessor, client: stripe.StripeClient) -> None:
    first = Request(method="POST", path="/v1/settlements", headers={"idempotency-key": "key-1"})
    with fake.processor.exchange(first), pytest.raises(stripe.APIError) as caught:
        settling()(client)
    assert (caught.value.http_status, type(caught.value)) == (409, stripe.APIError)
    assert caught.value.error is not None
    assert caught.value.error.code == "idempotency_key_in_use"
    settling()(client)
    assert len(fake.state.settlements()) == 1


def test_sdk_finishes_a_post_whose_answer_was_lost(fake: FakeProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.fault("reset_after_effect", count=1)
    client = client_of(fake, max_network_retries=1)
    monkeypatch.setattr(client._requestor._get_http_client(), "_sleep_time_seconds", lambda *_, **__: 0)
    answer: Any = client.raw_request("post", "/v1/settlements", **SETTLEMENT)
    assert answer.headers["Idempotent-Replayed"] == "true"
    assert len(fake.state.settlements()) == 1
