"""What all tiers share: hypothesis without a database on disk, and no settings from the tester's environment.

Without it a run would depend on who runs it: on a PAYKIT_ variable, a proxy, or examples left by an earlier run.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every run, so that a red suite means a change; `HYPOTHESIS_PROFILE=explore` looks for new ones.
settings.register_profile(
    "suite", database=None, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("suite"), derandomize=False)
settings.register_profile("brief", settings.get_profile("suite"), max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes every setting of ours, so that each test starts from the defaults."""
    for name in list(os.environ):
        if name.startswith("PAYKIT_"):
            monkeypatch.delenv(name)
