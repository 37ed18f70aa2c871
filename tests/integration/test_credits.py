"""Credits over real sockets: each key books once, says the same for ever, and a wrong request changes nothing.

Each claim stands for money: a key that leaks between tenants gives one customer's credit to another, and a body that
two readers understand differently books an amount that nobody approved.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from aiohttp.log import access_logger

from paykit_settle.config import Settings
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.service import create_app
from tests.ledger_files import assert_sound, peek
from tests.ledger_service import (
    JSON,
    balance,
    client,
    credit,
    credit_body,
    credit_raw,
    post_crowd,
    service_process,
    serving,
    serving_app,
)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
async def http(database: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(Settings(database=str(database))) as connected:
        yield connected
    assert_sound(database)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One service for all requests that are refused: none of them may leave anything."""
    database = tmp_path_factory.mktemp("refusing") / "ledger.db"
    with service_process(database) as (_, url):
        yield url
    assert_sound(database)
    assert peek(database, "SELECT count(*) FROM journals", "SELECT count(*) FROM accounts") == [[[0]], [[0]]]


@pytest.fixture
async def refusing(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with client(url) as connected:
        yield connected


def line(amount: str, *, currency: str = "USD", more: str = "") -> bytes:
    """A credit whose one amount is written as given."""
    text = f'{{"idempotency_key":"k","lines":[{{"amount_minor":{amount},"currency":"{currency}"{more}}}]}}'
    return text.encode()


async def assert_refused(http: httpx.AsyncClient, body: bytes, *statuses: int) -> httpx.Response:
    """A client error that names itself, and no trace of the request: its key is free."""
    answer = await credit_raw(http, body)
    assert answer.status_code in (statuses or (400,)), answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert await balance(http) == 0
    return answer


async def test_credit_is_booked_and_a_retry_replays_it(http: httpx.AsyncClient) -> None:
    first, again = await credit(http, "t_alpha", "k", 500, -200), await credit(http, "t_alpha", "k", 500, -200)
    assert (first.status_code, first.json()) == (201, {"replayed": False, "currency": "USD", "amount_minor": 300})
    assert (again.status_code, again.json()) == (200, {"replayed": True, "currency": "USD", "amount_minor": 300})
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert await balance(http) == 300


async def test_balance_of_a_tenant_without_entries_is_zero(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/tenants/nobody/balance")
    assert (answer.status_code, answer.json()) == (200, {"currency": "USD", "amount_minor": 0})


async def test_every_retry_gets_the_same_answer(http: httpx.AsyncClient) -> None:
    """IDM-02."""
    answers = [await credit(http, "t_alpha", "k-2", 500) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 200]
    assert {answer.text.replace("true", "false") for answer in answers} == {answers[0].text}
    assert await balance(http) == 500


async def test_same_key_with_another_body_is_a_conflict_and_moves_nothing(http: httpx.AsyncClient) -> None:
    """IDM-01."""
    assert (await credit(http, "t_alpha", "k-1", 500)).status_code == 201
    other = await credit(http, "t_alpha", "k-1", 900)
    assert (other.status_code, other.json()["error"]) == (409, "idempotency_conflict")
    assert "500" not in other.text
    assert await balance(http) == 500
    assert (await credit(http, "t_alpha", "k-1", 500)).json()["replayed"] is True


async def test_keys_are_scoped_to_the_tenant(http: httpx.AsyncClient) -> None:
    """IDM-04."""
    amounts = {"t_alpha": 500, "t_beta": 500, "t_gamma": 800}
    for tenant, amount in amounts.items():
        assert (await credit(http, tenant, "1", amount)).status_code == 201
    assert {tenant: await balance(http, tenant) for tenant in amounts} == amounts


async def test_tenant_and_key_are_not_run_together(http: httpx.AsyncClient) -> None:
    assert (await credit(http, "a", "b:c", 5)).status_code == 201
    assert (await credit(http, "a:b", "c", 7)).status_code == 201
    assert (await balance(http, "a"), await balance(http, "a:b")) == (5, 7)


async def test_member_order_and_white_space_are_no_other_body(http: httpx.AsyncClient) -> None:
    """IDM-07."""
    one = b'{"idempotency_key":"k-7","lines":[{"amount_minor":100,"currency":"USD"}],"memo":"x"}'
    two = b'{ "memo" : "\\u0078",\n "lines": [ {"currency":"USD", "amount_minor":100} ], "idempotency_key":"k-7" }'
    assert (await credit_raw(http, one)).status_code == 201
    assert (await credit_raw(http, two)).json()["replayed"] is True
    assert await balance(http) == 100


@pytest.mark.parametrize("more", [',"memo":"y"', ',"memo":1.0', ',"note":[]'])
async def test_unknown_members_are_ignored_but_make_another_body(http: httpx.AsyncClient, more: str) -> None:
    assert (await credit_raw(http, line("100"))).status_code == 201
    assert (await credit_raw(http, line("100", more=more))).status_code == 409


@pytest.mark.parametrize("crowd", [8, 200])
async def test_parallel_retries_add_money_once(http: httpx.AsyncClient, crowd: int) -> None:
    answers = await post_crowd(http, "/v1/tenants/t_alpha/credits", [credit_body("k-3", 700)] * crowd)
    assert sorted(status for status, _ in answers) == [200] * (crowd - 1) + [201]
    assert {answer["amount_minor"] for _, answer in answers} == {700}
    assert await balance(http) == 700


async def test_parallel_credits_lose_no_update(http: httpx.AsyncClient, database: Path) -> None:
    await post_crowd(http, "/v1/tenants/t_alpha/credits", [credit_body(f"k{number}", 7) for number in range(200)])
    assert await balance(http) == 1400
    (rows,) = peek(database, "SELECT count(*), sum(amount) FROM entries WHERE account = 'balance'")
    assert rows == [[200, 1400]]


async def test_replay_gives_the_first_answer_not_a_fresh_one(database: Path) -> None:
    """The credit was in a currency that is accepted no more: what it was answered then still stands."""
    body = credit_body("k", 5, currency="EUR")
    async with serving(Settings(database=str(database), credit_currencies="usd,eur")) as http:
        assert (await http.post("/v1/tenants/t/credits", json=body)).status_code == 201
        assert (await http.post("/v1/tenants/t/credits", json=body)).json() == {
            "replayed": True, "currency": "EUR", "amount_minor": 5,
        }  # fmt: skip
        assert (await balance(http, "t", "EUR"), await balance(http, "t")) == (5, 0)
    async with serving(Settings(database=str(database))) as http:
        assert (await http.post("/v1/tenants/t/credits", json=body)).status_code == 400
        assert await balance(http, "t", "EUR") == 5


@pytest.mark.parametrize("amount", ["true", "false"])
async def test_boolean_is_no_amount(refusing: httpx.AsyncClient, amount: str) -> None:
    """JSN-01."""
    assert (await assert_refused(refusing, line(amount))).json()["error"] == "invalid_amount"


@pytest.mark.parametrize("amount", ["19.99", "100.0", "1e2", "1E+2", "-0.0", "0.1", '"199"', "null", "[]", "{}"])
async def test_only_an_integer_is_an_amount(refusing: httpx.AsyncClient, amount: str) -> None:
    """JSN-02."""
    assert (await assert_refused(refusing, line(amount))).json()["error"] == "invalid_amount"


@pytest.mark.parametrize("amount", ["NaN", "Infinity", "-Infinity"])
async def test_nan_and_infinity_are_refused_everywhere(refusing: httpx.AsyncClient, amount: str) -> None:
    """JSN-03."""
    await assert_refused(refusing, line(amount))
    await assert_refused(refusing, line("100", more=f',"x":{amount}'))
    await assert_refused(refusing, line("100", more=f',"x":[{{"y":{amount}}}]'))


@pytest.mark.parametrize(
    "body",
    [
        line("4", more=',"amount_minor":10000'),
        line("4", more=',"amount_\\u006dinor":10000'),
        line("4", more=',"x":{"a":1,"a":2}'),
        b'{"idempotency_key":"k","idempotency_key":"k","lines":[{"amount_minor":4,"currency":"USD"}]}',
    ],
)
async def test_repeated_member_names_are_refused(refusing: httpx.AsyncClient, body: bytes) -> None:
    """JSN-05: also escaped, and in members that are ignored."""
    assert (await assert_refused(refusing, body)).json()["error"] == "invalid_json"


async def test_integers_above_2_53_stay_exact(http: httpx.AsyncClient) -> None:
    """JSN-09."""
    assert '"amount_minor":9007199254740993}' in (await credit_raw(http, line("9007199254740993"))).text
    answer = await http.get("/v1/tenants/t_alpha/balance")
    assert '"amount_minor": 9007199254740993}' in answer.text


async def test_largest_amount_is_booked(http: httpx.AsyncClient) -> None:
    """JSN-10, the value that fits."""
    assert (await credit_raw(http, line("9223372036854775807"))).status_code == 201
    assert await balance(http) == AMOUNT_MAX


@pytest.mark.parametrize(
    "amount",
    ["9223372036854775808", "18446744073709551616", "-9223372036854775808", "-9223372036854775809", "9" * 5000],
)
async def test_integers_beyond_64_bits_are_refused(refusing: httpx.AsyncClient, amount: str) -> None:
    """JSN-10."""
    await assert_refused(refusing, line(amount))


async def test_sum_beyond_the_range_is_refused(http: httpx.AsyncClient) -> None:
    answer = await credit(http, "t_alpha", "k", AMOUNT_MAX, 1)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_amount")
    assert await balance(http) == 0
    assert (await credit(http, "t_alpha", "k", AMOUNT_MAX, 1, -1)).status_code == 201


@pytest.mark.parametrize("sign", [1, -1])
async def test_balance_beyond_the_range_is_refused_and_frees_the_key(http: httpx.AsyncClient, sign: int) -> None:
    await credit(http, "t_alpha", "k", sign * AMOUNT_MAX)
    answer = await credit(http, "t_alpha", "more", sign)
    assert (answer.status_code, answer.json()["error"]) == (422, "balance_out_of_range")
    assert await balance(http) == sign * AMOUNT_MAX
    assert (await credit(http, "t_alpha", "more", -sign)).status_code == 201


@pytest.mark.parametrize("currency", ["EUR", "usd", "Usd", "US", "USDT", "", "XXX", "ＵＳＤ", "\\u0000SD"])
async def test_currency_that_is_not_accepted_is_refused(refusing: httpx.AsyncClient, currency: str) -> None:
    await assert_refused(refusing, line("5", currency=currency))


@pytest.mark.parametrize("body", [b'"currency":null', b'"currency":5', b'"amount_minor":5'])
async def test_line_without_a_currency_or_an_amount_is_refused(refusing: httpx.AsyncClient, body: bytes) -> None:
    await assert_refused(refusing, b'{"idempotency_key":"k","lines":[{' + body + b"}]}")


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ('"lines":[]', "empty_lines"),
        ('"other":1', "invalid_request"),
        ('"lines":null', "invalid_request"),
        ('"lines":{}', "invalid_request"),
        ('"lines":"x"', "invalid_request"),
        ('"lines":[null]', "invalid_request"),
        ('"lines":[[]]', "invalid_request"),
        ('"lines":[{"amount_minor":1,"currency":"USD","desc":5}]', "invalid_request"),
    ],
)
async def test_credit_needs_lines(refusing: httpx.AsyncClient, lines: str, code: str) -> None:
    answer = await assert_refused(refusing, f'{{"idempotency_key":"k",{lines}}}'.encode())
    assert answer.json()["error"] == code


