"""Which replicas are throttled: `[partition]:[replica],…` or `*`, one list a topic and side (KIP-73).

Kafka's rules (`ThrottledReplicaListValidator`, `ConfigHandler`): entries are divided by commas, spaces around them do
not matter, an empty one is none, and `*` alone is every replica. In the leaders' list an entry names the broker that
sends, in the followers' list the one that receives. Kafka refuses a malformed list whole, when it is set; here what is
wrong is said and the rest holds, since a list may come from a file.

The third way, `adding`, needs no list: exactly the replicas that a reassignment adds, on both sides.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

PROBLEMS_MAX: Final = 20  # said of one list
_INT32_MAX: Final = 2**31 - 1
_PAIR: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})", re.ASCII)
_PAIR_OF_THE_PROPOSAL: Final = re.compile(r"[0-9]{1,10}-[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReplicaList:
    """The throttled replicas of one topic: every one of them, or pairs of partition and broker."""

    every: bool = False
    pairs: frozenset[tuple[int, int]] = frozenset()

    def holds(self, partition: int, broker: int) -> bool:
        """Whether this replica is in the list."""
        return self.every or (partition, broker) in self.pairs


EVERY_REPLICA: Final = ReplicaList(every=True)


def parse_replicas(text: str) -> tuple[ReplicaList, list[str]]:
    """Read a list: what of it holds, and what is wrong with the rest.

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
    """Every throttled replica of a cluster.

    Attributes:
        leaders: topic -> whose sending is throttled.
        followers: topic -> whose receiving is throttled.
        adding: (topic, partition) -> brokers that a reassignment under way adds; throttled at both ends.
    """

    leaders: Mapping[str, ReplicaList] = field(default_factory=_none)
    followers: Mapping[str, ReplicaList] = field(default_factory=_none)
    adding: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))

    def brokers(self) -> set[int]:
        """Give every broker that is named, which need not exist: an entry of one that does not throttles nothing."""
        listed = (*self.leaders.values(), *self.followers.values())
        return {broker for replicas in listed for _, broker in replicas.pairs}.union(*self.adding.values())

    def sending(self, topic: str, partition: int, leader: int, follower: int) -> bool:
        """Whether what this leader sends this follower counts against the leader's rate."""
        if follower in self.adding.get((topic, partition), ()):
            return True
        listed = self.leaders.get(topic)
        return listed is not None and listed.holds(partition, leader)

    def receiving(self, topic: str, partition: int, follower: int) -> bool:
        """Whether what this follower receives counts against the follower's rate."""
        if follower in self.adding.get((topic, partition), ()):
            return True
        listed = self.followers.get(topic)
        return listed is not None and listed.holds(partition, follower)
