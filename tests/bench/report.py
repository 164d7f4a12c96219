"""Tables of text and bars with a limit, as a section hands them back; written as Markdown between two markers of a
document, and shown on the screen.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as ScreenTable

from tests.bench.options import DOCUMENT
from tests.cluster import MissingPrerequisiteError, processes

MISSING: Final = "–"
_LINE_MAX: Final = 150  # of text in a file or a pipe, which have no width
_TABLE_MAX: Final = 10_000
Facts = Sequence[tuple[str, str]]
"""The machine and the versions, as `machine` describes them."""
T = TypeVar("T")


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

    def add(self, *others: "Outcome") -> None:
        """Append what other sections found."""
        for other in others:
            self.tables += other.tables
            self.bars += other.bars


def tabulate(
    title: str, things: Iterable[T], columns: Mapping[str, Callable[[T], object]], note: str = ""
) -> Table:
    """Return a table with a row for each thing; a column says how to get its cell.

    >>> tabulate("", (1, 2), {"n": int, "square": lambda n: n * n}).rows
    (('1', '1'), ('2', '4'))
    """
    rows = tuple(tuple(str(cell(thing)) for cell in columns.values()) for thing in things)
    return Table(title, tuple(columns), rows, note)


def ratio(value: float | None, base: float | None) -> float | None:
    """Return `value / base`, or None where either is missing or the base is nothing.

    >>> ratio(1.0, 2.0), ratio(1.0, None)
    (0.5, None)
    """
    return value / base if value is not None and base else None


def tables(facts: Facts, outcome: Outcome) -> list[Table]:
    """Return all that there is to show: the facts, the bars, the tables."""
    bars = Table("Bars", ("bar", "limit", "measured", ""), tuple(bar.row() for bar in outcome.bars))
    return [Table("", ("run", ""), tuple(facts)), *([bars] if bars.rows else []), *outcome.tables]


def markdown(table: Table) -> str:
    r"""Return one table as Markdown, its first column to the left and the others to the right.

    >>> print(markdown(Table("", ("a", "b"), (("x|y", "1"),))))
    | a | b |
    |---|--:|
    | x\|y | 1 |
    <BLANKLINE>
    """
    lines = [f"### {table.title[:1].upper()}{table.title[1:]}", ""] if table.title else []
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


def page(facts: Facts, outcome: Outcome) -> str:
    """Return everything as Markdown."""
    return "\n".join(markdown(table) for table in tables(facts, outcome))


def write(document: Path, name: str, facts: Facts, outcome: Outcome, extra: str = "") -> None:
    """Replace the part of the document that belongs to `name`."""
    content = f"\n{page(facts, outcome)}{extra}\n"
    document.write_text(replace_between(document.read_text(), name, content))


def show(console: Console, facts: Facts, outcome: Outcome) -> None:
    """Print everything; a table is wider than the screen where it would have to cut a word.

    A file or a pipe has no width, and neither has a pseudo-terminal that was given none (rich takes 80 for it): there
    a table is as wide as it needs.
    """
    for table in tables(facts, outcome):
        printed = ScreenTable(title=table.title or None, title_justify="left", caption=table.note or None)
        for number, (column, *cells) in enumerate(zip(table.columns, *table.rows, strict=True)):
            words = " ".join((column, *cells)).split()
            printed.add_column(
                column,
                justify="right" if number else "left",
                min_width=max(map(len, words), default=0),
                no_wrap=len(words) <= 1 + len(cells),  # nothing to wrap: rich narrows the others
            )
        for row in table.rows:
            printed.add_row(*(cell if cell != "pass" else "[green]pass[/green]" for cell in row))
        wanted = Measurement.get(console, console.options.update(max_width=_TABLE_MAX), printed)
        screen = console.width
        console.width = max(screen, wanted.minimum) if console.is_terminal else wanted.maximum
        try:
            console.print(printed, crop=False)
        finally:
            console.width = screen


def publish(console: Console, facts: Facts, outcome: Outcome, block: str = "", extra: str = "") -> bool:
    """Show everything, write it into the document where a block is named; return whether every bar is met."""
    show(console, facts, outcome)
    if block:
        write(DOCUMENT, block, facts, outcome, extra)
        console.print(f"written to {DOCUMENT}")
    return all(bar.passed for bar in outcome.bars)


def run(measure: Callable[[Console], bool]) -> int:
    """Run a bench, and return the exit code: 1 where it says no, 2 where something that it needs is missing."""
    processes.exit_on_signals()
    console = Console(width=None if sys.stdout.isatty() else _LINE_MAX)
    try:
        return 0 if measure(console) else 1
    except MissingPrerequisiteError as problem:
        console.print(f"[red]{problem}[/red]")
        return 2
    except KeyboardInterrupt:
        return 130