@pytest.mark.parametrize("key", ['""', '" "', '"\\t"', "null", "5", "true", "[]", '"a\\nb"', f'"{"k" * 256}"'])
async def test_key_that_is_blank_too_long_or_no_text_is_refused(refusing: httpx.AsyncClient, key: str) -> None:
    body = f'{{"idempotency_key":{key},"lines":[{{"amount_minor":1,"currency":"USD"}}]}}'
    assert (await assert_refused(refusing, body.encode())).json()["error"] == "invalid_key"


async def test_key_is_needed_and_may_have_255_characters(http: httpx.AsyncClient) -> None:
    await assert_refused(http, b'{"lines":[{"amount_minor":1,"currency":"USD"}]}')
    assert (await credit(http, "t_alpha", "é" * 255, 1)).status_code == 201


async def test_every_wrong_field_is_named(refusing: httpx.AsyncClient) -> None:
    lines = [{"amount_minor": True, "currency": "usd"}, {"amount_minor": 1}, 3]
    answer = await refusing.post("/v1/tenants/t/credits", json={"idempotency_key": "k", "lines": lines})
    assert [fault["field"] for fault in answer.json()["fields"]] == [
        "lines[0].amount_minor", "lines[0].currency", "lines[1].currency", "lines[2]",
    ]  # fmt: skip


