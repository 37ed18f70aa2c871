"""Settings: the only reader of the environment and of the configuration file.

A flag of the command line wins over the environment, the environment over the file, the file over the default. Every
setting is checked when it is read, and an error names where the value came from, never the API key.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from paykit_settle.budget import RequestBudget
from paykit_settle.client import PAGE_SIZE_MAX, PAGES_MAX, ProcessorClient
from paykit_settle.direct import DirectConnections
from paykit_settle.endpoint import check_api_key, check_base_url
from paykit_settle.errors import InvalidConfig, SettleError
from paykit_settle.found_settlements import LookUpMode
from paykit_settle.money import ScaleProfile, canonical_currency
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import WINDOWS_MAX, RunOptions
from paykit_settle.store.database import BUSY_TIMEOUT_MS
from paykit_settle.store.store import Store
from paykit_settle.store.writer import QUEUE_MAX
from paykit_settle.terms import RowsWithoutCreated
from paykit_settle.window import load_zone

ENV_PREFIX = "PAYKIT_"
REQUESTS_PER_S = 100
"""Requests per second to a processor that is not on this machine, unless the setting says otherwise."""

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Bound = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, with its unit last in its name. `docs/configuration.md` lists them; a test holds it to this."""

    processor_url: str = "http://127.0.0.1:8787"
    processor_key: str | None = field(default=None, repr=False)
    zone: str | None = None
    grace_s: Bound = 300
    rates_base: str = "usd"
    rate_age_max_h: Bound = 120
    rate_ahead_max_h: Bound = 24
    page_size: Annotated[int, msgspec.Meta(ge=1, le=PAGE_SIZE_MAX)] = PAGE_SIZE_MAX
    pages_max: Count = PAGES_MAX
    pull_deadline_s: Count = 3600
    attempts_max: Annotated[int, msgspec.Meta(ge=1, le=20)] = 5
    request_timeout_s: Count = 20
    request_deadline_s: Count = 60
    retry_after_max_s: Bound = 30
    request_body_bytes_max: Count = 1024 * 1024
    scales: dict[str, int] = field(default_factory=dict)
    rows_without_created: RowsWithoutCreated = "refuse"
    lookup: LookUpMode = "list"
    absence_age_s: Bound = 600
    windows_max: Annotated[int, msgspec.Meta(ge=1, le=64)] = WINDOWS_MAX
    requests_in_flight_max: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 32
    requests_per_s: Annotated[int, msgspec.Meta(ge=0, le=10_000)] | None = None
    look_back_days: Annotated[int, msgspec.Meta(ge=0, le=366)] = 3
    look_back_listings: Annotated[int, msgspec.Meta(ge=0, le=366)] = 3
    tenants: dict[str, str] = field(default_factory=dict)
    database: str = "paykit.db"
    credit_currencies: str = "usd"
    write_queue_max: Count = QUEUE_MAX
    busy_timeout_ms: Bound = BUSY_TIMEOUT_MS

    def run_options(self) -> RunOptions:
        """The part of the settings that decides how a day is settled."""
        return RunOptions(
            zone=self.zone,
            grace_s=self.grace_s,
            rate_age_max_h=self.rate_age_max_h,
            rate_ahead_max_h=self.rate_ahead_max_h,
            rates_base=self.rates_base,
            page_size=self.page_size,
            windows_max=self.windows_max,
            look_back_days=self.look_back_days,
            look_back_listings=self.look_back_listings,
            pull_deadline_s=self.pull_deadline_s,
            scale=ScaleProfile(overrides=self.scales),
            rows_without_created=self.rows_without_created,
            lookup=self.lookup,
            absence_age_s=self.absence_age_s,
        )

    def make_client(self) -> ProcessorClient:
        """A client of the configured processor; `InvalidConfig` for an unusable URL or key."""
        policy = RetryPolicy(
            attempts_max=self.attempts_max,
            request_timeout_s=self.request_timeout_s,
            deadline_s=self.request_deadline_s,
            retry_after_max_s=self.retry_after_max_s,
        )
        _, loopback = check_base_url(self.processor_url)
        per_second = self.requests_per_s
        if per_second is None:
            per_second = 0 if loopback else REQUESTS_PER_S
        return ProcessorClient(
            self.processor_url,
            api_key=self.processor_key,
            policy=policy,
            pages_max=self.pages_max,
            # httpx knows proxies. None of the user's may sit between us and a processor on this machine.
            sender=None
            if not loopback and is_proxied(self.processor_url)
            else DirectConnections(
                self.processor_url, connections_max=self.requests_in_flight_max, timeout_s=self.request_timeout_s
            ),
            budget=RequestBudget(per_second=per_second, in_flight_max=self.requests_in_flight_max),
        )

    def accepted_currencies(self) -> frozenset[str]:
        """The currencies of credits, in the canonical form; `UnsupportedCurrency` for an unknown one."""
        return frozenset(canonical_currency(code.strip()) for code in self.credit_currencies.split(","))

    def open_store(self) -> Store:
        """The ledger file, opened and migrated; `DatabaseUnusable` or `StoreBusy` if that cannot be."""
        return Store(self.database, queue_max=self.write_queue_max, busy_timeout_ms=self.busy_timeout_ms)

    def check_client(self) -> None:
        """`InvalidConfig` now rather than at the first request, if the processor's URL or key is unusable."""
        _, loopback = check_base_url(self.processor_url)
        check_api_key(self.processor_key, loopback=loopback)


