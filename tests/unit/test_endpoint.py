"""Where requests may go and with which key, decided before anything is sent.

Without these the development key would travel to a real host, a password in a URL would end up in a log, or a path
could lead to a stranger's host.
"""

from urllib.parse import parse_qsl

import pytest

from paykit_settle.endpoint import (
    LOOPBACK_API_KEY,
    QUERY_BYTES_MAX,
    ProcessorIdentity,
    check_api_key,
    check_base_url,
    check_path,
    identity_of,
    is_header_safe,
    is_loopback,
    known_processor,
    write_query,
)
from paykit_settle.errors import InvalidConfig, InvalidRequest


@pytest.mark.parametrize(
    ("url", "kept", "loopback"),
    [
        ("http://127.0.0.1:8787", "http://127.0.0.1:8787", True),
        ("http://localhost/", "http://localhost", True),
        ("HTTP://LOCALHOST:1/base//", "http://LOCALHOST:1/base", True),
        ("http://[::1]:65535", "http://[::1]:65535", True),
        ("http://127.9.9.9", "http://127.9.9.9", True),
        ("https://api.example.com/", "https://api.example.com", False),
        ("https://localhost.example.com", "https://localhost.example.com", False),
        ("http://127.0.0.1.example.com", "http://127.0.0.1.example.com", False),
        ("http://0.0.0.0:1", "http://0.0.0.0:1", False),
        ("http://[2001:db8::1]", "http://[2001:db8::1]", False),
        ("http://127.1", "http://127.1", False),
    ],
)
def test_url_is_kept_and_known_as_this_machine_or_another(url: str, kept: str, loopback: bool) -> None:
    assert check_base_url(url) == (kept, loopback)


@pytest.mark.parametrize(
    "url",
    [
        "", "127.0.0.1:8787", "//host", "ftp://host", "file:///etc/passwd", "http://", "http:///v1", "http://:80",
        "http://host:0", "http://host:65536", "http://host:port", "http://host:-1", "http://[::1", "http://a..b",
        "http://" + "a" * 64, "http://user:Secret@host", "http://Secret@host", "http://host?key=Secret", "http://host?",
        "http://host/#Secret", "http://ho st", "http://host\n", "http://host\t", "http://höst", "http://localhost\\@evil",
    ],
)  # fmt: skip
def test_url_that_is_none_or_says_too_much_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        check_base_url(url)
    assert "Secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.255.0.1", "::1", "localhost"])
def test_this_machine_is_known_by_its_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.", "local", "10.0.0.1", "::", "0", "2130706433", "evil.localhost.com"])
def test_no_other_host_is_this_machine(host: str) -> None:
    assert not is_loopback(host)


def test_key_may_be_left_out_on_this_machine_only() -> None:
    assert check_api_key(None, loopback=True) == LOOPBACK_API_KEY
    with pytest.raises(InvalidConfig, match="PAYKIT_PROCESSOR_KEY"):
        check_api_key(None, loopback=False)


@pytest.mark.parametrize("loopback", [True, False])
def test_given_key_is_used_wherever_the_processor_is(loopback: bool) -> None:
    assert check_api_key("sk_live_1", loopback=loopback) == "sk_live_1"


@pytest.mark.parametrize(
    "key", ["", " ", "Secret key", "Secret\n", "Secret\r\nX: 1", "Secrét", "\x00Secret", "Secret "]
)
def test_key_that_cannot_be_a_header_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        check_api_key(key, loopback=True)
    assert "Secr" not in str(caught.value)


@pytest.mark.parametrize("path", ["/", "/v1/settlements", "/v1/settlements/setl_0001", "//x", "/a%2Fb", "/a:b@c"])
def test_path_below_the_processor_is_kept(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "v1", "@evil.example/", ".evil.example/", ":80/", "/a?b", "/a#b", "/a b", "/a\\b", "/é", "/a\n", "\t/a"],
)
def test_path_that_could_lead_elsewhere_or_add_a_parameter_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest, match="path must start with a slash"):
        check_path(path)


def test_parameters_of_any_text_come_back_from_the_query() -> None:
    params: dict[str, str | int] = {"account": "a&b=c \n\x00 é 中", "created[gte]": 3}
    query = write_query(params)
    assert query.isascii()
    assert query.isprintable()
    assert parse_qsl(query, strict_parsing=True) == [("account", "a&b=c \n\x00 é 中"), ("created[gte]", "3")]
    assert write_query({}) == ""


def test_parameter_that_has_no_form_in_a_url_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="lone surrogate"):
        write_query({"account": "\udcff"})
    with pytest.raises(InvalidRequest, match="lone surrogate"):
        write_query({"\ud800": 1})


def test_parameters_are_bounded_in_all() -> None:
    write_query({"a": "x" * (QUERY_BYTES_MAX - 5), "b": ""})
    with pytest.raises(InvalidRequest, match=f"over {QUERY_BYTES_MAX} bytes"):
        write_query({"a": "x" * (QUERY_BYTES_MAX - 4), "b": ""})
    with pytest.raises(InvalidRequest, match=f"over {QUERY_BYTES_MAX} bytes"):
        write_query({"a": "é" * (QUERY_BYTES_MAX // 6 + 1)})


@pytest.mark.parametrize(("text", "safe"), [("a", True), ("a b", True), ("", False), (" a", False), ("a\x7f", False)])
def test_header_value_is_printable_ascii_without_outer_blanks(text: str, safe: bool) -> None:
    assert is_header_safe(text) is safe


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("http://EXAMPLE.com/Base/", "http://example.com:80/Base"),
        ("https://example.com", "https://example.com:443"),
        ("https://example.com:8443/v1//", "https://example.com:8443/v1"),
        ("http://[0:0::1]:9/", "http://[::1]:9"),
        ("http://127.0.0.1:8787", "http://127.0.0.1:8787"),
    ],
)
def test_processor_is_known_by_its_address_in_one_spelling(url: str, normal: str) -> None:
    assert identity_of(url, "sk_test_x") == ProcessorIdentity(url=normal, key_mode="test")


@pytest.mark.parametrize(
    ("key", "mode", "shown"),
    [
        ("sk_test_x", "test", "http://a:80 (test key)"),
        ("rk_live_x", "live", "http://a:80 (live key)"),
        ("x", "unmarked", "http://a:80"),
    ],
)
def test_processor_is_shown_with_the_kind_of_its_key_and_never_the_key(key: str, mode: str, shown: str) -> None:
    identity = identity_of("http://a", key)
    assert (identity.key_mode, str(identity)) == (mode, shown)
    assert known_processor(identity.url, identity.key_mode) == identity
    assert known_processor(None, mode) is None