async def test_lines_may_be_many_but_not_too_many(http: httpx.AsyncClient) -> None:
    assert (await credit(http, "t_alpha", "k", *[1] * 1000)).json()["amount_minor"] == 1000
    assert (await credit(http, "t_alpha", "k2", *[1] * 1001)).status_code == 400
    assert await balance(http) == 1000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        line("1") + b"x",
        b"\xef\xbb\xbf" + line("1"),
        line("1").decode().encode("utf-16"),
        line("1").decode().encode("utf-16-le"),
        line("1", more=',"desc":"\xff"').replace("\xff".encode(), b"\xff"),
        line("1", more=',"desc":"x"').replace(b'"x"', b'"\xed\xa0\x80"'),
        line("1", more=',"desc":"\\ud800"'),
        line("1", more=',"desc":"a\\u0000b"'),
        line("1", more=',"x":"\\udfff"'),
        line("1", more=',"\\u0000":1'),
        line("1", more=',"x":' + "[" * 100 + "]" * 100),
        line("1", more=',"x":' + "[" * 100_000 + "]" * 100_000),
        line("1", more=',"x":' + '{"a":' * 100_000 + "1" + "}" * 100_000),
        b"[" * 200_000,
    ],
)
async def test_text_that_is_not_strict_json_is_refused(refusing: httpx.AsyncClient, body: bytes) -> None:
    await assert_refused(refusing, body)


