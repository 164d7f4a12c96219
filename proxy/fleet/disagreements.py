"""The facts in which members of a fleet differ, although they must be equal; pure.

A change reaches the members one after the other: quotas in a topic within a second, a changed file as soon as it is
copied to each member. So members *disagree* only if they have differed for `LASTS_MS`, and the fact of one of them has
not changed for that time: while quotas are altered continuously, the members' digests always differ for a moment.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from proxy.fleet.codec import Facts
from proxy.fleet.facts import DIGEST, QUOTAS
from proxy.fleet.view import View
from quotas.sharing.lease_values import LesseeId

LASTS_MS: Final = 5000
TWICE_SECONDS: Final = 120  # two processes of one name for longer are no rolling upgrade
_NAMES_SHOWN_MAX: Final = 8
# Facts that are to be the same in all members, and how they are called for people.
_SAME: Final = {
    "version": "the version of Sluice differs",
    "members_max": "members_max differs",
    "scope": "the scope of quotas differs",
    "policy": "the policy differs",
    "mode": "the mode differs",
    "windows": "the windows differ",
    "burst_seconds": "the seconds of burst differ",
    "partition_mutations": "the partition mutations of all clients differ",
    "store": "the store of quotas differs",
    "journal": "the reassignment journal differs",
    DIGEST: "the quotas differ",
}


class Disagreements:
    """The differences that last, as one member sees the fleet.

    Args:
        lasts_ms: the time after which a difference is a disagreement.

    Attributes:
        lasting: the present disagreements: a sentence for each, by fact.
    """

    def __init__(self, lasts_ms: int = LASTS_MS) -> None:
        self._lasts_ms = lasts_ms
        self.lasting: Mapping[str, str] = {}
        self._said: dict[tuple[LesseeId, str], tuple[str, int]] = {}  # what, and since when
        self._since: dict[str, int] = {}

    def observe(self, view: View, now_ms: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Take a view of the fleet; return the disagreements that begin with it, and those that have ended."""
        self._said = {
            (member.lessee, fact): self._since_when(member.lessee, fact, value, now_ms)
            for member in view.members
            for fact, value in member.facts.items()
        }
        found = differences((member.lessee.name, member.facts) for member in view.members)
        self._since = {fact: self._since.get(fact, now_ms) for fact in found}
        lasting = {fact: text for fact, text in found.items() if self._lasts(fact, now_ms)}
        lasting |= {f"name {name}": _twice_text(name) for name in _twice(view)}
        before, self.lasting = self.lasting, lasting
        return (
            {fact: text for fact, text in lasting.items() if fact not in before},
            {fact: text for fact, text in before.items() if fact not in lasting},
        )

    def _since_when(self, lessee: LesseeId, fact: str, value: str, now_ms: int) -> tuple[str, int]:
        said = self._said.get((lessee, fact))
        return said if said is not None and said[0] == value else (value, now_ms)

    def _lasts(self, fact: str, now_ms: int) -> bool:
        last_ms = now_ms - self._lasts_ms
        return self._since[fact] <= last_ms and any(
            since_ms <= last_ms for (_, about), (_, since_ms) in self._said.items() if about == fact
        )


def differences(members: Iterable[tuple[str, Facts]]) -> Mapping[str, str]:
    """Return a sentence for each fact in which members differ, the fewest members first.

    Args:
        members: names and facts.

    >>> differences([("gw-1", {"mode": "enforce"}), ("gw-2", {"mode": "observe"}), ("gw-3", {"mode": "enforce"})])
    {'mode': 'the mode differs: observe at gw-2; enforce at gw-1, gw-3'}
    """
    every = list(members)
    found = {}
    for fact, differ in _SAME.items():
        names: dict[str, list[str]] = {}
        for name, facts in every:
            if fact in facts:
                names.setdefault(_value(facts, fact), []).append(name)
        if len(names) > 1:
            groups = sorted(names.items(), key=lambda group: (len(group[1]), group[0]))
            said = "; ".join(f"{value} at {_shown(of)}" for value, of in groups)
            found[fact] = f"{differ}: {said}"
    return found


def _value(facts: Facts, fact: str) -> str:
    return f"{facts.get(QUOTAS, '?')} with digest {facts[fact]}" if fact == DIGEST else facts[fact]


def _shown(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN_MAX
    return ", ".join(islice(names, _NAMES_SHOWN_MAX)) + (f" and {more} more" if more > 0 else "")


def _twice(view: View) -> Iterator[str]:
    """Yield the names that two processes have used at once for longer than a rolling upgrade takes."""
    names: dict[str, int] = {}
    for member in view.members:
        if member.present_s >= TWICE_SECONDS:
            names[member.lessee.name] = names.get(member.lessee.name, 0) + 1
    return (name for name, count in names.items() if count > 1)


def _twice_text(name: str) -> str:
    return f"two processes are called {name!r}: each needs a name of its own"
