"""A plain HTTP client, one per test, that loads no certificates: that would take most of a test's time."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx

_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def plain_client(
    url: str, *, headers: Mapping[str, str] | None = None, timeout_s: int = 60, auth: tuple[str, str] | None = None
) -> httpx.AsyncClient:
    """An httpx client for one address, deaf to the tester's proxies. TLS would fail with it."""
    return httpx.AsyncClient(
        base_url=url, headers=headers, timeout=timeout_s, auth=auth, verify=_NO_CERTIFICATES, trust_env=False
    )
