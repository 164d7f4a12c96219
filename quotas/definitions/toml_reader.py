"""`tomllib` with bounds: the result is always shallow, and its values can be written in an error message.

`tomllib` recurses over arrays and inline tables, takes quadratic time for a dotted key's parts, and reads integers that
Python then refuses to print; its result may be nested too deeply to be copied or compared. Sluice's files need none of
that.
"""

import re
import tomllib
from typing import Final

from quotas.errors import TomlError

__all__ = ["loads", "shown"]

_DEPTH_MAX: Final = 32
_DOTS_MAX: Final = (
    256  # in one line, outside texts and comments: a key of so many parts, or so many fractions
)
_INTEGER_MAX: Final = 2**63  # TOML's own bound
_SHOWN_CHARACTERS_MAX: Final = 80
_PROBLEM_CHARACTERS_MAX: Final = 200
_NO_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*')


def loads(text: str) -> dict[str, object]:
    """Parse a text.

    Raises:
        TomlError: it is not TOML, or beyond the bounds.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _DOTS_MAX and _NO_KEY.sub("", line).count(".") > _DOTS_MAX:
            raise TomlError(f"line {number} has a key of more than {_DOTS_MAX} parts")
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise TomlError(f"nested deeper than {_DEPTH_MAX}") from None
    except ValueError as error:  # not only tomllib's own: a date that is none, an integer of 5,000 digits
        raise TomlError(str(error)[:_PROBLEM_CHARACTERS_MAX]) from None
    _check(document)
    return document


def shown(value: object) -> str:
    """Format a parsed value in one line of bounded length.

    >>> shown([1, 2]), shown("a" * 100)[-5:]
    ('[1, 2]', 'aa...')
    """
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 3] + "..."


def _check(document: dict[str, object]) -> None:
    """Raise for values nested too deeply, and for integers beyond TOML's range."""
    level: list[object] = [document]
    for _ in range(_DEPTH_MAX):
        below: list[object] = []
        for item in level:
            for value in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
                if isinstance(value, dict | list):
                    below.append(value)
                elif isinstance(value, int) and not -_INTEGER_MAX <= value < _INTEGER_MAX:
                    raise TomlError("an integer has more than 64 bits")
        if not below:
            return
        level = below
    raise TomlError(f"nested deeper than {_DEPTH_MAX}")
