"""docs/fake-processor.md says what the program can do: every fault, flag, switch and route, in the program's own words.

People choose faults from that page. One that is missing is one that nobody uses, and a line that is not the program's
is a test written for a fault that does something else.
"""

from __future__ import annotations

import re
from pathlib import Path

from fake_processor import FAULTS, FakeProcessor
from fake_processor.control import CONTROLS
from fake_processor.flags import make_parser
from fake_processor.routes import ROUTES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "fake-processor.md").read_text("utf-8")


def test_every_fault_is_listed_with_its_line_route_and_options() -> None:
    rows = dict(re.findall(r"^\| `([a-z0-9_]+)` \| (.*) \|$", PAGE, flags=re.MULTILINE))
    assert set(rows) == set(FAULTS)
    for name, kind in FAULTS.items():
        assert kind.description in rows[name], name
        assert rows[name].startswith("any |" if kind.route == "*" else f"{kind.route} |"), name
        assert set(re.findall(r"`([a-z_]+)(?:=[^`]*)?`", rows[name])) == set(kind.options), name


def test_every_flag_is_listed_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `(--[a-z-]+)` \| ([^|]*) \|", PAGE, flags=re.MULTILINE))
    actions = [action for action in make_parser()._actions if action.dest != "help"]
    assert set(listed) == {option for action in actions for option in action.option_strings}
    for action in actions:
        default = ",".join(action.default) if isinstance(action.default, tuple) else action.default
        if default not in (None, [], ""):
            assert listed[action.option_strings[0]] == str(default)


def test_every_route_and_every_switch_is_listed() -> None:
    for path, methods in [*ROUTES.items(), *CONTROLS.items()]:
        for method in methods:
            assert f"{method} {path}" in PAGE


def test_every_switch_of_the_python_class_is_named() -> None:
    for name in ("fault", "heal", "clock", "requests", "state", "right_settlement"):
        assert hasattr(FakeProcessor, name)
        assert f"fake.{name}" in PAGE


def test_usage_takes_five_lines() -> None:
    example = PAGE.partition("```python\n")[2].partition("```")[0]
    assert len(example.strip().splitlines()) == 5
    assert "def test_my_client_retries(fake_processor)" in example
