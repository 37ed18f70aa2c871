"""Options that several commands share, and the settings they make together with environment and file."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from paykit_settle.config import Settings, load_settings

ProcessorUrl = Annotated[str | None, Parameter(help="The processor's address [env: PAYKIT_PROCESSOR_URL].")]
ConfigFile = Annotated[Path | None, Parameter(help="A TOML file of settings [env: PAYKIT_CONFIG].")]
Database = Annotated[str | None, Parameter(help="The ledger's database file [env: PAYKIT_DATABASE].")]
Zone = Annotated[str | None, Parameter(help="The IANA time zone of accounts [env: PAYKIT_ZONE].")]
ProcessorMoved = Annotated[
    bool, Parameter(negative="", help="The account's processor has another address, or another kind of key, now.")
]
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON, one object a line.")]


def read_settings(
    config: Path | None, *, processor_url: str | None = None, zone: str | None = None, database: str | None = None
) -> Settings:
    """The settings that flags, environment and file make; `InvalidConfig` for an unusable one."""
    if config is None and (named := os.environ.get("PAYKIT_CONFIG")):
        config = Path(named)
    overrides = {"processor_url": processor_url, "zone": zone, "database": database}
    return load_settings(os.environ, config_file=config, overrides=overrides)
