"""What a person sees of a long pull: without it a day of a million rows looks as if the program hung."""

import io

import pytest
from rich.console import Console

from paykit_settle.day_reader import PullProgress
from paykit_settle.pull_display import NS_PER_S, PullDisplay, progress_text


def at(rows: int, pages: int, seconds_read: int) -> PullProgress:
    return PullProgress(rows=rows, pages=pages, windows=16, seconds_read=seconds_read, seconds=86_400)


FIRST = at(100, 1, 400)


def test_text_has_rows_pages_windows_rate_and_an_estimate() -> None:
    text = progress_text(at(50_100, 501, 43_600), FIRST, elapsed_ns=10 * NS_PER_S)
    assert text == (
        "reading: 50,100 rows, 501 pages, 16 windows, 5,000 rows/s, about 9 s left if the rest of the day is as busy"
    )


@pytest.mark.parametrize(("seconds_read", "elapsed_s"), [(1_000, 10), (43_600, 0)])
def test_estimate_is_not_made_before_it_means_something(seconds_read: int, elapsed_s: int) -> None:
    text = progress_text(at(1_000, 10, seconds_read), FIRST, elapsed_ns=elapsed_s * NS_PER_S)
    assert text.endswith("no estimate yet")


def test_plain_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0
    with PullDisplay(console=Console(file=io.StringIO()), clock_ns=lambda: now) as display:
        for second in range(25):
            now = second * NS_PER_S
            display(at(100 * (second + 1), second + 1, 400 * (second + 1)))
    assert capsys.readouterr().err.count("reading: ") == 2


def test_terminal_gets_one_line_that_changes() -> None:
    now, written = 0, io.StringIO()
    with PullDisplay(console=Console(file=written, force_terminal=True), clock_ns=lambda: now) as display:
        for second in range(5):
            now = second * NS_PER_S
            display(at(100 * (second + 1), second + 1, 4_000 * (second + 1)))
    assert "500 rows" in written.getvalue() or "200 rows" in written.getvalue()


def test_next_day_starts_its_own_count(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0
    with PullDisplay(console=Console(file=io.StringIO()), clock_ns=lambda: now) as display:
        display(at(100, 9, 400))
        now = 20 * NS_PER_S
        display(at(100, 1, 400))
    assert capsys.readouterr().err == ""
