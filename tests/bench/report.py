"""Tables of text and bars with a limit, as a section hands them back; written as Markdown between two markers of a
document, and shown on the screen.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table as ScreenTable

MISSING: Final = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the report; every row has one text a column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that must hold.

    Args:
        measured: None when it could not be measured; then the bar is not met.
        at_least: the limit is a lower one.
    """

    name: str
    measured: float | None
    limit: float
    unit: str = "×"
    at_least: bool = False

    @property
    def passed(self) -> bool:
        """Whether the bar is met."""
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def verdict(self) -> str:
        """Return `pass`, or by how much it was missed.

        >>> Bar("cost", 1.25, 1.0).verdict
        'MISSED by 25 %'
        >>> Bar("fairness", 0.97, 0.98, at_least=True).verdict
        'MISSED by 1 %'
        """
        if self.passed:
            return "pass"
        if self.measured is None:
            return "NOT MEASURED"
        if not self.limit:
            return "MISSED"
        return f"MISSED by {abs(self.measured - self.limit) / self.limit * 100:.0f} %"

    def row(self) -> tuple[str, str, str, str]:
        """Return name, limit, measured and verdict as texts."""
        sign = "≥" if self.at_least else "≤"
        measured = MISSING if self.measured is None else f"{self.measured:.3g} {self.unit}"
        return self.name, f"{sign} {self.limit:g} {self.unit}", measured, self.verdict


@dataclass(slots=True)
class Outcome:
    """Everything one or more sections found."""

    tables: list[Table] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    def add(self, others: Iterable["Outcome"]) -> None:
        """Append what other sections found."""
        for other in others:
            self.tables += other.tables
            self.bars += other.bars


def ratio(value: float | None, base: float | None) -> float | None:
    """Return `value / base`, or None where either is missing or the base is nothing.

    >>> ratio(1.0, 2.0), ratio(1.0, None)
    (0.5, None)
    """
    return value / base if value is not None and base else None


def bars_table(outcome: Outcome) -> Table:
    """Return the bars as a table."""
    return Table("Bars", ("bar", "limit", "measured", ""), tuple(bar.row() for bar in outcome.bars))


def facts_table(facts: Sequence[tuple[str, str]]) -> Table:
    """Return the machine and the versions as a table."""
    return Table("", ("run", ""), tuple(facts))


def markdown(table: Table) -> str:
    r"""Return one table as Markdown, its first column to the left and the others to the right.

    >>> print(markdown(Table("", ("a", "b"), (("x|y", "1"),))))
    | a | b |
    |---|--:|
    | x\|y | 1 |
    <BLANKLINE>
    """
    lines = [f"### {table.title}", ""] if table.title else []
    lines.append("| " + " | ".join(table.columns) + " |")
    lines.append("|---" + "|--:" * (len(table.columns) - 1) + "|")
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table.rows]
    if table.note:
        lines += ["", table.note]
    return "\n".join(lines) + "\n"


def replace_between(text: str, name: str, content: str) -> str:
    r"""Return the text with what lies between the markers of `name` replaced; ValueError without them.

    >>> replace_between("<!-- x:begin -->old<!-- x:end -->", "x", "new")
    '<!-- x:begin -->\nnew<!-- x:end -->'
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if begin not in text or end not in text:
        raise ValueError(f"the document has no markers {begin} and {end}")
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n{content}{end}{rest.split(end, 1)[1]}"


def write(
    document: Path, name: str, facts: Sequence[tuple[str, str]], outcome: Outcome, extra: str = ""
) -> None:
    """Replace the part of the document that belongs to `name`."""
    bars = [bars_table(outcome)] if outcome.bars else []
    tables = [facts_table(facts), *bars, *outcome.tables]
    content = "\n" + "\n".join(markdown(table) for table in tables) + extra + "\n"
    document.write_text(replace_between(document.read_text(), name, content))


def screen() -> Console:
    """Return the screen; a file or a pipe, which has no width, gets one that the tables fit in."""
    return Console(width=None if sys.stdout.isatty() else 150)


def show(console: Console, facts: Sequence[tuple[str, str]], outcome: Outcome) -> None:
    """Print everything."""
    bars = [bars_table(outcome)] if outcome.bars else []
    for table in [facts_table(facts), *outcome.tables, *bars]:
        printed = ScreenTable(title=table.title or None, title_justify="left", caption=table.note or None)
        for number, column in enumerate(table.columns):
            printed.add_column(column, justify="right" if number else "left")
        for row in table.rows:
            printed.add_row(*(cell if cell != "pass" else "[green]pass[/green]" for cell in row))
        console.print(printed)
