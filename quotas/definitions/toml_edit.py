"""Edits the quotas file's text: comments, order and form of everything unchanged stay (alterations of KIP-546,
kafka-quotas.md §6.1).

    document, changed, gone = Document.read(lines)
    edit = document.edit([(Entity(client_id="a"), {"producer_byte_rate": 2e6})])
    "".join(document.text(edit))      # the new text; when it is on disk:
    document.apply(edit)

Behavior: a changed limit keeps its line, its form ("2M" becomes "4M") and the comment behind it; a new limit is added
after the last one; the table of an entity without limits is removed. A comment on a line of its own always stays; if
its entity returns, its table is written at the same place. The table of a new entity is appended. An edited table is
parsed again before it is used: a form that the line editor does not know (a quoted key with escapes) is written anew,
in plain form.

A file that is not a sequence of `[[quota]]` tables (one array in one line) is read but not edited: FormError. This
module does no IO. Every loop over all tables iterates through `pace`, so that the caller can slow it down; freeing
100,000 tables at once takes Python tens of milliseconds, so texts are kept and shared.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from quotas.definitions.amounts import write_like
from quotas.definitions.definitions import ENTITIES_MAX, USER_KEYS, WHOLE_KEYS, Definitions
from quotas.definitions.entities import Entity, code
from quotas.definitions.toml_file import entry, parse_limit, render_table, render_value
from quotas.definitions.toml_tables import HEADER, blocks, is_preamble, table
from quotas.errors import DefinitionError, FormError

__all__ = ["Change", "Document", "Edit", "Pace"]

Change = tuple[Entity, Mapping[str, float]]
"""An entity and all its new limits; without limits the entity is removed."""
Edit = dict[str, str]
"""New texts of tables by the entity's code; "" removes a table."""
Pace = Callable[[Iterable[tuple[str, str]]], Iterable[tuple[str, str]]]

_PREAMBLE: Final = ""  # no entity's code
_PIECES_AT_ONCE: Final = 1000  # joined in one go: about 0.1 ms
_LIMIT: Final = re.compile(
    r"""([ \t]*["']?([A-Za-z_]+)["']?[ \t]*=[ \t]*)("[^"]*"|'[^']*'|[^\s#"']+)(.*)""", re.DOTALL
)
_KEYS: Final = USER_KEYS  # every key there is


class Document:
    """The text of a quotas file, by entity."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: dict[str, str] | None = None) -> None:
        self._pieces = pieces or {_PREAMBLE: ""}

    @classmethod
    def read(
        cls, lines: Iterable[str], before: "Document | None" = None, pace: Pace = iter
    ) -> tuple["Document", Definitions, list[str]]:
        """Read a file. Returns the document, the entities whose limits differ from `before`, and the codes of removed
        ones.

        Tables with unchanged text are not parsed again.

        Raises:
            DefinitionError: an invalid definition.
            FormError: the text is not a sequence of `[[quota]]` tables.
        """
        old = before._pieces if before else {}
        known = {text: name for name, text in pace(old.items()) if name}
        pieces: dict[str, str] = {}
        changed = Definitions()
        for index, text in enumerate(blocks(lines)):
            if index == 0:
                if not is_preamble(text):
                    raise FormError("what stands before the first [[quota]] is more than comments")
                pieces[_PREAMBLE] = text
                continue
            path = f"quota[{index - 1}]"
            name = known.pop(text, None)  # so that little is left of it when it is freed
            if name is None:
                entity, values = entry(text, path)
                name = code(*entity)
                changed.put(entity, values, path)
            if name in pieces:
                raise DefinitionError(path, "this entity is defined twice")
            if len(pieces) > ENTITIES_MAX:
                raise DefinitionError(path, f"more than {ENTITIES_MAX} entities")
            pieces[name] = old[name] if name in old and old[name] == text else text
        return cls(pieces), changed, [name for name, _ in pace(old.items()) if name not in pieces]

    def empty(self, pace: Pace = iter) -> None:
        """Free the texts in small steps, after another document has replaced this one."""
        for _ in pace([("", "")] * len(self._pieces)):
            self._pieces.popitem()

    def edit(self, changes: Iterable[Change]) -> Edit:
        """Compute the new texts of the changed tables; each change is of another entity."""
        edit: Edit = {}
        newline = _newline(self._pieces[next(reversed(self._pieces))])
        for entity, values in changes:
            name = code(*entity)
            text = self._pieces.get(name, "")
            if values:
                if name not in self._pieces:
                    self._separate(edit, name)
                edit[name] = _with_limits(text, entity, values, newline)
            else:
                edit[name] = "".join(_comments(text))
        return edit

    def text(self, edit: Edit, pace: Pace = iter) -> Iterator[str]:
        """Yield the file's text with the edit applied, in pieces."""
        changed = edit.get
        pieces = (changed(name, text) for name, text in pace(self._pieces.items()))
        while part := list(islice(pieces, _PIECES_AT_ONCE)):
            yield "".join(part)
        yield from (text for name, text in edit.items() if name not in self._pieces)

    def apply(self, edit: Edit) -> None:
        """Make the edit part of this document; call it when the new text is on disk."""
        for name, text in edit.items():
            if text or name == _PREAMBLE:
                self._pieces[name] = text
            else:
                self._pieces.pop(name, None)

    def _separate(self, edit: Edit, name: str) -> None:
        """Separate a new last table by an empty line, and make the text before it end with a newline."""
        if any(other not in self._pieces and other != name for other in edit):
            return  # it follows another new one
        last = next(reversed(self._pieces))
        text = edit.get(last, self._pieces[last])
        newline = _newline(text)
        if text and not text.endswith("\n"):
            text += newline
        if text and not text.endswith(("\n\n", "\n\r\n")):
            edit[last] = text + newline


