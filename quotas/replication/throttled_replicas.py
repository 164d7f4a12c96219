"""The lists of throttled replicas: `[partition]:[replica],…` or `*`, one for each topic and direction (KIP-73).

Kafka's rules (`ThrottledReplicaListValidator`, `ConfigHandler`): entries are separated by commas, spaces around them
are ignored, an empty entry is ignored, and `*` alone is every replica. In the leaders' list an entry names the sending
broker, in the followers' list the receiving one. Kafka refuses a malformed list as a whole when it is set; here
malformed entries are reported and the others apply, since a list may come from a file.

A third source, `adding`, needs no list: exactly the replicas that a reassignment adds, in both directions.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

PROBLEMS_MAX: Final = 20  # reported for one list
_INT32_MAX: Final = 2**31 - 1
_PAIR: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})", re.ASCII)
_PAIR_OF_THE_PROPOSAL: Final = re.compile(r"[0-9]{1,10}-[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReplicaList:
    """The throttled replicas of one topic: all replicas, or pairs of partition and broker."""

    every: bool = False
    pairs: frozenset[tuple[int, int]] = frozenset()

    def holds(self, partition: int, broker: int) -> bool:
        """Whether this replica is in the list."""
        return self.every or (partition, broker) in self.pairs


EVERY_REPLICA: Final = ReplicaList(every=True)


def parse_replicas(text: str) -> tuple[ReplicaList, list[str]]:
    """Parse a list; returns its valid entries and the problems of the others.

    >>> found, problems = parse_replicas("0:1, 2:3, 4-5")
    >>> sorted(found.pairs)
    [(0, 1), (2, 3)]
    >>> problems
    ["entry 3, '4-5': not [partition]:[replica]; did you mean '4:5'?"]
    """
    entries = [entry.strip() for entry in text.split(",")]
    if entries[0] == "*":
        return EVERY_REPLICA, []
    pairs = set()
    problems: list[str] = []
    for number, entry in enumerate(entries, 1):
        match = _PAIR.fullmatch(entry)
        if match is not None and int(match[1]) <= _INT32_MAX and int(match[2]) <= _INT32_MAX:
            pairs.add((int(match[1]), int(match[2])))
        elif entry and len(problems) < PROBLEMS_MAX:
            problems.append(
                f"entry {number}, {entry[:40]!r}: {_wrong(entry, number_too_large=match is not None)}"
            )
    return ReplicaList(pairs=frozenset(pairs)), problems


def _wrong(entry: str, *, number_too_large: bool) -> str:
    if number_too_large:
        return f"a number is over {_INT32_MAX}"
    if entry == "*":
        return '"*" must be the whole list'
    if _PAIR_OF_THE_PROPOSAL.fullmatch(entry):
        return f"not [partition]:[replica]; did you mean {entry.replace('-', ':')!r}?"
    return "not [partition]:[replica]"


def _none() -> Mapping[str, ReplicaList]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledReplicas:
    """All throttled replicas of a cluster.

    Attributes:
        leaders: topic -> the replicas throttled at their leader.
        followers: topic -> the replicas throttled at their follower.
        adding: (topic, partition) -> the brokers that a reassignment adds; throttled in both directions.
    """

    leaders: Mapping[str, ReplicaList] = field(default_factory=_none)
    followers: Mapping[str, ReplicaList] = field(default_factory=_none)
    adding: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))

    def brokers(self) -> set[int]:
        """Return all brokers in the lists; an entry of a broker that does not exist has no effect."""
        listed = (*self.leaders.values(), *self.followers.values())
        return {broker for replicas in listed for _, broker in replicas.pairs}.union(*self.adding.values())

    def sending(self, topic: str, partition: int, leader: int, follower: int) -> bool:
        """Whether this leader's bytes to this follower count against the leader's rate."""
        if follower in self.adding.get((topic, partition), ()):
            return True
        listed = self.leaders.get(topic)
        return listed is not None and listed.holds(partition, leader)

    def receiving(self, topic: str, partition: int, follower: int) -> bool:
        """Whether this follower's received bytes count against the follower's rate."""
        if follower in self.adding.get((topic, partition), ()):
            return True
        listed = self.followers.get(topic)
        return listed is not None and listed.holds(partition, follower)
