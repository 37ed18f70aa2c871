"""What others do with the same rows: each reads all pages of the day and gives the net of each currency."""

import asyncio
import json
import socket
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import msgspec
import stripe

from benchmarks.server import DAY_S, DAY_START_S

Nets = dict[str, int]
LIST = f"/v1/balance_transactions?account=acct_1&created[gte]={DAY_START_S}&created[lt]={DAY_START_S + DAY_S}"
HEADERS = {"Authorization": "Bearer sk_test_paykit"}


def urllib_loop(url: str, page_size: int) -> Nets:
    """The loop that everybody writes first: urllib, json, a dict."""
    nets: Nets = defaultdict(int)
    after = ""
    while True:
        request = urllib.request.Request(f"{url}{LIST}&limit={page_size}{after}", headers=HEADERS)  # noqa: S310 - a local URL of ours
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the same
            page = json.load(answer)
        for row in page["data"]:
            nets[row["currency"]] += row["amount"] - row["fee"]
        if not page["has_more"]:
            return dict(nets)
        after = f"&starting_after={page['data'][-1]['id']}"


def stripe_sdk(url: str, page_size: int = 100) -> Nets:
    """The official SDK's automatic paging, async, through httpx."""

    async def read() -> Nets:
        nets: Nets = defaultdict(int)
        client = stripe.StripeClient(
            "sk_test_paykit", base_addresses={"api": url}, http_client=stripe.HTTPXClient(allow_sync_methods=True)
        )
        listed = await client.v1.balance_transactions.list_async(
            {"limit": page_size, "created": {"gte": DAY_START_S, "lt": DAY_START_S + DAY_S}}
        )
        async for row in listed.auto_paging_iter():
            nets[row.currency] += row.amount - row.fee
        return dict(nets)

    return asyncio.run(read())


@dataclass
class _Row:
    id: str
    currency: str
    amount: int
    fee: int


def httpx_dataclass(url: str) -> Nets:
    """httpx, json and a dataclass for each row: a clean modern client."""

    async def read() -> Nets:
        nets: Nets = defaultdict(int)
        after = ""
        async with httpx.AsyncClient(headers=HEADERS, trust_env=False) as client:
            while True:
                page = (await client.get(f"{url}{LIST}&limit=100{after}")).json()
                rows = [_Row(each["id"], each["currency"], each["amount"], each["fee"]) for each in page["data"]]
                for row in rows:
                    nets[row.currency] += row.amount - row.fee
                if not page["has_more"]:
                    return dict(nets)
                after = f"&starting_after={rows[-1].id}"

    return asyncio.run(read())


class _Narrow(msgspec.Struct, gc=False):
    id: str
    currency: str
    amount: int
    fee: int


class _NarrowPage(msgspec.Struct, gc=False):
    data: list[_Narrow]
    has_more: bool


def floor(url: str) -> Nets:
    """No client at all: a blocking socket, a typed decoder, a tight loop. Checks nothing."""
    address = urlsplit(url)
    decode = msgspec.json.Decoder(_NarrowPage).decode
    nets: Nets = {}
    after = ""
    with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
        while True:
            connection.sendall(f"GET {LIST}&limit=100{after} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            data = connection.recv(65_536)
            end = data.index(b"\r\n\r\n") + 4
            length = int(data[data.index(b"Content-Length: ") + 16 : end - 4])
            while len(data) < end + length:
                data += connection.recv(65_536)
            page = decode(data[end:])
            for row in page.data:
                nets[row.currency] = nets.get(row.currency, 0) + row.amount - row.fee
            if not page.has_more:
                return nets
            after = f"&starting_after={page.data[-1].id}"
