"""The shape of the code, read from its own imports: what may know what, and how large a piece may grow.

Without it, a convenience import would tie the pure core to a driver or the product to its own fake, and nobody would
notice until it cannot be undone.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "paykit_settle"

# Lowest first; a module imports only from ranks below its own. Modules that share a rank do not know each other,
# unless the later of the two is listed in WITHIN_RANK.
RANKS = [
    ["faults", "version", "person"],
    ["errors"],
    ["money", "strict_json", "window"],
    ["rates", "transaction_types", "endpoint", "body_reader", "retry", "run_request", "days", "sending", "budget"],
    ["terms", "day_edges", "absence"],
    ["models", "lifecycle", "missing_days", "direct", "gets_only", "verify_pages", "verify_corrections"],
    ["id_hashes", "row_faults"],
    ["accumulator", "page_shape", "paging", "corrections", "verify_rows", "relisted_day", "notes_text"],
    ["page_slots"],
    ["settlement", "journal", "wire", "page_wire", "report", "terminal", "verify", "http_json"],
    ["booking", "verify_taken", "found_settlements", "taken", "answers", "processor_request", "ledger_requests"],
    ["asking", "httpx_sender"],
    ["client"],
    ["store"],
    ["explain_windows", "difference_report", "run_shown", "filter_check"],
    ["run", "explain", "transfers"],
    ["claiming", "looking_up", "open_outcomes"],
    ["page_buffer", "lookups"],
    ["day_reader", "held_rows"],
    ["earlier_days"],
    ["late_rows"],
    ["pull", "recheck"],
    ["posting", "checking", "frozen_record", "recheck_report", "resolving"],
    ["interruption", "giving_back"],
    ["reading", "driving"],
    ["runner"],
    ["dry_run"],
    ["config"],
    ["cli_options", "cli_output", "pull_display"],
    ["cli_signals"],
    ["cli_settling"],
    ["run_routes", "ledger_routes", "cli_runs", "cli_ledger"],
    ["service", "cli_upkeep", "cli_listing", "cli_resuming"],
    ["cli_differences", "cli_changes", "cli_resolve"],
    ["cli"],
    ["__main__", "__init__"],
]
WITHIN_RANK = {("run_request", "retry")}
PURE = {
    "faults", "errors", "version", "money", "strict_json", "window", "rates", "transaction_types", "endpoint", "retry",
    "run_request", "days", "models", "lifecycle", "settlement", "journal", "wire", "page_wire", "answers", "report",
    "verify", "verify_pages", "verify_rows", "verify_corrections", "ledger_requests", "booking", "accumulator",
    "page_shape", "paging", "corrections", "missing_days", "id_hashes", "row_faults", "relisted_day", "notes_text",
    "terms", "day_edges", "found_settlements", "absence", "taken", "verify_taken",
}  # fmt: skip
IMPURE_LIBRARIES = {"asyncio", "httpx", "aiohttp", "apsw", "sqlite3", "os", "time", "random", "socket", "subprocess"}
# Which of our modules may import a library or touch a thing; everything else may not.
OWNERS = {
    "httpx": {"client", "httpx_sender"},
    "stamina": {"asking"},
    "aiohttp": {"service", "run_routes", "ledger_routes", "http_json"},
    "httptools": {"direct"},
    "aiohappyeyeballs": {"direct"},
    "apsw": {
        "store",
        "transfers",
        "pull",
        "posting",
        "reading",
        "driving",
        "checking",
        "day_reader",
        "recheck",
        "cli_differences",
        "cli_resuming",
        "held_rows",
        "earlier_days",
        "dry_run",
        "resolving",
    },
    "sqlite3": {"transfers"},
    "cyclopts": {
        "cli",
        "cli_runs",
        "cli_resuming",
        "cli_listing",
        "cli_upkeep",
        "cli_ledger",
        "cli_options",
        "cli_differences",
        "cli_changes",
        "cli_resolve",
    },
    "rich": {"terminal", "cli_output", "pull_display"},
    "fake_processor": {"cli"},
    "tomllib": {"config"},
}
READS_ENVIRONMENT = {"config", "cli_options"}

FILE_LINES_MAX = 305
FILE_LINES_MAX_OF = {"errors.py": 348}  # a catalogue: one short class for each code, drawn as one tree
FUNCTION_LINES_MAX = 60


def modules() -> dict[str, list[Path]]:
    """Module name (a sub-package counts as one) → its files."""
    found: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found.setdefault(parts[0], []).append(path)
    return found


def imported(path: Path) -> Iterator[str]:
    """Every module name that a file imports, wherever in it; `from a import b` counts as `a` and as `a.b`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rank(module: str) -> int:
    return next(index for index, names in enumerate(RANKS) if module in names)


def test_every_module_has_a_rank() -> None:
    assert set(modules()) <= {name for names in RANKS for name in names}


def test_imports_go_one_way() -> None:
    wrong = []
    for module, paths in modules().items():
        for name in {name for path in paths for name in imported(path)}:
            top, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if top != "paykit_settle" or target in ("", module) or target not in modules():
                continue
            if rank(target) >= rank(module) and (module, target) not in WITHIN_RANK:
                wrong.append(f"{module} imports {target}")
    assert wrong == []


@pytest.mark.parametrize("module", sorted(PURE & set(modules())))
def test_pure_module_touches_nothing_outside(module: str) -> None:
    tops = {name.partition(".")[0] for path in modules()[module] for name in imported(path)}
    assert tops & IMPURE_LIBRARIES == set()


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_library_is_known_to_its_owners_only(library: str) -> None:
    users = {
        module
        for module, paths in modules().items()
        if any(name.partition(".")[0] == library for path in paths for name in imported(path))
    }
    assert users <= OWNERS[library]


def test_verify_recomputes_with_nothing_of_the_run() -> None:
    """What both agree on is right twice only if they share no code: all that `verify` takes is a table of exponents."""
    own = {module for module in modules() if module == "verify" or module.startswith("verify_")}
    assert {"verify", "verify_pages", "verify_rows"} <= own
    users = set()
    for module, paths in modules().items():
        ours = {name for path in paths for name in imported(path) if name.startswith("paykit_settle.")}
        if module in own:
            theirs = {name for name in ours if name.split(".")[1] not in own}
            assert theirs <= {"paykit_settle.money", "paykit_settle.money.EXPONENTS"}, module
        elif any(name.split(".")[1] in own for name in ours):
            users.add(module)
    assert users == {"store", "checking"}


def test_fake_processor_does_not_know_the_product() -> None:
    for path in (ROOT / "fake_processor").rglob("*.py"):
        assert not [name for name in imported(path) if name.partition(".")[0] == "paykit_settle"], path


def test_environment_is_read_in_one_place() -> None:
    for module, paths in modules().items():
        for path in paths:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb"):
                    assert module in READS_ENVIRONMENT, path


def test_no_float_is_made_in_the_package() -> None:
    for paths in modules().values():
        for path in paths:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                assert not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "float"), path
                assert not (isinstance(node, ast.Constant) and isinstance(node.value, float)), path


@pytest.mark.parametrize("package", ["paykit_settle", "fake_processor"])
def test_files_and_functions_stay_small(package: str) -> None:
    """A ratchet: the bounds only ever go down."""
    for path in (ROOT / package).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= FILE_LINES_MAX_OF.get(path.name, FILE_LINES_MAX), path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= FUNCTION_LINES_MAX, f"{path}: {node.name} has {lines} lines"


@pytest.mark.parametrize("package", ["paykit_settle", "fake_processor", "tests"])
def test_every_file_says_what_it_is_for(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not text or ast.get_docstring(ast.parse(text)), path
