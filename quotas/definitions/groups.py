"""Which names are in which group: by the name itself, or by a prefix, as in `web-*`.

A name may be in one group only, and two overlapping prefixes must be of one group: `conflict` finds what breaks this,
for the file and for alterations. Concurrent changes of a quota topic may break it all the same; then every process has
to decide alike, whatever the order of the records: the name itself goes before a prefix, the longer prefix before the
shorter one, and of equal spellings the group whose name sorts first.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from quotas.errors import DefinitionError

ANY_END: Final = "*"


class Conflict(NamedTuple):
    """Two members that name the same clients, and their groups."""

    spelling: str
    group: str
    other_spelling: str
    other_group: str

    def __str__(self) -> str:
        return (
            f"{self.spelling!r} of group {self.group!r} and {self.other_spelling!r} of group {self.other_group!r} "
            "name the same clients; a client may be in one group only"
        )


def check_member(spelling: str, path: str) -> None:
    """Raise `DefinitionError` unless this is a name, or a prefix with `*` behind it."""
    if spelling == ANY_END:
        raise DefinitionError(path, "'*' names every client: that is the default entity, <default>")
    if ANY_END in spelling[:-1]:
        raise DefinitionError(path, f"{spelling!r}: * may only stand at the end, for names that begin alike")


def conflict(members: Iterable[tuple[str, str]]) -> Conflict | None:
    """Return two members that name the same clients in different groups; None if there are none.

    Args:
        members: spelling and group of each, of one kind (users, or client ids).

    >>> str(conflict([("web-*", "a"), ("web-1", "b")]))[:42]
    "'web-*' of group 'a' and 'web-1' of group "
    >>> conflict([("web-*", "a"), ("web-1", "a"), ("web", "b")])
    """
    # Sorted without the star, a prefix stands before all that begins with it; those between begin with it as well.
    ordered = sorted(
        (spelling.removesuffix(ANY_END), not spelling.endswith(ANY_END), spelling, group)
        for spelling, group in members
    )
    open_prefixes: list[tuple[str, str, str]] = []
    for begin, exact, spelling, group in ordered:
        while open_prefixes and not begin.startswith(open_prefixes[-1][0]):
            open_prefixes.pop()
        if open_prefixes and open_prefixes[-1][2] != group:
            _, other, other_group = open_prefixes[-1]
            return Conflict(other, other_group, spelling, group)
        if not exact:
            open_prefixes.append((begin, spelling, group))
    for (*_, spelling, group), (*_, next_spelling, next_group) in pairwise(ordered):
        if spelling == next_spelling and group != next_group:
            return Conflict(spelling, group, next_spelling, next_group)
    return None


class Members:
    """The members of all groups of one kind, users or client ids; finds the group of a name.

    Attributes:
        lengths: the lengths of all prefixes, the longest first; a name is looked up once for each.

    >>> members = Members()
    >>> members.add("web-*", "team-web")
    >>> members.add("web-admin", "ops")
    >>> [members.group_of(name) for name in ("web-1", "web-admin", "web", "x")]
    ['team-web', 'ops', None, None]
    """

    def __init__(self) -> None:
        self._groups: dict[str, str] = {}  # by spelling
        self._others: dict[str, set[str]] = {}  # further groups of a spelling, where changes have met
        self._lengths: dict[int, int] = {}  # how many prefixes have this length
        self.lengths: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, spelling: str) -> bool:
        return spelling in self._groups

    def add(self, spelling: str, group: str) -> None:
        """Add a member, which is not there yet."""
        known = self._groups.get(spelling)
        if known is None:
            self._groups[spelling] = group
            self._count(spelling, 1)
        else:
            self._groups[spelling] = min(known, group)
            self._others.setdefault(spelling, set()).add(max(known, group))

    def remove(self, spelling: str, group: str) -> None:
        """Remove a member, which is there."""
        others = self._others.get(spelling, set())
        if self._groups[spelling] != group:
            others.remove(group)
        elif others:
            self._groups[spelling] = min(others)
            others.remove(min(others))
        else:
            del self._groups[spelling]
            self._count(spelling, -1)
        if not others:
            self._others.pop(spelling, None)

    def group_of(self, name: str) -> str | None:
        """Return the group of a name; None if it is in none."""
        found = self._groups.get(name)
        if found is not None and not name.endswith(ANY_END):
            return found
        begin = self.beginning_of(name)
        return self._groups[begin + ANY_END] if begin else None

    def beginning_of(self, name: str) -> str:
        """Return the longest beginning of a name that is a prefix of a group; "" if there is none.

        >>> members = Members()
        >>> members.add("web-*", "team-web")
        >>> members.beginning_of("web-1"), members.beginning_of("x")
        ('web-', '')
        """
        length = len(name)
        for size in self.lengths:
            if size <= length and name[:size] + ANY_END in self._groups:
                return name[:size]
        return ""

    def _count(self, spelling: str, change: int) -> None:
        if spelling.endswith(ANY_END):
            length = len(spelling) - 1
            self._lengths[length] = self._lengths.get(length, 0) + change
            if not self._lengths[length]:
                del self._lengths[length]
            self.lengths = tuple(sorted(self._lengths, reverse=True))
