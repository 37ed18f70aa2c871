"""The documents cannot drift: every command, option, setting, error and limit stands in them, and links lead somewhere.

Without it a new setting would be found only in the code, and the README would show an output that is no longer real.
"""

import re
from pathlib import Path

import pytest
from cyclopts import App

from paykit_settle import (
    accumulator,
    body_reader,
    cli,
    client,
    days,
    errors,
    found_settlements,
    http_json,
    journal,
    ledger_requests,
    missing_days,
    money,
    open_outcomes,
    rates,
    run_request,
    strict_json,
    wire,
)
from paykit_settle.config import ENV_PREFIX, Settings, setting_names
from paykit_settle.service import HTTP_CODES
from paykit_settle.store import writer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
LIMITS = [
    (money, "AMOUNT_MAX"),
    (wire, "IDEMPOTENCY_KEY_LENGTH_MAX"),
    (found_settlements, "SETTLEMENT_PAGES_MAX"),
    (missing_days, "LOOKUPS_MAX"),
    (missing_days, "EMPTY_KEPT_HOURS"),
    (missing_days, "SURELY_EMPTY_DAYS"),
    (open_outcomes, "IDS_NAMED_MAX"),
    (strict_json, "NESTING_MAX"),
    (rates, "RATE_DIGITS_MAX"),
    (rates, "RATE_EXPONENT_MAX"),
    (run_request, "NAME_LENGTH_MAX"),
    (run_request, "REASON_LENGTH_MAX"),
    (accumulator, "PROBLEMS_MAX"),
    (days, "DAYS_MAX"),
    (http_json, "BODY_TIMEOUT_S"),
    (journal, "TEXT_MAX"),
    (ledger_requests, "LINES_MAX"),
    (ledger_requests, "DESCRIPTION_MAX"),
    (ledger_requests, "LIST_LIMIT_MAX"),
    (writer, "BATCH_MAX"),
]


def tables(text: str) -> dict[str, list[str]]:
    """The rows of a document's tables by their first cell, without back-ticks."""
    rows = (line.strip("|").split("|") for line in text.splitlines() if line.startswith("| "))
    return {cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in rows}


def error_classes() -> list[type[errors.SettleError]]:
    found: list[type[errors.SettleError]] = []
    queue: list[type[errors.SettleError]] = [errors.SettleError]
    while queue:
        queue += (children := queue.pop(0).__subclasses__())
        found += [child for child in children if "code" in vars(child)]
    return found


@pytest.mark.parametrize("name", setting_names())
def test_setting_is_documented_with_its_variable_and_default(name: str) -> None:
    cells = tables(DOCS["configuration.md"])[name]
    assert cells[0] == f"`{ENV_PREFIX}{name.upper()}`"
    default = getattr(Settings(), name)
    if default not in (None, {}):
        assert cells[1].strip("`") == str(default)


def test_document_names_no_setting_that_does_not_exist() -> None:
    documented = set(tables(DOCS["configuration.md"])) - {"setting", "---"}
    assert documented == set(setting_names())


def test_every_error_is_documented_with_its_status_and_exit_code() -> None:
    documented = tables(DOCS["errors.md"])
    for kind in error_classes():
        assert documented[kind.code][:2] == [str(kind.http_status), str(kind.exit_code)], kind
    for status, code in HTTP_CODES.items():
        assert documented[code][0] == str(status)
    assert documented["internal_error"][0] == "500"
    known = {kind.code for kind in error_classes()} | set(HTTP_CODES.values()) | {"internal_error"}
    assert set(documented) - {"code", "---"} == known


@pytest.mark.parametrize(("module", "name"), LIMITS)
def test_limit_is_documented_with_its_value(module: object, name: str) -> None:
    row = next(line for line in DOCS["limits.md"].splitlines() if f"`{name}`" in line)
    value = getattr(module, name)
    assert "2^63 − 1" in row if name == "AMOUNT_MAX" else str(value) in row


def test_settings_that_are_limits_are_in_the_table_of_limits() -> None:
    for name in setting_names():
        if name.endswith("_max") or name in ("pull_deadline_s", "request_deadline_s", "page_size"):
            assert f"`{name}`" in DOCS["limits.md"], name
    assert body_reader.BodyLimits().wire_bytes_max == 8 * 1024 * 1024
    assert body_reader.BodyLimits().bytes_max == 32 * 1024 * 1024
    assert f"{client.PAGES_MAX:,}" in DOCS["limits.md"]


def commands(app: App, path: str = "paykit-settle") -> dict[str, App]:
    """Every command that does something, by the words that call it."""
    found: dict[str, App] = {}
    for name in app:
        if not name.startswith("-"):
            below = commands(app[name], f"{path} {name}")
            found |= below or {f"{path} {name}": app[name]}
    return found


@pytest.mark.parametrize(("words", "command"), commands(cli.app).items(), ids=commands(cli.app))
def test_command_and_its_options_are_in_the_readme(words: str, command: App) -> None:
    assert words in README
    for argument in command.assemble_argument_collection():
        options = [name for name in argument.names if name.startswith("--")]
        assert not options or any(option in README for option in options), options


def test_readme_shows_the_real_output_of_the_demo() -> None:
    golden = (ROOT / "tests/golden/demo.txt").read_text(encoding="utf-8")
    statement = golden[golden.index("Settlement of") : golden.index("\n\nWhat next")]
    assert statement in README


def test_readme_is_short_and_names_the_two_commands() -> None:
    assert README.count("\n") < 200
    assert "python3 run_tests.py" in README
    assert "python3 -m venv" in README


@pytest.mark.parametrize("document", sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]), ids=lambda p: p.name)
def test_links_and_named_files_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]), ids=lambda p: p.name)
def test_tests_that_a_document_names_exist(document: Path) -> None:
    everything = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_[a-z0-9_]+)`", document.read_text(encoding="utf-8")):
        assert f"def {name}" in everything or list((ROOT / "tests").rglob(f"{name}.py")), name
