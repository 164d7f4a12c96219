"""What a bench shows: no word of a table is cut, whatever the screen."""

import io

import pytest
from rich.console import Console

from tests.bench.report import Outcome, Table, show

WORDS = ("client", "predicted", "bootstrap", "12.3", "steady-connection", "0.0")
TABLE = Table(
    "",
    ("client", *("predicted wait",) * 8),
    (("bootstrap", *("12.3 s",) * 8), ("steady-connection", *("0.0 s",) * 8)),
)


def shown(width: int, *, terminal: bool) -> list[str]:
    file = io.StringIO()
    show(Console(file=file, width=width, force_terminal=terminal, color_system=None), (), Outcome([TABLE]))
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [10, 40, 80, 300])
@pytest.mark.parametrize("terminal", [True, False])
def test_no_word_is_cut(width: int, terminal: bool) -> None:
    text = "\n".join(shown(width, terminal=terminal))
    assert "…" not in text
    assert all(word in text for word in WORDS)


def test_without_a_terminal_a_row_is_one_line() -> None:
    lines = shown(80, terminal=False)
    assert sum("bootstrap" in line and line.count("12.3 s") == 8 for line in lines) == 1


def test_a_terminal_that_is_wide_enough_is_not_exceeded() -> None:
    assert max(map(len, shown(130, terminal=True))) <= 130
