"""StreamsGroupHeartbeat 0-1: the topology that a member joins with, and the internal topics that follow (KIP-1071).

A broker creates the repartition and changelog topics that a topology names and the cluster lacks. `new_partitions` is
the number of partitions of each: a repartition topic's own number, or what its subtopologies read or write; of a
changelog what its subtopology reads. Copartitioning is taken as the whole subtopology's, so that the number is at least
Kafka's. The configurations of topics and all other fields of the request are passed over.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from protocol.errors import OversizedError
from protocol.primitives import Buffer, count, int32, skip, skip_string, skip_tags, string

# The most names in one topology. Each internal topic is one; a thousand of them are a very large application.
NAMES_MAX: Final = 5000
# A number of partitions passes from subtopology to subtopology; more in a row than this get the greatest number.
_ROUNDS_MAX: Final = 4

_NO_TOPOLOGY: Final = 0xFF


class Subtopology(NamedTuple):
    """A part of a topology.

    Attributes:
        sources: the topics that it reads and that exist before.
        sinks: the repartition topics that it writes.
        repartition: the repartition topics that it reads, with their partitions; 0: derived.
        changelogs: the changelog topics of its state stores.
    """

    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    repartition: Mapping[str, int]
    changelogs: tuple[str, ...]


Topology: TypeAlias = tuple[Subtopology, ...]


def read_topology(frame: Buffer, body: int) -> Topology:
    """Return the topology in a complete StreamsGroupHeartbeat whose fields begin at `body`; empty if it has none.

    Raises:
        WireError: the request is malformed, or has more than NAMES_MAX subtopologies or names of topics.
    """
    end = len(frame)
    pos = skip_string(frame, skip_string(frame, body, end, True), end, True)
    pos = skip(pos, 8, end)  # the member's epoch, the endpoints' epoch
    pos = skip_string(frame, skip_string(frame, pos, end, True), end, True)
    pos = skip(pos, 4, end)  # the rebalance timeout
    after = skip(pos, 1, end)
    if frame[pos] == _NO_TOPOLOGY:
        return ()
    subtopologies, pos = _counted(frame, skip(after, 4, end), end, NAMES_MAX)  # after the topology's epoch
    found = []
    left = NAMES_MAX
    for _ in range(subtopologies):
        subtopology, names, pos = _read_subtopology(frame, pos, end, left)
        left -= names
        found.append(subtopology)
    return tuple(found)


def read_names(frame: Buffer, body: int) -> list[str]:
    """Return the names of all topics of the topology that `read_topology` returns, each once.

    Raises:
        WireError: as `read_topology`.
    """
    return names_of(read_topology(frame, body))


def read_new_partitions(frame: Buffer, body: int, known: Mapping[str | bytes, int]) -> dict[str, int]:
    """Return `new_partitions` of the topology that `read_topology` returns.

    Args:
        known: the partitions of the topics that exist, by name and by id.

    Raises:
        WireError: as `read_topology`.
    """
    by_name = {name: size for name, size in known.items() if isinstance(name, str)}
    return new_partitions(read_topology(frame, body), by_name)


def names_of(topology: Topology) -> list[str]:
    """Return the names of all topics of a topology, each once."""
    names: dict[str, None] = {}
    for sources, sinks, repartition, changelogs in topology:
        for part in (sources, sinks, repartition, changelogs):
            names.update(dict.fromkeys(part))
    return list(names)


def internal_names(topology: Topology) -> list[str]:
    """Return the names of the topics that a broker creates for a topology if they do not exist; some may be twice."""
    return [name for part in topology for name in (*part.repartition, *part.changelogs)]


def new_partitions(topology: Topology, known: Mapping[str, int]) -> dict[str, int]:
    """Return the partitions of each internal topic that does not exist; 1 if what it depends on is not known.

    Args:
        known: the partitions of the topics that exist.
    """
    # Which of several numbers for a topic a broker takes depends on the ids of the subtopologies.
    stated: dict[str, int] = {}
    for part in topology:
        for name, partitions in part.repartition.items():
            if partitions > 0:
                stated[name] = max(stated.get(name, 0), partitions)
    sizes = _derived(topology, {**stated, **known})
    needed: dict[str, int] = {}
    for part in topology:
        needed.update({name: sizes.get(name, 1) for name in part.repartition})
        width = _width(part, sizes)
        needed.update({name: max(needed.get(name, 1), width) for name in part.changelogs})
    return {name: partitions for name, partitions in needed.items() if name not in known}


def _derived(topology: Topology, fixed: Mapping[str, int]) -> dict[str, int]:
    """Return the partitions of all topics but changelogs: those that are fixed, and those that follow from them."""
    sizes = dict(fixed)
    for _ in range(_ROUNDS_MAX):
        settled = True
        for part in topology:
            width = _width(part, sizes)
            for name in (*part.sinks, *part.repartition):
                if name not in fixed and width > sizes.get(name, 0):
                    sizes[name] = width
                    settled = False
        if settled:
            return sizes
    most = max(sizes.values())
    return {name: fixed.get(name, most) for name in sizes}


def _width(part: Subtopology, sizes: Mapping[str, int]) -> int:
    """Return the most partitions of a topic that a subtopology reads; 1 if none is known."""
    return max((sizes.get(name, 1) for name in (*part.sources, *part.repartition)), default=1)


def _read_subtopology(frame: Buffer, pos: int, end: int, left: int) -> tuple[Subtopology, int, int]:
    """Return a subtopology, the number of its names, and the position after it."""
    pos = skip_string(frame, pos, end, True)
    sources, pos = _read_names(frame, pos, end, left)
    left -= len(sources)
    expressions, pos = count(frame, pos, end, True)
    for _ in range(expressions):
        pos = skip_string(frame, pos, end, True)
    changelogs, pos = _read_topics(frame, pos, end, left)
    left -= len(changelogs)
    sinks, pos = _read_names(frame, pos, end, left)
    left -= len(sinks)
    repartition, pos = _read_topics(frame, pos, end, left)
    groups, pos = count(frame, pos, end, True)
    for _ in range(groups):
        for _ in range(3):
            indexes, pos = count(frame, pos, end, True)
            pos = skip(pos, 2 * max(indexes, 0), end)
        pos = skip_tags(frame, pos, end)
    names = len(sources) + len(changelogs) + len(sinks) + len(repartition)
    found = Subtopology(
        tuple(sources), tuple(sinks), dict(repartition), tuple(name for name, _ in changelogs)
    )
    return found, names, skip_tags(frame, pos, end)


def _counted(frame: Buffer, pos: int, end: int, left: int) -> tuple[int, int]:
    entries, pos = count(frame, pos, end, True)
    if entries > left:
        raise OversizedError(f"a topology of more than {NAMES_MAX} subtopologies or names of topics")
    return entries, pos


def _read_names(frame: Buffer, pos: int, end: int, left: int) -> tuple[Sequence[str], int]:
    entries, pos = _counted(frame, pos, end, left)
    names = []
    for _ in range(entries):
        name, pos = string(frame, pos, end, True)
        names.append(name or "")
    return names, pos


def _read_topics(frame: Buffer, pos: int, end: int, left: int) -> tuple[Sequence[tuple[str, int]], int]:
    """Return internal topics by name with their partitions, and the position after the array."""
    entries, pos = _counted(frame, pos, end, left)
    topics = []
    for _ in range(entries):
        name, pos = string(frame, pos, end, True)
        partitions = int32(frame, pos, end)
        configs, pos = count(frame, skip(pos, 6, end), end, True)  # after the replication factor
        for _ in range(configs):
            pos = skip_tags(frame, skip_string(frame, skip_string(frame, pos, end, True), end, True), end)
        pos = skip_tags(frame, pos, end)
        topics.append((name or "", partitions))
    return topics, pos
