"""Prepares the target of a replay: reads its topics, creates missing ones, and reads the partitions' first offsets.

Missing topics are created on request (`create`), with the recorded leaders, and filled, so that a Fetch finds as many
bytes as its recorded response had. A broker returns the first batch as a whole and beyond it exactly as many bytes as
requested, so the first batch is as small as possible. Existing topics are not changed.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from kafka_client import ClosedError, Connection, Request, metadata, topics
from kafka_client.request import chunks
from offline.errors import TargetError
from offline.replay import messages
from offline.replay.messages import BATCH_BYTES_MIN, Broker, Topic, batch
from offline.replay.target import Placement, Requirements
from protocol.api import API_NAMES, METADATA, PRODUCE
from protocol.errors import WireError

T = TypeVar("T")
_CLIENT_ID: Final = b"sluice-replay"
_SECONDS_MAX: Final = 10.0
LEADER_SECONDS_MAX: Final = 20.0
AGAIN_SECONDS: Final = 0.2
_EXISTS: Final = 36
# Of a broker that has not heard yet of a topic, or of being its leader.
_PASSING: Final = frozenset((3, 5, 6))
# A partition is filled with as much as its largest Fetch brought, and no more than this.
FILL_BYTES_MAX: Final = 16 * 1024 * 1024
_FILL_BATCHES: Final = 64
_PRODUCED_BYTES_MAX: Final = 1024 * 1024
_PRODUCE_NAMES_MAX: Final = 12  # from 13 on topics are named by id


async def prepare(
    address: Broker, need: Requirements, *, create: bool, replicas: int, say: Callable[[str], None]
) -> Placement:
    """Find the target's brokers, topics and offsets for a replay.

    Args:
        address: the target, a broker or a proxy.
        need: the brokers and partitions of the recording.
        create: whether missing topics are created, and filled with the bytes that the recorded Fetches need.
        replicas: the replication factor of created topics.
        say: called with messages for the operator.

    Raises:
        TargetError: the target cannot be reached, refuses an API, or lacks topics.
    """
    first = Peer(address)
    try:
        offered = await first.ask(topics.version_ranges(_CLIENT_ID.decode()))
        produce_version = agreed_produce_version(address, offered)
        names = sorted(need.leaders)
        brokers, there = await _read_target(first, names)
        if not brokers:
            raise TargetError(f"{address.host}:{address.port}: its metadata has no brokers")
        nodes = stand_ins(need.brokers, brokers, address)
        missing = [name for name in names if name not in there or there[name].error]
        if missing and not create:
            shown = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
            raise TargetError(f"the target lacks {len(missing)} topics ({shown}); --create makes them")
        for name in missing:
            await _create(first, name, need.leaders[name], nodes, sorted(brokers), replicas)
        if missing:
            say(f"{len(missing)} topics created")
            there = await _wait_for_leaders(first, names)
        placement = Placement({old: brokers[new] for old, new in nodes.items()}, nodes, there)
        placement.produce_version, placement.ranges = produce_version, offered
        await _fill_and_locate(placement, need, set(missing), brokers, say)
        return placement
    except WireError as error:
        raise TargetError(f"{address.host}:{address.port}: responds unlike a broker: {error}") from error
    finally:
        first.close()


class Peer:
    """A connection to one broker of the target, for one request at a time."""

    def __init__(self, address: Broker) -> None:
        self.address = address
        self._connection: Connection | None = None

    async def ask(self, request: Request[T]) -> T:
        """Send a request and return its parsed response.

        Raises:
            TargetError: there is no response.
            WireError: the response cannot be read.
        """
        api_key, version = request.api_key, request.version
        where = f"{self.address.host}:{self.address.port}"
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                if self._connection is None:
                    self._connection = await Connection.open(*self.address, client_id=_CLIENT_ID)
                frame = await self._connection.send(request)
        except TimeoutError as error:
            raise TargetError(
                f"{where}: no response to {API_NAMES[api_key]} within {_SECONDS_MAX:g} s"
            ) from error
        except ClosedError as error:
            raise TargetError(
                f"{where}: closed the connection at {API_NAMES[api_key]} version {version}: it refuses it, or "
                "expects TLS or SASL, which a replay does not speak"
            ) from error
        except WireError as error:
            raise TargetError(f"{where}: does not speak Kafka, or expects TLS") from error
        except OSError as error:
            problem = f"cannot be reached: {error.strerror}" if error.errno else str(error)
            raise TargetError(f"{where}: {problem}") from error
        return request.read(frame)

    def close(self) -> None:
        """Close the connection to the broker, if it is open; no `ask` may follow."""
        if self._connection is not None:
            self._connection.close()


def agreed_produce_version(address: Broker, offered: Mapping[int, tuple[int, int]]) -> int:
    """Return the version of Produce to send to the target.

    Raises:
        TargetError: the target does not support a version that the replay sends.
    """
    for api_key, version in (messages.VERSIONS | topics.VERSIONS).items():
        low, high = offered.get(api_key, (0, -1))
        if api_key == PRODUCE:
            low = min(low, version)
        if not low <= version <= high:
            has = f"it has {low} to {high}" if high >= 0 else "it has none"
            raise TargetError(
                f"{address.host}:{address.port}: refuses {API_NAMES[api_key]} version {version}; {has}"
            )
    return min(offered[PRODUCE][1], _PRODUCE_NAMES_MAX)


def stand_ins(recorded: Iterable[int], brokers: Mapping[int, Broker], address: Broker) -> dict[int, int]:
    """Return, by id of a recorded broker, the id of the target's broker that stands in for it.

    It is the broker with the same id, else one that is not used yet, else any one in turn. For -1, an unknown recorded
    broker, it is the broker at `address`, else the first one.
    """
    there = sorted(brokers)
    found = {node: node for node in recorded if node in brokers}
    others = sorted(set(recorded) - set(found))
    free = [node for node in there if node not in found]
    for place, node in enumerate(others):
        found[node] = free[place] if place < len(free) else there[(place - len(free)) % len(there)]
    found[-1] = next((node for node in there if brokers[node] == address), there[0])
    return found


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
        leader = nodes[leaders[partition]] if partition in leaders else brokers[partition % len(brokers)]
        at = brokers.index(leader)
        rows.append([brokers[(at + step) % len(brokers)] for step in range(min(replicas, len(brokers)))])
    error, message = await peer.ask(topics.create_placed(name, rows))
    if error not in (messages.NONE, _EXISTS):
        raise TargetError(f"topic {name}: cannot be created: error {error}: {message}")


async def _read_target(peer: Peer, names: list[str]) -> tuple[dict[int, Broker], dict[str, Topic]]:
    """Return the target's brokers by id, and these topics with their leaders."""
    brokers: dict[int, Broker] = {}
    there: dict[str, Topic] = {}
    for chunk in list(chunks(names)) or [[]]:
        seen = await peer.ask(metadata.partitions(chunk, messages.VERSIONS[METADATA]))
        brokers |= {broker: Broker(host, port) for broker, host, port in seen.brokers}
        there |= {
            name: Topic(topic.error_code, {index: one.leader for index, one in topic.partitions.items()})
            for name, topic in seen.topics.items()
        }
    return brokers, there


