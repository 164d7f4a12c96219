"""The cluster that is replayed against: who leads what there, where its partitions begin, and what is made for it.

Recorded brokers become the target's, in the order of their ids, round and round where there are fewer. A recorded
partition becomes the same one where its broker leads it there too, else one of that topic that it does lead.
Topics that are missing are made on request, led as they were recorded; and filled, so that a Fetch finds as many bytes
as it brought then. What was there before is read as it is.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from offline.replay import answers, messages
from offline.replay.answers import Broker, Topic
from offline.replay.errors import TargetError
from offline.replay.payload import batch
from offline.replay.schedule import Recorded
from protocol.api import (
    API_NAMES,
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)
from protocol.errors import WireError

__all__ = ["Placement", "Wanted", "prepare", "wanted"]

CLIENT_ID: Final = "sluice-replay"
_SECONDS_MAX: Final = 10.0
_LEADER_SECONDS_MAX: Final = 20.0
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_UNKNOWN_TOPIC: Final = 3
_EXISTS: Final = 36
# A partition is filled with as much as its largest Fetch brought, and no more than this.
FILL_BYTES_MAX: Final = 16 * 1024 * 1024
_FILL_BATCHES: Final = 64
_PRODUCE_NAMES_MAX: Final = 12  # from 13 on topics are named by id


@dataclass(slots=True)
class Wanted:
    """What the recording needs of the target.

    Attributes:
        leaders: by topic and partition, which recorded broker they were asked of; -1: not known.
        fetched: by topic and partition, the largest number of bytes that a Fetch brought.
        brokers: the recorded ones.
    """

    leaders: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    fetched: dict[tuple[str, int], int] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)


def wanted(requests: Iterable[Recorded]) -> Wanted:
    """Look through a recording."""
    found = Wanted()
    for row in requests:
        if row.broker >= 0:
            found.brokers.add(row.broker)
        for part in row.partitions:
            if part.partition < 0:
                continue
            found.leaders[part.topic][part.partition] = row.broker
            if row.api_key == FETCH:
                key = (part.topic, part.partition)
                found.fetched[key] = max(found.fetched.get(key, 0), part.bytes)
    return found


@dataclass(slots=True)
class Placement:
    """Recorded brokers and partitions -> the target's.

    Attributes:
        brokers: recorded broker -> the target's address; -1 for any.
        nodes: recorded broker -> the target's id.
        topics: what the target has.
        offsets: where its partitions begin.
        ranges: versions by API that it takes.
        produce_version: the one that is sent.
    """

    brokers: dict[int, Broker]
    nodes: dict[int, int]
    topics: dict[str, Topic]
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    produce_version: int = messages.VERSIONS[PRODUCE]
    _known: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def partition(self, topic: str, partition: int, broker: int) -> int:
        """The target's partition for a recorded one that was asked of `broker`; -1: it leads none of that topic."""
        key = (topic, partition, broker)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._choose(*key)
        return known

    def led(self, topic: str, broker: int) -> list[int]:
        """The target's partitions of a topic that are led in the place of a recorded broker."""
        there = self.topics.get(topic)
        node = self.nodes.get(broker, -1)
        if there is None:
            return []
        return sorted(index for index, leader in there.leaders.items() if leader == node)

    def _choose(self, topic: str, partition: int, broker: int) -> int:
        led = self.led(topic, broker)
        if partition in led:
            return partition
        return led[partition % len(led)] if led else -1


