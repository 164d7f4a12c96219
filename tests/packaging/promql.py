"""As much of PromQL as is needed to say which metrics and functions an expression has, and that it is not cut short."""

import re
from typing import Final

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABELS: Final = re.compile(r"\{[^{}]*\}|\b(?:by|without|on|ignoring)\s*\([^()]*\)|\[[^\[\]]*\]")
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*(?!\w)(?!\s*\()")
_CALLED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*\(")
_GROUPED: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(")
_BEFORE_BRACKETS: Final = frozenset({"and", "or", "unless", "bool", "offset"})
# Those that the rules and the dashboard need.
FUNCTIONS: Final = frozenset(
    {
        *("sum", "min", "max", "count", "topk", "rate", "increase", "changes"),
        *("histogram_quantile", "vector", "time", "max_over_time"),
    }
)
_OF_RANGES: Final = frozenset({"rate", "increase", "changes", "max_over_time"})
_OPERATORS: Final = frozenset({"and", "or", "unless", "bool"})
_PAIRS: Final = {")": "(", "]": "[", "}": "{"}


def metrics(expression: str) -> set[str]:
    """Return the names of the metrics that an expression reads.

    >>> sorted(metrics('sum by (le) (rate(a_total{b=~"c"}[5m])) / d > 0.5'))
    ['a_total', 'd']
    """
    bare = _LABELS.sub(" ", _STRING.sub('""', expression))
    return {name for name in _NAME.findall(bare) if name not in _OPERATORS}


def functions(expression: str) -> set[str]:
    """Return the names of the functions and aggregations that an expression calls.

    >>> sorted(functions('sum by (le) (rate(a_total{b="max(c)"}[5m])) and on (job) d'))
    ['rate', 'sum']
    """
    bare = _GROUPED.sub(" (", _STRING.sub('""', expression))
    return {name for name in _CALLED.findall(bare) if name not in _BEFORE_BRACKETS}


def ranged(expression: str) -> bool:
    """Return whether each function of a range has one, and nothing else has.

    >>> [ranged(text) for text in ("rate(a[5m])", "sum(rate(a))", "sum(a[5m])", 'max(increase(a{b="c"}[$__range]))')]
    [True, False, False, True]
    """
    bare = re.sub(r"\{[^{}]*\}", "", _STRING.sub('""', expression))
    calls = re.findall(r"(\w+)\(\s*[A-Za-z_:][\w:]*+(?!\s*\()\s*(\[)?", bare)
    return all((name in _OF_RANGES) == bool(bracket) for name, bracket in calls) and (
        bare.count("[") == sum(bool(bracket) for _, bracket in calls)
    )


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