async def test_surrogate_pair_is_a_character(http: httpx.AsyncClient) -> None:
    assert (await credit_raw(http, line("1", more=',"desc":"\\ud83d\\ude42"'))).status_code == 201


async def test_body_over_the_limit_is_refused_with_and_without_its_length(refusing: httpx.AsyncClient) -> None:
    """JSN-14: 1 MiB, a setting."""
    body = line("1", more=f',"desc":"{"x" * 2_000_000}"')

    async def drip() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    await assert_refused(refusing, body, 413)
    chunked = await refusing.post("/v1/tenants/t_alpha/credits", content=drip(), headers=JSON)
    assert chunked.status_code == 413
    assert await balance(refusing) == 0


async def test_json_must_say_that_it_is_json(refusing: httpx.AsyncClient) -> None:
    answer = await refusing.post(
        "/v1/tenants/t_alpha/credits", content=line("1"), headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 415
    assert await balance(refusing) == 0


@pytest.mark.parametrize(
    "path",
    [
        "/v1/tenants/t/balances",
        "/v1/tenants/t",
        "/v1/tenants//balance",
        "/v1/tenants",
        "/v1/tenants/t/balance/",
        "/v1/tenants/a/b/balance",
        "/v2/tenants/t/balance",
        "/tenants/t/balance",
    ],
)
async def test_unknown_route_is_not_an_empty_balance(refusing: httpx.AsyncClient, path: str) -> None:
    answer = await refusing.get(path)
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "credits"), ("PUT", "credits"), ("DELETE", "credits"), ("POST", "balance"), ("PUT", "accounts/a")],
)
async def test_wrong_method_is_refused(refusing: httpx.AsyncClient, method: str, path: str) -> None:
    answer = await refusing.request(method, f"/v1/tenants/t/{path}")
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("tenant", ["%00", "%0A", "%20", "a" * 256, "%FF", "%ED%A0%80", "%80abc", "%C2%85"])
async def test_tenant_that_cannot_be_shown_is_refused(refusing: httpx.AsyncClient, tenant: str) -> None:
    """Two tenants whose bytes are no text would otherwise share one account."""
    answer = await refusing.get(f"/v1/tenants/{tenant}/balance")
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_tenants_are_told_apart_after_decoding(http: httpx.AsyncClient) -> None:
    tenants = ["a%2Fb", "a%20b", "a+b", "%25FF", "a%3Fb", "%C3%A9", "e%CC%81", "A", "a", "..%2Fa", "a" * 255]
    for amount, tenant in enumerate(tenants, start=1):
        assert (await credit(http, tenant, "k", amount)).status_code == 201, tenant
    assert [await balance(http, tenant) for tenant in tenants] == list(range(1, len(tenants) + 1))
    assert (await balance(http, "%61"), await balance(http, "%41")) == (9, 8)


