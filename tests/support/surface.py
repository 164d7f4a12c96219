"""What users and their programs rely on: commands, options, exit codes, configuration keys, metrics, paths, fields.

    python -m tests.support.surface > tests/unit/surface.txt

Exit codes, configuration keys, metrics and the fields of `/v1` are read from docs/, which other tests compare with
the product.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from commandline.arguments import commands

_DOCS: Final = Path(__file__).parents[2] / "docs"
_ROW: Final = re.compile(r"^\| ((?:`[^`|]+`(?:, )?)+) \|", re.MULTILINE)
_CODE: Final = re.compile(r"^\| (\d+) \|", re.MULTILINE)
_SECTION: Final = re.compile(r"^## ((?:POST )?/v1/\w+)", re.MULTILINE)


def surface() -> set[str]:
    """Return a line for each."""
    # Imported late: each brings all of its command line.
    from offline.cli import parser as offline_parser
    from proxy.cli import parser as proxy_parser

    found = {f"exit code {code}" for code in _CODE.findall((_DOCS / "commands.md").read_text("utf-8"))}
    for parser in (proxy_parser(), offline_parser()):
        found.update(_arguments(parser))
    found.update(f"key {name}" for name in _named("configuration.md") if "." in name)
    found.update(f"metric {name}" for name in _named("metrics.md") if name.startswith("sluice_"))
    found.update(_pages())
    return found


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for command in commands(parser):
        yield command.prog
        for action in command._actions:  # argparse has no public way to them
            if not isinstance(action, argparse._SubParsersAction):
                names = action.option_strings or [str(action.metavar or action.dest)]
                yield from (f"{command.prog} {name}" for name in names)


def _named(document: str) -> Iterator[str]:
    """Yield the names in the first column of a document's tables."""
    for row in _ROW.finditer((_DOCS / document).read_text(encoding="utf-8")):
        yield from re.findall("`([^`]+)`", row[1])


def _pages() -> Iterator[str]:
    """Yield the paths of `/v1`, and the fields of each."""
    text = (_DOCS / "api.md").read_text(encoding="utf-8")
    yield from (f"path {path}" for path in re.findall(r"^\| `((?:POST )?/v1/\w+)` \|", text, re.MULTILINE))
    sections = _SECTION.split(text)[1:]
    for path, section in zip(sections[::2], sections[1::2], strict=True):
        for row in _ROW.finditer(section.split("\n## ")[0]):
            yield from (f"field {path} {name}" for name in re.findall("`([^`]+)`", row[1]))


if __name__ == "__main__":
    print(*sorted(surface()), sep="\n")
