"""The test runner itself: it runs on machines that have nothing, and must say what they lack.

Without it, a word that old interpreters cannot read would turn its message into a syntax error.
"""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "run_tests.py"


@pytest.fixture
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_tests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_old_interpreters_can_read_it() -> None:
    ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 4))


def test_it_needs_the_standard_library_only() -> None:
    names = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(SCRIPT.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert names <= sys.stdlib_module_names


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_machine_without_venv_is_told_so(
    runner: ModuleType, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert runner.main([]) == 2
    assert f"lacks the module {missing}" in capsys.readouterr().err


def test_machine_without_a_new_enough_python_is_told_so(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "PYTHON_MIN", (99, 0))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert runner.main([]) == 2
    assert "lacks Python 3.11 or newer" in capsys.readouterr().err


@pytest.mark.parametrize("is_long", [False, True])
def test_long_suite_is_asked_for_by_one_word_and_by_no_setting_of_whoever_runs_it(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, *, is_long: bool
) -> None:
    handed_over: list[tuple[list[str], dict[str, str]]] = []

    def call(command: list[str], *, cwd: str, env: dict[str, str]) -> int:
        assert cwd == runner.ROOT
        handed_over.append((command, env))
        return 0

    monkeypatch.setenv("PAYKIT_TEST_LONG", "1")
    monkeypatch.setenv("PAYKIT_ZONE", "Asia/Tokyo")
    monkeypatch.setattr(runner, "environment", lambda: "python")
    monkeypatch.setattr(runner.subprocess, "call", call)
    assert runner.main(["--long"] * is_long + ["-n", "0", "tests/unit"]) == 0
    command, environment = handed_over[0]
    assert command[-3:] == ["-n", "0", "tests/unit"]
    assert "--long" not in command
    ours = {name: value for name, value in environment.items() if name.startswith("PAYKIT_")}
    assert ours == ({"PAYKIT_TEST_LONG": "1"} if is_long else {})


def test_requirements_are_locked_with_hashes_and_name_no_index() -> None:
    for name in ("run.txt", "test.txt"):
        text = (SCRIPT.parent / "requirements" / name).read_text(encoding="utf-8")
        pinned = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert pinned
        assert all("==" in line and line.endswith("\\") for line in pinned)
        assert text.count("--hash=sha256:") >= len(pinned)
        assert "://" not in text