@pytest.mark.parametrize(
    "query", ["currency=usd", "currency=XXX", "currency=", "currency=USD&currency=USD", "currenci=USD", "currency=%FF"]
)
async def test_query_that_cannot_be_read_is_refused(refusing: httpx.AsyncClient, query: str) -> None:
    assert (await refusing.get(f"/v1/tenants/t/balance?{query}")).status_code == 400


async def test_balance_may_be_asked_in_any_currency(http: httpx.AsyncClient) -> None:
    await credit(http, "t_alpha", "k", 5)
    assert await balance(http, currency="EUR") == 0
    assert (await http.get("/v1/tenants/t_alpha/balance")).json()["amount_minor"] == 5


async def test_what_a_credit_was_for_is_kept(http: httpx.AsyncClient, database: Path) -> None:
    await credit_raw(http, line("5", more=',"desc":"tip"'))
    ((row,),) = peek(database, "SELECT details, event_at_ms = recorded_at_ms FROM journals")
    assert json.loads(str(row[0])) == [{"amount_minor": 5, "currency": "USD", "desc": "tip"}]
    assert row[1] == 1


async def test_signal_of_who_embeds_the_service_sees_the_answer(database: Path) -> None:
    async def mark(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers["X-Mark"] = "seen"

    app = create_app(Settings(database=str(database)))
    app.on_response_prepare.append(mark)
    async with serving_app(app) as http:
        assert (await credit(http, "t", "k", 5)).headers["X-Mark"] == "seen"


async def test_access_log_has_the_size_of_the_answer(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", access_logger.name):
        async with serving_app(create_app(Settings(database=str(database))), access_log=access_logger) as http:
            answer = await credit(http, "t", "k", 5)
    found = re.search(r'HTTP/1.1" 201 (\d+) ', caplog.text)
    assert found is not None
    assert int(found[1]) > len(answer.content)  # the head counts as well


@pytest.mark.parametrize("path", ["credits", "transfers"])
async def test_answer_has_the_same_head_whoever_writes_it(http: httpx.AsyncClient, path: str) -> None:
    """The usual answer is written by hand; where the connection ends with it, aiohttp writes it."""
    await http.post("/v1/tenants/t/accounts", json={"name": "a", "currency": "USD"})
    body = credit_body("k", 5)
    if path == "transfers":
        await credit(http, "t", "k", 5)
        body = {"id": "é", "source": "balance", "target": "a", "amount_minor": 5, "currency": "USD"}
    url = f"/v1/tenants/t/{path}"
    made, usual, last = [
        await http.post(url, json=body, headers=headers) for headers in ({}, {}, {"Connection": "close"})
    ]
    assert (made.status_code, made.reason_phrase) == (201, "Created")
    assert (usual.status_code, usual.reason_phrase, usual.content) == (
        last.status_code,
        last.reason_phrase,
        last.content,
    )
    heads = [{name: value for name, value in answer.headers.items() if name != "date"} for answer in (usual, last)]
    assert heads[1].pop("connection") == "close"
    assert heads[0] == heads[1]
    assert abs(parsedate_to_datetime(usual.headers["date"]) - parsedate_to_datetime(last.headers["date"])).seconds <= 60
    assert {name for name, _ in usual.headers.items()} - set(made.headers) == {"idempotent-replayed"}
