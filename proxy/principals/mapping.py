r"""A certificate's subject -> a principal's name: Kafka's `ssl.principal.mapping.rules` (KIP-371).

    RULE:pattern/replacement/[L|U]      the whole subject must match; $1 is its first group; L and U change case
    DEFAULT                             the subject as it is

The first rule that matches applies; without one the client is refused, as by a broker. Patterns are Python's regular
expressions; Java's named groups `(?<name>…)` are supported too. Features that only Java has (\p{Lower}, intersections
of classes) are an error when the configuration is read, or match nothing. A slash within pattern or replacement is
escaped with a backslash.
"""

import re
from collections.abc import Callable
from typing import Final

DEFAULT_RULES: Final = "DEFAULT"
RULES_MAX: Final = 100
_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))\s*(?:,|$)")
_JAVA_GROUP: Final = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z])")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.ASCII)

Rule = Callable[[str], str | None]


class RuleError(ValueError):
    """A rule is invalid."""


class NoMatchingRuleError(ValueError):
    """No rule applies to a subject."""


class MappingRules:
    """Parsed rules.

    >>> rules = MappingRules("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT")
    >>> rules.name("CN=Billing,OU=ServiceUsers,O=Example"), rules.name("CN=x")
    ('billing', 'CN=x')
    """

    def __init__(self, text: str) -> None:
        """Parse the rules.

        Raises:
            RuleError: a rule is invalid; with its position.
        """
        self._rules: list[Rule] = []
        pos = 0
        while pos < len(text):
            found = _RULE.match(text, pos)
            if found is None:
                raise RuleError(
                    f"not a rule: {text[pos:].strip()!r}; RULE:pattern/replacement/[LU] or DEFAULT"
                )
            self._rules.append(_unchanged if found[1] else _rule(found[2], found[3], found[4]))
            pos = found.end()
        if not 0 < len(self._rules) <= RULES_MAX:
            raise RuleError(f"there must be 1 to {RULES_MAX} rules, not {len(self._rules)}")

    def name(self, subject: str) -> str:
        """Return the principal's name.

        Raises:
            NoMatchingRuleError: no rule applies.
        """
        for rule in self._rules:
            found = rule(subject)
            if found is not None:
                return found
        raise NoMatchingRuleError(f"no principal mapping rule applies to {subject!r}")


def _unchanged(subject: str) -> str:
    return subject


def _rule(pattern_text: str, replacement: str, case: str) -> Rule:
    try:
        pattern = re.compile(_JAVA_GROUP.sub("(?P<", pattern_text))
    except re.error as error:
        raise RuleError(f"pattern {pattern_text!r}: {error}") from None
    parts = _parts(replacement, pattern)

    def replaced(found: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else found[part[0]] or "" for part in parts)

    def apply(subject: str) -> str | None:
        if pattern.fullmatch(subject) is None:
            return None
        # Like Java: if the whole subject matches, every match is replaced.
        result = pattern.sub(replaced, subject)
        return result.lower() if case == "L" else result.upper() if case == "U" else result

    return apply


def _parts(replacement: str, pattern: re.Pattern[str]) -> list[str | tuple[int | str]]:
    """Split a replacement into texts and groups; a reference to a missing group is a text, as in Kafka."""
    parts: list[str | tuple[int | str]] = []
    pos = 0
    for found in _REFERENCE.finditer(replacement):
        parts.append(replacement[pos : found.start()])
        pos = found.end()
        escaped, number, name = found.groups()
        if escaped is not None:
            parts.append(escaped)
        elif name is not None:
            if name not in pattern.groupindex:
                raise RuleError(f"replacement {replacement!r}: the pattern has no group {name!r}")
            parts.append((name,))
        else:
            parts.extend(_numbered(number, pattern.groups))
    parts.append(replacement[pos:])
    return parts


def _numbered(digits: str, groups: int) -> list[str | tuple[int | str]]:
    """Return the longest reference to an existing group: $12 is group 12, or group 1 and the text 2."""
    for count in range(len(digits), 0, -1):
        if int(digits[:count]) <= groups:
            return [(int(digits[:count]),), digits[count:]]
    return ["$" + digits]
