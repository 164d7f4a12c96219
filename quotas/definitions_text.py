"""The quota file's text, cut into its tables, each read by itself (the format: `definitions_file`).

TOML's own reader takes 45 us a table; read line by line a plain table takes three, and a table that cannot be read
so is given to TOML's reader alone. Cutting is sound because each piece is checked: a text whose pieces are all
TOML by themselves, nothing in front of the first `[[quota]]` and exactly one table each, means the same in one
piece. What is cut wrongly (a `[[quota]]` within a text of several lines) is not TOML by itself, and the caller
falls back to the whole text. Meaning of keys and values is not known here.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from quotas.errors import TomlError
from quotas.toml_text import loads

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
    r"""What stands before the first table, perhaps nothing, then the text of each table with all up to the next.

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
    """Whether this may stand before the first table without saying anything itself."""
    try:
        return not text or not loads(text)
    except TomlError:
        return False


def table(block: str) -> dict[str, object] | None:
    """The keys of one block; None where it is not one table and comments, and nothing else."""
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
