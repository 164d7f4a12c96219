"""Results as Markdown between two markers of a document, and as tables on the screen."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as ScreenTable

from tests.bench.results import Outcome, Table


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
