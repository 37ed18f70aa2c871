"""The reference settlement, pulled over a real socket in small pages: the numbers the product exists for.

Each claim names one way to get a wrong total: a pending row counted, a sign lost, a rate or an exponent misapplied.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from fake_processor import FakeProcessor, ProcessorState, load_fixtures
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import ProcessorRejected, RunRefused, SettlementConflict, WindowOpen
from paykit_settle.models import Settlement, SettlementLine
from paykit_settle.money import ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.run import RunOptions, build_settlement, run_settlement

DAY = "2026-01-15"
SMALL_PAGES = RunOptions(page_size=4)


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as processor:
        yield processor


@pytest.fixture
async def client(fake: FakeProcessor) -> AsyncIterator[ProcessorClient]:
    async with ProcessorClient(fake.url) as processor_client:
        yield processor_client


@pytest.fixture
async def settlement(client: ProcessorClient) -> Settlement:
    return await build_settlement(client, None, "acct_123", DAY, "usd", options=SMALL_PAGES)


def line(settlement: Settlement, currency: str) -> SettlementLine:
    return next(line for line in settlement.lines if line.currency == currency)


async def test_excludes_pending_transactions(settlement: Settlement) -> None:
    assert {group.currency: group.count for group in settlement.roll_up.pending} == {"gbp": 1, "usd": 1}
    assert line(settlement, "usd").charged == 25000
    assert line(settlement, "gbp").refunded == 0


async def test_usd_line_separates_charges_from_refunds(settlement: Settlement) -> None:
    assert (line(settlement, "usd").charged, line(settlement, "usd").refunded) == (25000, -3500)


async def test_usd_net_subtracts_refunds_and_fees(settlement: Settlement) -> None:
    assert (line(settlement, "usd").fees, line(settlement, "usd").net) == (785, 20715)


async def test_eur_line_is_normalized_to_settlement_currency(settlement: Settlement) -> None:
    assert (line(settlement, "eur").net, line(settlement, "eur").net_settlement) == (13535, 14712)
    assert (line(settlement, "gbp").net, line(settlement, "gbp").net_settlement) == (7720, 9772)


async def test_jpy_zero_decimal_line_is_normalized(settlement: Settlement) -> None:
    assert (line(settlement, "jpy").net, line(settlement, "jpy").net_settlement) == (150000, 100000)


async def test_total_net_is_the_sum_in_settlement_currency(settlement: Settlement) -> None:
    assert settlement.total_net == 145199
    assert settlement.total_net == sum(line.net_settlement for line in settlement.lines)


@pytest.mark.parametrize("page_size", [*range(1, 20), 50, 100])
async def test_every_page_size_gives_the_same_settlement(
    fake: FakeProcessor, client: ProcessorClient, page_size: int
) -> None:
    options = RunOptions(page_size=page_size)
    settlement = await build_settlement(client, None, "acct_123", DAY, options=options)
    assert (settlement.total_net, settlement.roll_up.row_count) == (145199, 13)
    pulled = [request for request in fake.requests if request.path == "/v1/balance_transactions"]
    assert len(pulled) == -(-13 // page_size)


async def test_settlement_is_posted_with_its_key_and_may_be_repeated(
    fake: FakeProcessor, client: ProcessorClient
) -> None:
    first = await run_settlement(client, None, "acct_123", DAY)
    again = await run_settlement(client, None, "acct_123", DAY, options=SMALL_PAGES)
    assert (first.settlement_id, first.status, first.total_net, first.currency) == (
        "setl_0001",
        "created",
        145199,
        "usd",
    )
    assert again.settlement_id == "setl_0001"
    posts = [request for request in fake.requests if request.method == "POST"]
    assert len(posts) == 2
    assert len({(request.idempotency_key, request.body) for request in posts}) == 1
    received = (await client.get("/v1/settlements", {"account": "acct_123", "date": DAY}))["data"]
    assert isinstance(received, list)
    assert [entry["total_net"] for entry in received] == [145199]


async def test_day_that_changed_after_it_was_settled_is_a_conflict_and_not_a_second_settlement(
    fake: FakeProcessor, client: ProcessorClient
) -> None:
    await run_settlement(client, None, "acct_123", DAY)
    fake.state.update_transaction("acct_123", "txn_01", amount=20001, net=19391)
    with pytest.raises(SettlementConflict) as caught:
        await run_settlement(client, None, "acct_123", DAY)
    assert caught.value.status == 400
    received = (await client.get("/v1/settlements", {"account": "acct_123"}))["data"]
    assert isinstance(received, list)
    assert len(received) == 1


async def test_another_settlement_currency_for_a_settled_day_is_a_conflict(client: ProcessorClient) -> None:
    await run_settlement(client, None, "acct_123", DAY, "usd")
    with pytest.raises(SettlementConflict):
        await run_settlement(client, None, "acct_123", DAY, "eur")


async def test_settlement_in_yen_goes_through_the_tables_base(client: ProcessorClient) -> None:
    settlement = await build_settlement(client, None, "acct_123", DAY, "JPY")
    # 13535/0.92×1.5, 7720/0.79×1.5, identity, 20715×1.5, each rounded half away from zero.
    assert {line.currency: line.net_settlement for line in settlement.lines} == {
        "eur": 22068, "gbp": 14658, "jpy": 150000, "usd": 31073,
    }  # fmt: skip


async def test_rates_given_by_hand_are_used_and_the_processor_is_not_asked(
    fake: FakeProcessor, client: ProcessorClient
) -> None:
    rates = Rates("usd", {"eur": "1", "gbp": "1", "jpy": "100"}, as_of=datetime(2026, 1, 15, 12, tzinfo=UTC))
    settlement = await build_settlement(client, rates, "acct_123", DAY)
    assert settlement.total_net == 13535 + 7720 + 150000 + 20715
    assert not [request for request in fake.requests if request.path == "/v1/fx/rates"]


async def test_the_days_own_table_is_asked_for(fake: FakeProcessor, client: ProcessorClient) -> None:
    await build_settlement(client, None, "acct_123", DAY)
    asked = [request.query for request in fake.requests if request.path == "/v1/fx/rates"]
    assert asked == [[("base", "usd"), ("date", DAY)]]


@pytest.mark.parametrize(
    ("as_of", "named"),
    [("2026-01-05T00:00:00Z", "264 h"), ("2026-01-17T12:00:00Z", "36 h"), (None, "undated")],
)
async def test_table_that_does_not_belong_to_the_day_refuses_the_run(
    fake: FakeProcessor, client: ProcessorClient, as_of: str | None, named: str
) -> None:
    """FX-15: nothing is posted."""
    table = {
        "object": "fx_rates",
        "base": "usd",
        "source": "test",
        "rates": {"eur": "0.92", "gbp": "0.79", "jpy": "150"},
    }
    fake.state.set_rates(DAY, table | ({"as_of": as_of} if as_of else {}))
    with pytest.raises(RunRefused, match=named):
        await run_settlement(client, None, "acct_123", DAY)
    assert not [request for request in fake.requests if request.method == "POST"]


@pytest.mark.parametrize("rate", ["0", "-0.92", "NaN", "", None])
async def test_unusable_rate_refuses_the_run_and_names_the_currency(
    fake: FakeProcessor, client: ProcessorClient, rate: str | None
) -> None:
    table = {"base": "usd", "as_of": "2026-01-15T16:00:00Z", "source": "test",
             "rates": {"eur": rate, "gbp": "0.79", "jpy": "150"}}  # fmt: skip
    fake.state.set_rates(DAY, table)
    with pytest.raises(RunRefused, match="EUR"):
        await run_settlement(client, None, "acct_123", DAY)
    assert not [request for request in fake.requests if request.method == "POST"]


async def test_day_without_rows_settles_to_nothing_and_is_posted() -> None:
    async with FakeProcessor(ProcessorState(accounts={"acct_123": []})) as fake, ProcessorClient(fake.url) as client:
        posted = await run_settlement(client, None, "acct_123", DAY)
        assert (posted.total_net, posted.settlement.lines) == (0, ())
        assert [request.path for request in fake.requests] == ["/v1/balance_transactions", "/v1/settlements"]


async def test_day_that_has_not_ended_is_refused_before_anything_is_asked(
    fake: FakeProcessor, client: ProcessorClient
) -> None:
    now = datetime(2026, 1, 15, 23, 59, tzinfo=UTC)
    with pytest.raises(WindowOpen):
        await run_settlement(client, None, "acct_123", DAY, now=now)
    assert fake.requests == []
    assert (await build_settlement(client, None, "acct_123", DAY, now=now, allow_open=True)).total_net == 145199


async def test_zone_moves_the_window(fake: FakeProcessor, client: ProcessorClient) -> None:
    options = RunOptions(zone="America/New_York")
    settlement = await build_settlement(client, None, "acct_123", DAY, options=options)
    assert settlement.window.start.isoformat() == "2026-01-15T05:00:00+00:00"
    assert settlement.total_net != 145199
    query = dict(fake.requests[0].query)
    assert (query["created[gte]"], query["created[lt]"]) == ("1768453200", "1768539600")


async def test_unknown_account_is_rejected(client: ProcessorClient) -> None:
    with pytest.raises(ProcessorRejected) as caught:
        await run_settlement(client, None, "acct_unknown", DAY)
    assert caught.value.status == 404


async def test_processors_own_scale_is_read_and_written() -> None:
    """CUR-06 end to end: the posted line is in the processor's scale again."""
    created = 1768435200
    rows = [{"id": "txn_i1", "object": "balance_transaction", "type": "charge", "amount": 84000, "fee": 0, "net": 84000,
             "currency": "isk", "status": "available", "created": created}]  # fmt: skip
    state = ProcessorState(accounts={"acct_123": rows}, rates={})
    rates = Rates("isk", {"usd": "0.0072"}, as_of=datetime(2026, 1, 15, 16, tzinfo=UTC))
    async with FakeProcessor(state) as fake, ProcessorClient(fake.url) as client:
        options = RunOptions(scale=ScaleProfile(overrides={"isk": 2}))
        posted = await run_settlement(client, rates, "acct_123", DAY, options=options)
        assert (posted.settlement.lines[0].net, posted.total_net) == (840, 605)
        assert b'"charged":84000' in fake.requests[-1].body
        assert b'"total_net":605' in fake.requests[-1].body


async def test_bad_rows_refuse_the_run_with_every_one_named() -> None:
    state = load_fixtures()
    state.update_transaction("acct_123", "txn_01", net=1)
    state.update_transaction("acct_123", "txn_04", currency="xqq")
    state.update_transaction("acct_123", "txn_06", status="failed")
    async with FakeProcessor(state) as fake, ProcessorClient(fake.url) as client:
        with pytest.raises(RunRefused) as caught:
            await run_settlement(client, None, "acct_123", DAY, options=SMALL_PAGES)
        assert sorted(problem.subject for problem in caught.value.problems) == ["txn_01", "txn_04", "txn_06"]
        assert not [request for request in fake.requests if request.method == "POST"]
