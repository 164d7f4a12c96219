"""The quotas file's text cut into its tables, each read separately (the format: `toml_file`).

TOML's own reader takes 45 us per table. Read line by line, a plain table takes 3 us; any other table goes to TOML's
reader alone. Cutting is sound because each piece is checked: a text whose pieces are all valid TOML, with nothing in
front of the first `[[quota]]` and exactly one table each, has the same meaning as a whole. A wrong cut (a `[[quota]]`
within a multi-line string) is not valid TOML, and the caller falls back to the whole text. This module does not
interpret keys and values.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from quotas.definitions.toml_reader import loads
from quotas.errors import TomlError

__all__ = ["COMMENT", "HEADER", "blocks", "is_preamble", "table"]

# What TOML allows behind "#".
COMMENT: Final = r"#[^\x00-\x08\x0a-\x1f\x7f]*"
HEADER: Final = re.compile(rf"[ \t]*\[\[[ \t]*quota[ \t]*\]\][ \t]*(?:{COMMENT})?\r?\n?")
_LINE: Final = re.compile(
    r"[ \t]*(?:"
    # A bare key, then a text without escapes, or a number.
    r"([A-Za-z0-9_-]+)[ \t]*=[ \t]*"
    r"(?:\"([^\"\\\x00-\x08\x0a-\x1f\x7f]*)\"|((?:0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?))"
    rf"[ \t]*)?(?:{COMMENT})?\r?\n?"
)


def blocks(lines: Iterable[str]) -> Iterator[str]:
    r"""Yield the text before the first table (maybe empty), then the text of each table up to the next one.

    >>> list(blocks(["# ours\n", "[[quota]]\n", "a = 1\n", "[[quota]]\n"]))
    ['# ours\n', '[[quota]]\na = 1\n', '[[quota]]\n']
    """
    found: list[str] = []
    for line in lines:
        if "[[" in line and HEADER.fullmatch(line):
            yield "".join(found)
            found.clear()
        found.append(line)
    yield "".join(found)


def is_preamble(text: str) -> bool:
    """Whether this text before the first table has only comments and blank lines."""
    try:
        return not text or not loads(text)
    except TomlError:
        return False


def table(block: str) -> dict[str, object] | None:
    """Parse one block; None if it is not exactly one table with comments."""
    found: dict[str, object] = {}
    within = False
    for line in block.split("\n"):
        match = _LINE.fullmatch(line)
        if match is None:
            if within or HEADER.fullmatch(line) is None:
                return _slow(block)
            within = True
            continue
        key, text, number, fraction = match.groups()
        if key is None:
            continue
        if not within or key in found:
            return None
        if number is None:
            found[key] = text
        else:
            found[key] = float(number) if fraction else int(number)
    return found if within else None


def _slow(block: str) -> dict[str, object] | None:
    try:
        document = loads(block)
    except TomlError:
        return None
    tables = document.get("quota")
    if len(document) == 1 and isinstance(tables, list) and len(tables) == 1 and isinstance(tables[0], dict):
        found: dict[str, object] = tables[0]
        return found
    return None
