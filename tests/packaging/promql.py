"""As much of PromQL as is needed to say which metrics an expression reads, and that it is not cut short."""

import re
from typing import Final

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABELS: Final = re.compile(r"\{[^{}]*\}|\b(?:by|without|on|ignoring)\s*\([^()]*\)|\[[^\[\]]*\]")
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*(?!\w)(?!\s*\()")
_OPERATORS: Final = frozenset({"and", "or", "unless", "bool"})
_PAIRS: Final = {")": "(", "]": "[", "}": "{"}


def metrics(expression: str) -> set[str]:
    """Return the names of the metrics that an expression reads.

    >>> sorted(metrics('sum by (le) (rate(a_total{b=~"c"}[5m])) / d > 0.5'))
    ['a_total', 'd']
    """
    bare = _LABELS.sub(" ", _STRING.sub('""', expression))
    return {name for name in _NAME.findall(bare) if name not in _OPERATORS}


def balanced(expression: str) -> bool:
    """Return whether every bracket is closed by its own kind.

    >>> [balanced(text) for text in ("sum(rate(a[5m]))", "sum(rate(a[5m])", "a)(")]
    [True, False, False]
    """
    opened: list[str] = []
    for character in _STRING.sub('""', expression):
        if character in _PAIRS.values():
            opened.append(character)
        elif character in _PAIRS and (not opened or opened.pop() != _PAIRS[character]):
            return False
    return not opened
