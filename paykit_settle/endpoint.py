"""Where the processor is, how we are let in, and what may stand in a request's URL, checked before anything is sent.

No message here repeats what it refuses: a URL may hold a password, and a key is a secret.
"""

import contextlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlsplit

from paykit_settle.errors import InvalidConfig, InvalidRequest

LOOPBACK_API_KEY = "sk_test_paykit"
"""The key used when none is given; for a processor on this machine only."""


QUERY_BYTES_MAX = 4096
"""The most bytes of one request's parameters, as they stand in its URL."""

_KEY_MODES = {"sk_test_": "test", "rk_test_": "test", "sk_live_": "live", "rk_live_": "live"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorIdentity:
    """Which processor is asked: its address in normal form, and whether the key is one for tests; never the key."""

    url: str
    key_mode: str

    def __str__(self) -> str:
        return f"{self.url} ({self.key_mode} key)" if self.key_mode != "unmarked" else self.url


def known_processor(url: str | None, key_mode: str | None) -> ProcessorIdentity | None:
    """Return the processor that was kept as these two; None where none was."""
    return None if url is None or key_mode is None else ProcessorIdentity(url=url, key_mode=key_mode)


def identity_of(base_url: str, api_key: str) -> ProcessorIdentity:
    """Return what tells one processor from another: scheme, host in lower case, port, path, and the key's mode.

    Two spellings of one address are one identity; two names of one host are not. A key that does not say whether it
    is a test's is `unmarked`.
    """
    url = urlsplit(base_url)
    host = url.hostname or ""  # in lower case, and without the brackets of an IPv6 address
    with contextlib.suppress(ValueError):
        host = str(ipaddress.ip_address(host))
    port = url.port or (443 if url.scheme == "https" else 80)
    address = f"[{host}]" if ":" in host else host
    mode = next((mode for prefix, mode in _KEY_MODES.items() if api_key.startswith(prefix)), "unmarked")
    return ProcessorIdentity(url=f"{url.scheme}://{address}:{port}{url.path.rstrip('/')}", key_mode=mode)


def check_base_url(base_url: str) -> tuple[str, bool]:
    """The URL, its scheme in lower case and no slash at its end, and whether it names this machine.

    `InvalidConfig` for one that cannot be used.
    """
    try:
        url = urlsplit(base_url)
        (url.hostname or "").encode("idna")  # refuses names that no resolver takes
        is_valid = url.port is None or url.port > 0
    except ValueError:
        is_valid = False
    if not is_valid or not base_url.isascii() or not base_url.isprintable() or " " in base_url:
        raise InvalidConfig("processor URL is not a URL")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InvalidConfig("processor URL must start with http:// or https:// and name a host")
    if "@" in url.netloc or "?" in base_url or "#" in base_url:
        raise InvalidConfig("processor URL must hold no user, password, query or fragment")
    return url.scheme + base_url[len(url.scheme) :].rstrip("/"), is_loopback(url.hostname)


@lru_cache(maxsize=64)
def check_path(path: str) -> str:
    """The path itself when it can only lead to the processor; `InvalidRequest` otherwise.

    It is put behind the base URL: without its slash it could name another host, with `?` or `#` add a parameter.
    """
    if not path.startswith("/") or not is_header_safe(path) or any(char in path for char in " ?#\\"):
        raise InvalidRequest("path must start with a slash and be printable ASCII without spaces, ?, # or a backslash")
    return path


def write_query(params: Mapping[str, str | int]) -> str:
    """The parameters as they stand in a URL behind its `?`, percent-encoded; `InvalidRequest` if they cannot."""
    try:
        query = "&".join([f"{_quoted(name)}={_quoted(str(value))}" for name, value in params.items()])
    except UnicodeEncodeError:
        raise InvalidRequest("a parameter holds a lone surrogate, which has no form in a URL") from None
    if len(query) > QUERY_BYTES_MAX:
        raise InvalidRequest(f"parameters are over {QUERY_BYTES_MAX} bytes in all")
    return query


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return quote(text, safe="")


def is_loopback(host: str) -> bool:
    """Whether a host, by name or by address, is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_api_key(api_key: str | None, *, loopback: bool) -> str:
    """The key to use; None stands for `LOOPBACK_API_KEY`, and is `InvalidConfig` for a processor elsewhere."""
    if api_key is None:
        if not loopback:
            raise InvalidConfig("a processor that is not on this machine needs its API key (PAYKIT_PROCESSOR_KEY)")
        return LOOPBACK_API_KEY
    if not is_header_safe(api_key) or " " in api_key:
        raise InvalidConfig("the processor's API key must be printable ASCII without spaces")
    return api_key


def is_header_safe(text: str) -> bool:
    """Whether a text may be the value of a header as it is."""
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()
