"""Reads fields of a JSON document that another process wrote. Pure.

A member may be broken, or not Sluice at all: whatever is not as docs/api.md says is a DocumentError with its path, and
never reaches a template.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

TEXT_CHARACTERS_MAX: Final = 40_000  # a client id has at most 32,767 bytes


class DocumentError(Exception):
    """A member's document is not as docs/api.md says."""


class Fields:
    """The fields of one JSON object.

    Args:
        content: the parsed JSON.
        path: its place, for the error.

    >>> fields = Fields({"rate": 2.5, "many": [{}]}, "/v1/clients")
    >>> fields.number("rate"), fields.number("value", None), len(list(fields.many("many", 10)))
    (2.5, None, 1)
    >>> Fields({"rate": "<b>"}, "/v1/clients").number("rate")
    Traceback (most recent call last):
    proxy.v1.fields.DocumentError: /v1/clients.rate is not a number
    """

    __slots__ = ("content", "path")

    def __init__(self, content: object, path: str) -> None:
        if not isinstance(content, Mapping):
            raise DocumentError(f"{path} is not an object")
        self.content: Mapping[str, Any] = content
        self.path = path

    def text(self, name: str, default: str = "") -> str:
        """Return a string; null is the default."""
        found = self.content.get(name)
        if found is None:
            return default
        if not isinstance(found, str) or len(found) > TEXT_CHARACTERS_MAX:
            raise self._wrong(name, "a string")
        # A lone surrogate is valid in JSON and in no page.
        return found if found.isascii() else found.encode("utf-8", "backslashreplace").decode()

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean."""
        found = self.content.get(name, default)
        if not isinstance(found, bool):
            raise self._wrong(name, "true or false")
        return found

    def number(self, name: str, default: float | None = 0.0) -> float | None:
        """Return a finite number; null is the default."""
        found = self.content.get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise self._wrong(name, "a number")
        try:
            value = float(found)
        except OverflowError:
            raise self._wrong(name, "a finite number") from None
        if not math.isfinite(value):
            raise self._wrong(name, "a finite number")
        return value

    def amount(self, name: str) -> float:
        """Return a number; 0 without one."""
        return self.number(name) or 0.0

    def whole(self, name: str, default: int = 0) -> int:
        """Return an integer."""
        return int(self.number(name, default) or 0)

    def one(self, name: str) -> "Fields | None":
        """Return an object; None for null."""
        found = self.content.get(name)
        return None if found is None else Fields(found, f"{self.path}.{name}")

    def many(self, name: str, at_most: int) -> Iterator["Fields"]:
        """Yield the objects of a list, at most so many."""
        found = self.content.get(name)
        if found is None:
            return
        if not isinstance(found, list):
            raise self._wrong(name, "a list")
        place = f"{self.path}.{name}[]"
        for content in found[:at_most]:
            yield Fields(content, place)

    def texts(self, name: str, at_most: int) -> Iterator[str]:
        """Yield the strings of a list, at most so many."""
        found = self.content.get(name) or []
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self._wrong(name, "a list of strings")
        yield from found[:at_most]

    def _wrong(self, name: str, expected: str) -> DocumentError:
        return DocumentError(f"{self.path}.{name} is not {expected}")
