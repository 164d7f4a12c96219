"""`python -m tests.bench.costs`: renews what is made of docs/benchmarks.md, after a bench was run.

That is the costs with which `sluice size` computes (proxy/commands/costs.toml), and on the page docs/how-to/size.md
what its commands print, and its picture. A figure is found by the markers of its run, the heading of its table, its row
and its column.
"""

import contextlib
import io
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from proxy import cli
from proxy.commands import size
from tests.bench.options import DOCUMENT
from tests.bench.picture import Panel, draw_panels

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "how-to" / "size.md"
PICTURE: Final = PAGE.with_suffix(".svg")
_PRINTED: Final = re.compile(r"```\n(sluice size [^`]*?)\n```\n\n```text\n(.*?)```\n", re.DOTALL)
_FACTS: Final = ("date", "commit", "machine")


def measured(document: str, name: str) -> tuple[dict[str, str], dict[str, list[list[str]]]]:
    """Return the facts of a run, and its tables by heading: rows of cells, of which the first are the columns.

    Args:
        name: of the run, as its markers in the document have it.
    """
    block = document.partition(f"<!-- {name}:begin -->")[2].partition(f"<!-- {name}:end -->")[0]
    facts, *sections = re.split(r"^### ", block, flags=re.MULTILINE)
    tables = {text.partition("\n")[0]: list(_rows(text)) for text in sections}
    return {row[0]: row[1] for row in _rows(facts)}, tables


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split(" | ")]


def figure(document: str, entry: Mapping[str, Any]) -> float:
    """Return the figure that an entry of the costs names.

    Raises:
        LookupError: the document has no such run, table, row or column, or has it more than once.
    """
    _, tables = measured(document, entry["run"])
    columns, *rows = tables[entry["table"]]
    found = [row for row in rows if row[: len(entry["row"])] == entry["row"]]
    if len(found) != 1 or entry["column"] not in columns:
        raise LookupError(f"{entry['table']}: {entry['row']}, {entry['column']}")
    return float(found[0][columns.index(entry["column"])].replace(",", ""))


def renewed(text: str, document: str) -> str:
    """Return the file of costs with the document's figures."""
    content = tomllib.loads(text)
    lines = [line for line in text.splitlines() if line.startswith("#")]
    lines += ["", "[runs]"]
    for name, run in content["runs"].items():
        facts, _ = measured(document, name)
        lines.append(_line(name, {**run, **{fact: facts[fact] for fact in _FACTS}}))
    lines += ["", "[figures]"]
    for name, entry in content["figures"].items():
        lines.append(_line(name, {**entry, "value": figure(document, entry)}))
    return "\n".join(lines) + "\n"


def _line(name: str, entry: Mapping[str, Any]) -> str:
    values = (f"{key} = {_value(value)}" for key, value in entry.items())
    return f"{name} = {{ {', '.join(values)} }}"


def _value(value: str | float | Sequence[str]) -> str:
    if isinstance(value, float):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return f"[{', '.join(map(_value, value))}]"


def printed(page: str) -> list[tuple[str, str]]:
    """Return the commands of the page, each with the output that the page shows."""
    return _PRINTED.findall(page)


def output(command: str) -> str:
    """Return what a command of the page prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = cli.main(shlex.split(command.replace("\\\n", " "))[1:])
    assert code == 0, command
    return out.getvalue()


def renewed_page(page: str) -> str:
    """Return the page with what its commands print now."""
    return _PRINTED.sub(lambda found: f"```\n{found[1]}\n```\n\n```text\n{output(found[1])}```\n", page)


def draw(path: Path) -> None:
    """Draw cores by MB/s for some sizes of requests, and memory by connections."""

    def cores(load: size.Load) -> float:
        return size.cores_wanted(size.cpu(load))

    rates = (0.0, 500.0)  # in proportion between them
    produced = {
        f"Produce of {kib} KiB": [
            (rate, cores(size.Load(produce=rate * 1e6, request_bytes=kib * 1024))) for rate in rates
        ]
        for kib in (4, 16, 128)
    }
    consumed = {
        name: [
            (rate, cores(size.Load(consume=rate * 1e6, response_bytes=kib * 1024, tls=tls))) for rate in rates
        ]
        for name, kib, tls in (
            ("Fetch of 128 KiB, TLS", 128, True),
            ("Fetch of 32 KiB", 32, False),
            ("Fetch of 128 KiB", 128, False),
        )
    }
    members = [
        (thousands, size.member_of(size.Load(connections=int(thousands * 1000)), size.Fleet(1, 0, 2)))
        for thousands in (0.0, 20.0)
    ]
    memory = {
        "at most": [(number, member.memory_max / 1e6) for number, member in members],
        "idle": [(number, member.memory / 1e6) for number, member in members],
    }
    row = (
        Panel("Cores, producing", produced),
        Panel("Cores, consuming", consumed),
        Panel("MB of memory", memory),
    )
    draw_panels(path, [row], "MB/s; on the right: thousands of connections", (9, 3))


def main() -> None:
    """Renew all of it."""
    size.FILE.write_text(renewed(size.FILE.read_text("utf-8"), (ROOT / DOCUMENT).read_text("utf-8")), "utf-8")
    size.content.cache_clear()
    PAGE.write_text(renewed_page(PAGE.read_text("utf-8")), "utf-8")
    draw(PICTURE)


if __name__ == "__main__":
    main()