class Peer:
    """A connection that asks one thing at a time."""

    def __init__(self, address: Broker) -> None:
        self.address = address
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, api_key: int, body: bytes, version: int = -1) -> bytes:
        """Send a request and give its answer.

        Raises:
            TargetError: it did not come.
        """
        version = messages.VERSIONS[api_key] if version < 0 else version
        where = f"{self.address.host}:{self.address.port}"
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                if self._reader is None or self._writer is None:
                    self._reader, self._writer = await asyncio.open_connection(*self.address)
                self._writer.write(messages.request(api_key, version, 1, CLIENT_ID, body))
                prefix = await self._reader.readexactly(4)
                length = int.from_bytes(prefix, "big", signed=True)
                if not 4 <= length <= _ANSWER_BYTES_MAX:
                    raise TargetError(f"{where}: speaks no Kafka, or expects TLS")
                return prefix + await self._reader.readexactly(length)
        except TimeoutError as error:
            raise TargetError(
                f"{where}: no answer to {API_NAMES[api_key]} within {_SECONDS_MAX:g} s"
            ) from error
        except asyncio.IncompleteReadError as error:
            raise TargetError(
                f"{where}: closed the connection at {API_NAMES[api_key]} version {version}: it refuses it, or "
                "expects TLS or SASL, which a replay does not speak"
            ) from error
        except OSError as error:
            raise TargetError(f"{where}: can not be reached: {error.strerror or error}") from error

    async def close(self) -> None:
        """End it."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
                await self._writer.wait_closed()


async def prepare(
    address: Broker, need: Wanted, *, create: bool, replicas: int, say: Callable[[str], None]
) -> Placement:
    """Look at the target, and make what is missing.

    Raises:
        TargetError: it can not be reached, refuses an API, or lacks topics.
    """
    first = Peer(address)
    try:
        offered = answers.ranges(await first.ask(API_VERSIONS, messages.api_versions()))
        produce_version = _versions(address, offered)
        names = sorted(need.leaders)
        brokers, topics = answers.read_metadata(await first.ask(METADATA, messages.metadata(names)))
        if not brokers:
            raise TargetError(f"{address.host}:{address.port}: names no brokers")
        nodes = dict(zip(sorted(need.brokers), _round(sorted(brokers)), strict=False))
        missing = [name for name in names if name not in topics or topics[name].error]
        if missing and not create:
            shown = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
            raise TargetError(f"the target lacks {len(missing)} topics ({shown}); --create makes them")
        for name in missing:
            await _create(first, name, need.leaders[name], nodes, sorted(brokers), replicas)
        if missing:
            say(f"{len(missing)} topics created")
            topics = await _led(first, names)
        any_broker = nodes | {-1: next(iter(sorted(brokers)))}
        placement = Placement({old: brokers[new] for old, new in any_broker.items()}, any_broker, topics)
        placement.produce_version, placement.ranges = produce_version, offered
        placement.brokers[-1] = address
        await _fill_and_locate(placement, need, set(missing), brokers, say)
        return placement
    except WireError as error:
        raise TargetError(f"{address.host}:{address.port}: answers what no broker does: {error}") from error
    finally:
        await first.close()


def _versions(address: Broker, offered: Mapping[int, tuple[int, int]]) -> int:
    """See that the target speaks what is sent; the version of Produce to send."""
    for api_key, version in messages.VERSIONS.items():
        low, high = offered.get(api_key, (0, -1))
        if api_key == PRODUCE:
            low = min(low, version)
        if not low <= version <= high:
            has = f"it has {low} to {high}" if high >= 0 else "it has none"
            raise TargetError(
                f"{address.host}:{address.port}: refuses {API_NAMES[api_key]} version {version}; {has}"
            )
    return min(offered[PRODUCE][1], _PRODUCE_NAMES_MAX)


def _round(nodes: list[int]) -> Iterable[int]:
    while True:
        yield from nodes


async def _create(
    peer: Peer,
    name: str,
    leaders: Mapping[int, int],
    nodes: Mapping[int, int],
    brokers: list[int],
    replicas: int,
) -> None:
    rows = []
    for partition in range(max(leaders) + 1):
        leader = nodes.get(leaders.get(partition, -1), brokers[partition % len(brokers)])
        at = brokers.index(leader)
        rows.append([brokers[(at + step) % len(brokers)] for step in range(min(replicas, len(brokers)))])
    error, message = answers.read_created(await peer.ask(CREATE_TOPICS, messages.create_topic(name, rows)))
    if error not in (answers.NONE, _EXISTS):
        raise TargetError(f"topic {name}: can not be created: error {error}: {message}")


async def _led(peer: Peer, names: list[str]) -> dict[str, Topic]:
    """Topics, once somebody leads every partition of them."""
    until = time.monotonic() + _LEADER_SECONDS_MAX
    while True:
        _, topics = answers.read_metadata(await peer.ask(METADATA, messages.metadata(names)))
        if all(name in topics and not topics[name].error for name in names) and all(
            leader >= 0 for topic in topics.values() for leader in topic.leaders.values()
        ):
            return topics
        if time.monotonic() > until:
            raise TargetError(f"topics have no leaders after {_LEADER_SECONDS_MAX:g} s")
        await asyncio.sleep(0.2)


async def _fill_and_locate(
    placement: Placement,
    need: Wanted,
    new: set[str],
    brokers: Mapping[int, Broker],
    say: Callable[[str], None],
) -> None:
    """Fill new partitions, and learn where all begin that are fetched from."""
    peers = {node: Peer(broker) for node, broker in brokers.items()}
    filled = 0
    try:
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic, recorded), size in sorted(need.fetched.items()):
            partition = placement.partition(topic, recorded, need.leaders[topic][recorded])
            if partition < 0:
                continue
            leader = placement.topics[topic].leaders[partition]
            by_leader[leader][topic].append(partition)
            if topic in new:
                await _fill(peers[leader], topic, partition, min(size, FILL_BYTES_MAX))
                filled += 1
        if filled:
            say(f"{filled} partitions filled")
        for leader, topics in by_leader.items():
            for topic, partitions in topics.items():
                found = answers.offset_of(
                    await peers[leader].ask(
                        LIST_OFFSETS, messages.list_offsets(topic, sorted(set(partitions)))
                    )
                )
                for partition, (error, offset) in found.items():
                    placement.offsets[topic, partition] = 0 if error else max(offset, 0)
    finally:
        for peer in peers.values():
            await peer.close()


async def _fill(peer: Peer, topic: str, partition: int, size: int) -> None:
    each = max(1024, size // _FILL_BATCHES)
    now_ms = int(time.time() * 1000)
    for _ in range(-(-size // each)):
        body = messages.produce(-1, [(topic, [(partition, batch(each, 1, now_ms))])])
        frame = await peer.ask(PRODUCE, body)
        error, throttle_ms = answers.outcome(frame, PRODUCE, messages.VERSIONS[PRODUCE])
        if error:
            raise TargetError(f"topic {topic}: can not be filled: error {error}")
        await asyncio.sleep(throttle_ms / 1000)