async def _wait_for_leaders(peer: Peer, names: list[str]) -> dict[str, Topic]:
    """Wait until every partition of these topics has a leader; return the topics."""
    until = time.monotonic() + LEADER_SECONDS_MAX
    while True:
        _, there = await _read_target(peer, names)
        if all(name in there and not there[name].error for name in names) and all(
            leader >= 0 for topic in there.values() for leader in topic.leaders.values()
        ):
            return there
        if time.monotonic() > until:
            raise TargetError(f"topics have no leaders after {LEADER_SECONDS_MAX:g} s")
        await asyncio.sleep(AGAIN_SECONDS)


async def _fill_and_locate(
    placement: Placement,
    need: Requirements,
    new: set[str],
    brokers: Mapping[int, Broker],
    say: Callable[[str], None],
) -> None:
    """Fill new partitions, and read the first offsets of all that are fetched."""
    sizes: dict[tuple[str, int], int] = defaultdict(int)
    for (topic, recorded, broker), size in need.fetched.items():
        partition = placement.partition(topic, recorded, broker)
        if partition >= 0:
            sizes[topic, partition] += size
    peers = {node: Peer(broker) for node, broker in brokers.items()}
    try:
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic, partition), size in sorted(sizes.items()):
            leader = placement.topics[topic].leaders[partition]
            by_leader[leader][topic].append(partition)
            if topic in new:
                await fill(peers[leader], topic, partition, min(size, FILL_BYTES_MAX))
        filled = sum(topic in new for topic, _ in sizes)
        if filled:
            say(f"{filled} partitions filled")
        for leader, its in by_leader.items():
            for topic, partitions in its.items():
                for partition, offset in (await locate(peers[leader], topic, partitions)).items():
                    placement.offsets[topic, partition] = offset
    finally:
        for peer in peers.values():
            peer.close()


async def _ask_until_settled(peer: Peer, request: Request[T], is_transient: Callable[[T], bool]) -> T:
    """Repeat a request while its error is transient, for a limited time; return the last response."""
    until = time.monotonic() + LEADER_SECONDS_MAX
    while True:
        found = await peer.ask(request)
        if not is_transient(found) or time.monotonic() > until:
            return found
        await asyncio.sleep(AGAIN_SECONDS)


async def locate(peer: Peer, topic: str, partitions: list[int]) -> dict[int, int]:
    """Return the first offset of each of these partitions, which `peer` leads.

    Raises:
        TargetError: the leader responds with an error that does not pass by itself.
    """

    def is_transient(found: Mapping[int, tuple[int, int]]) -> bool:
        return any(error in _PASSING for error, _ in found.values())

    found = await _ask_until_settled(peer, topics.first_offsets(topic, partitions), is_transient)
    for partition in partitions:
        error, _ = found.get(partition, (-1, 0))
        if error:
            raise TargetError(
                f"topic {topic}: the first offset of partition {partition} cannot be read: error {error}"
            )
    return {partition: max(offset, 0) for partition, (_, offset) in found.items()}


async def fill(peer: Peer, topic: str, partition: int, size: int) -> None:
    """Write `size` bytes or a little more to a partition: a batch of one record, then batches of equal size.

    Raises:
        TargetError: the leader responds with an error that does not pass by itself.
    """
    version = messages.VERSIONS[PRODUCE]
    read = partial(messages.outcome, api_key=PRODUCE, version=version)
    now_ms = int(time.time() * 1000)
    for each in _batches(size):
        body = messages.produce(-1, [(topic, [(partition, batch(each, 1, now_ms))])]) + b"\0"  # no tags
        request = Request(PRODUCE, version, body, read, _PRODUCED_BYTES_MAX)
        error, throttle_ms = await _ask_until_settled(peer, request, lambda found: found[0] in _PASSING)
        if error:
            raise TargetError(f"topic {topic}: cannot be filled: error {error}")
        await asyncio.sleep(throttle_ms / 1000)


def _batches(size: int) -> list[int]:
    """Return the sizes of the batches that fill a partition.

    >>> _batches(3000)
    [69, 1024, 1024, 1024]
    """
    each = max(1024, size // _FILL_BATCHES)
    return [BATCH_BYTES_MIN, *[each] * -(-(size - BATCH_BYTES_MIN) // each)]