def load_settings(
    environ: Mapping[str, str],
    *,
    config_file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """The settings from file, environment and flags; a flag that is None was not given.

    The file is TOML with the names of `Settings`; a name it does not know is `InvalidConfig`, and so is an unusable
    value. An environment variable is `PAYKIT_` and the name in capitals; a table such as `scales` there reads
    `isk=2,ugx=2`.
    """
    hints = get_type_hints(Settings, include_extras=True)
    values: dict[str, object] = {}
    for name, value in _read_file(config_file).items():
        if name not in hints:
            raise InvalidConfig(f"{config_file}: unknown setting {name!r:.60}")
        values[name] = _convert(value, hints[name], name, source=str(config_file), strict=True)
    for name, hint in hints.items():
        variable = ENV_PREFIX + name.upper()
        if (text := environ.get(variable)) is not None:
            value = _parse_table(text) if name in ("scales", "tenants") else text
            values[name] = _convert(value, hint, name, source=variable, strict=False)
    values |= {name: value for name, value in (overrides or {}).items() if value is not None}
    settings = Settings(**values)  # type: ignore[arg-type]  # each value was converted to its field's type
    _check(settings)
    return settings


def is_proxied(url: str) -> bool:
    """Whether the environment (`HTTPS_PROXY`, `NO_PROXY` and the like) puts a proxy before that URL."""
    parts = urlsplit(url)
    proxies = getproxies()
    return ("all" in proxies or parts.scheme in proxies) and not proxy_bypass(parts.hostname or "")


def setting_names() -> list[str]:
    """The names of all settings, in order."""
    return [setting.name for setting in fields(Settings)]


def _read_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} is not TOML: {error}") from None


def _convert(value: object, hint: object, name: str, *, source: str, strict: bool) -> object:
    try:
        return msgspec.convert(value, hint, strict=strict)
    except msgspec.ValidationError as error:
        raise InvalidConfig(f"{source}: {name}: {error}") from None


def _parse_table(text: str) -> dict[str, object]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _check(settings: Settings) -> None:
    try:
        settings.accepted_currencies()
        if settings.zone is not None:
            load_zone(settings.zone)
        canonical_currency(settings.rates_base)
        ScaleProfile(overrides=settings.scales)
    except SettleError as error:
        raise InvalidConfig(str(error)) from None