def _with_limits(text: str, entity: Entity, values: Mapping[str, float], newline: str) -> str:
    """Return one table's text with exactly these limits."""
    old = table(text) if text else None
    if old is not None:
        edited = "".join(_lines(text, old, values))
        try:
            if entry(edited, "") == (entity, values):
                return edited
        except (DefinitionError, FormError):
            pass  # a form that is not known here: written anew below
    before, behind = _comments(text)
    if not text or old is None:  # what stands for a table that was taken away are its comments
        before, behind = before + behind, newline
    if before and not before.endswith("\n"):
        before += newline
    return before + render_table(entity, values).replace("\n", newline) + behind


def _lines(text: str, old: Mapping[str, object], values: Mapping[str, float]) -> list[str]:
    found: list[str] = []
    left = dict(values)
    behind = 0  # where the table's last line ends
    for line in _split(text):
        match = _LIMIT.match(line)
        key = match[2] if match else ""
        if match and key in _KEYS:
            if key not in left:
                continue
            value = left.pop(key)
            same = parse_limit(old.get(key, 0), key) == value
            found.append(line if same else f"{match[1]}{_rendered(key, value, match[3])}{match[4]}")
        else:
            found.append(line)
        if match or HEADER.fullmatch(line):
            behind = len(found)
    newline = _newline(text)
    if left and not found[behind - 1].endswith("\n"):
        found[behind - 1] += newline
    found[behind:behind] = [f"{key} = {render_value(key, value)}{newline}" for key, value in left.items()]
    return found


def _rendered(key: str, value: float, before: str) -> str:
    """Render a limit in the form of the one that it replaces: "2M" becomes "4M"."""
    quote = before[0]
    if quote in "\"'" and key in WHOLE_KEYS:
        return f"{quote}{write_like(int(value), before.strip(quote))}{quote}"
    return render_value(key, value)


def _comments(text: str) -> tuple[str, str]:
    """Return the comments that remain without the table: those on lines of their own, within it and behind it."""
    lines = _split(text)
    bare = [line.strip() for line in lines]
    last = max((index for index, line in enumerate(bare) if line and line[0] != "#"), default=-1)
    within = "".join(
        line for line, said in zip(lines[: last + 1], bare, strict=False) if said.startswith("#")
    )
    behind = "".join(lines[last + 1 :])
    return within, behind if within or behind.strip() else ""


def _split(text: str) -> list[str]:
    """Split into lines, keeping line ends; only a line feed ends a line, as in TOML."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
