"""Reads the cluster's state and submits changes for the executor, on Sluice's own connection.

One connection, one request at a time. It leads to the brokers directly, never through Sluice, so that it reads the
real reassignments and not those that clients see. ListPartitionReassignments comes from the controller; the rest from
a broker's metadata, which may lag behind: `reconcile` tolerates that.

A submission without a response may or may not have been executed. It is never submitted again; its result is read.

Permissions: Describe and Alter on the cluster, Describe and DescribeConfigs on topics (docs/how-to/reassignments.md).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from kafka_client import ASKING_FAILS, Connection, Request, metadata
from kafka_client.metadata import TopicPartitions
from kafka_client.request import chunks
from protocol.api import ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS
from protocol.errors import WireError
from protocol.messages.reassignments import Ongoing, Outcome, Target
from proxy.control.cluster import BrokerClient
from proxy.control.cluster.client import Target as Address
from proxy.control.cluster.client import first_response
from proxy.system.errors import reason
from proxy.system.threads import parse_response
from quotas.reassignment.step import PartitionState, TopicPartition

MIN_ISR: Final = "min.insync.replicas"
_MIN_ISR_SECONDS: Final = 15.0  # how long a topic's config is kept
_RESPONSE_SECONDS_MAX: Final = 15.0  # longer than _TIMEOUT_MS, the broker's limit for a change
_READ_SECONDS_MAX: Final = 6.0  # a caller waits for it, and then for the next broker
_CONNECT_SECONDS_MAX: Final = 3.0
# How long it is known whether a broker is cordoned; for how long each is asked, and how many at a time.
CORDONED_SECONDS: Final = 5.0
_CORDONED_SECONDS_MAX: Final = 3.0
_ASKED_AT_A_TIME: Final = 16
# For this time, brokers that do not list fenced brokers are not asked again.
FENCED_SECONDS: Final = 300.0
_TIMEOUT_MS: Final = 10_000
_UNKNOWN_TOPIC: Final = 3
_NO_TOPIC: Final = frozenset((_UNKNOWN_TOPIC, 17))  # also for an invalid name
# Without a response these may have been executed, so they are not repeated.
_CHANGES: Final = frozenset((ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS))

T = TypeVar("T")


class ClusterError(Exception):
    """The brokers cannot be reached, or refuse a request, as for a missing permission."""


class WithdrawnError(Exception):
    """A change was not sent to the cluster, since this process no longer executes reassignments."""


class ClusterState(NamedTuple):
    """The state of some topics and of the brokers in the cluster, at one time.

    Attributes:
        live: the ids of the brokers that are alive.
        registered: the ids of all known brokers: live ones, those with replicas, and if asked for, registered ones.
        partitions: the state of every partition of the topics.
        topic_ids: by name, the ids of those of the topics that exist, in hex.
        ongoing: the reassignments under way in the whole cluster, as Kafka lists them.
        cordoned: the ids of those of the asked brokers whose log directories are all cordoned.
    """

    live: frozenset[int]
    registered: frozenset[int]
    partitions: Mapping[TopicPartition, PartitionState]
    topic_ids: Mapping[str, str]
    ongoing: Mapping[TopicPartition, Ongoing]
    cordoned: frozenset[int] = frozenset()


class Cluster:
    """Reads the state of partitions from the cluster, and submits reassignments and elections to it.

    Args:
        client: connects to the brokers.
    """

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._brokers = client.brokers
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._min_isr: dict[str, tuple[float, int]] = {}
        self._registered_retry_at = 0.0
        # Until when it is taken as known; None of a broker that has never said it.
        self._cordoned: dict[int, tuple[float, bool | None]] = {}
        self._next_target = 0

    async def read_state(
        self, topics: Sequence[str], targets: Collection[int] = (), *, registered: bool = False
    ) -> ClusterState:
        """Read the state of these topics.

        Args:
            targets: brokers that are to get replicas; they are asked whether they are cordoned, as are those that have
                replicas. None are asked without targets.
            registered: whether to ask also for registered brokers, to tell dead brokers from ids that do not exist.

        Raises:
            ClusterError: no broker responds, or Sluice lacks a permission.
        """
        live: frozenset[int] = frozenset()
        found: dict[str, TopicPartitions] = {}
        names = sorted(set(topics))
        for chunk in list(chunks(names)) or [[]]:
            seen = await self._read(metadata.partitions(chunk))
            live |= seen.live
            found.update(seen.topics)
        there = {name: topic for name, topic in found.items() if not topic.error_code}
        for name, topic in found.items():
            if topic.error_code and topic.error_code not in _NO_TOPIC:
                raise ClusterError(f"Metadata of topic {name}: error {topic.error_code}")
        min_isr = await self._min_isrs(sorted(there))
        # Last: a step that is no longer listed is complete, and the earlier responses may be older.
        ongoing = await self._ongoing()
        now = await asyncio.to_thread(_partition_states, there, ongoing, min_isr)
        known = live.union(*(one.replicas for topic in there.values() for one in topic.partitions.values()))
        if registered:
            known |= await self._registered()
        ids = {name: topic.topic_id.hex() for name, topic in there.items()}
        concerned = {*targets, *(replica for one in now.values() for replica in one.replicas)} & live
        cordoned = await self._cordoned_of(concerned) if targets else frozenset[int]()
        return ClusterState(live, known, now, ids, ongoing, cordoned)

    async def submit(
        self, targets: Mapping[TopicPartition, Target], may: Callable[[], bool]
    ) -> dict[TopicPartition, Outcome]:
        """Reassign partitions, or cancel their reassignments; returns the outcome of each.

        Args:
            targets: the new replicas by partition; None cancels the partition's reassignment.
            may: called just before the request is written; False: this process no longer executes.

        Raises:
            ClusterError: no broker has responded; the change may have been made.
            WithdrawnError: `may` returned False; the request was not sent.
        """
        response = await self._read(metadata.alter(targets, _TIMEOUT_MS), may)
        found = dict(response.partitions)
        if response.outcome.error_code:
            return {key: found.get(key, response.outcome) for key in targets}
        return {key: found.get(key, Outcome(-1, "the response does not name it")) for key in targets}

    async def elect(
        self, partitions: Sequence[TopicPartition], may: Callable[[], bool]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Elect the preferred leaders of partitions; returns the error code (0 for none) and message of each.

        Args and Raises: see `submit`.
        """
        error_code, found = await self._read(metadata.elect_preferred(partitions, _TIMEOUT_MS), may)
        return {key: found.get(key, (error_code, "")) for key in partitions}

    async def _cordoned_of(self, brokers: AbstractSet[int]) -> frozenset[int]:
        """Return which of these brokers have only cordoned log directories; one that does not say so has others."""
        now = asyncio.get_running_loop().time()
        unknown = [broker for broker in sorted(brokers) if self._cordoned.get(broker, (0.0, None))[0] <= now]
        if unknown:
            asking = asyncio.Semaphore(_ASKED_AT_A_TIME)
            await asyncio.gather(*(self._ask_cordoned(broker, asking) for broker in unknown))
        return frozenset(broker for broker in brokers if self._cordoned.get(broker, (0.0, None))[1])

    async def _ask_cordoned(self, broker: int, asking: asyncio.Semaphore) -> None:
        loop = asyncio.get_running_loop()
        _, target = self._brokers.upstream(broker)
        found = self._cordoned.get(broker, (0.0, None))[1]
        async with asking:
            try:
                if target is None:
                    raise OSError("its name is not resolved")
                async with asyncio.timeout(_CORDONED_SECONDS_MAX):
                    found = await self._client.ask(target, metadata.is_cordoned())
            except ASKING_FAILS:
                pass  # before 4.3 it closes the connection; one that has said it may be restarting
        seconds = FENCED_SECONDS if found is None else CORDONED_SECONDS
        self._cordoned[broker] = (loop.time() + seconds, found)

    async def sizes(self, brokers: Sequence[int]) -> dict[int, dict[TopicPartition, int]]:
        """Return the size in bytes of every replica by broker; brokers that do not respond are left out."""
        found = {}
        for broker in brokers:
            _, target = self._brokers.upstream(broker)
            if target is None:
                continue
            with suppress(*ASKING_FAILS):
                async with asyncio.timeout(_RESPONSE_SECONDS_MAX):
                    request = metadata.replica_sizes()
                    found[broker] = await self._client.ask(target, request)
        return found

    def close(self) -> None:
        """Close the connection to the cluster, if one is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _ongoing(self) -> dict[TopicPartition, Ongoing]:
        found = await self._read(metadata.list_ongoing())
        if found.error_code:
            message = f"error {found.error_code} {found.error_message or ''}".strip()
            raise ClusterError(f"ListPartitionReassignments: {message}")
        return found.ongoing

    async def _min_isrs(self, topics: Sequence[str]) -> dict[str, int]:
        loop = asyncio.get_running_loop()
        old = loop.time() - _MIN_ISR_SECONDS
        wanted = [topic for topic in topics if self._min_isr.get(topic, (old - 1, 0))[0] < old]
        for chunk in chunks(wanted):
            for described in await self._read(metadata.describe_topics(chunk, (MIN_ISR,))):
                if described.error_code not in (0, _UNKNOWN_TOPIC):
                    # Without it the minimum number of in-sync replicas is unknown.
                    raise ClusterError(
                        f"DescribeConfigs of topic {described.name}: error {described.error_code}"
                    )
                value = described.configs.get(MIN_ISR, "")
                self._min_isr[described.name] = (loop.time(), int(value) if value.isdecimal() else 1)
        for topic in self._min_isr.keys() - set(topics):
            del self._min_isr[topic]
        return {topic: self._min_isr[topic][1] for topic in topics if topic in self._min_isr}

    async def _registered(self) -> frozenset[int]:
        """Return the ids of registered brokers.

        Brokers before 4.0 close the connection on this request; then only live brokers are known.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._registered_retry_at:
            return frozenset()
        try:
            error_code, brokers = await self._read(metadata.registered_brokers())
        except ClusterError:
            await self._ongoing()  # raises if the request was not the cause
            error_code, brokers = 1, frozenset[int]()
        if error_code:  # only for a while: brokers may be restarting, or be replaced by later versions
            self._registered_retry_at = loop.time() + FENCED_SECONDS
        return brokers

    async def _read(self, request: Request[T], may: Callable[[], bool] | None = None) -> T:
        """Send a request, and parse the response in a thread: thousands of partitions would block the loop."""
        try:
            frame = await self._ask(request, may)
        except ClusterError:
            if request.api_key in _CHANGES:
                raise
            frame = await self._ask(request)  # from the next broker
        try:
            return await parse_response(request.read, frame)
        except WireError as error:
            raise ClusterError(f"a response that cannot be read: {error}") from error

    async def _ask(self, request: Request[T], may: Callable[[], bool] | None = None) -> bytes:
        seconds = _RESPONSE_SECONDS_MAX if request.api_key in _CHANGES else _READ_SECONDS_MAX
        async with self._lock:
            try:
                if self._connection is not None and self._connection.closed:
                    self.close()  # usually the broker has closed it as idle (connections.max.idle.ms)
                if self._connection is None:
                    self._connection = await self._connect()
                async with asyncio.timeout(seconds):
                    if may is not None and not may():  # nothing is waited for from here to the write
                        raise WithdrawnError
                    return await self._connection.send(request)
            except WithdrawnError:
                raise
            except BaseException as error:
                self.close()
                self._next_target += 1
                if isinstance(error, ASKING_FAILS):
                    raise ClusterError(reason(error, seconds)) from error
                raise

    async def _connect(self) -> Connection:
        """Connect to the next reachable broker; a dead one must not be the first each time."""
        targets = self._brokers.targets()
        turn = self._next_target % len(targets) if targets else 0

        async def reach(target: Address) -> Connection:
            self._next_target = targets.index(target)
            async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                return await self._client.connect(target)

        return await first_response(targets[turn:] + targets[:turn], reach, _CONNECT_SECONDS_MAX)


def _partition_states(
    topics: Mapping[str, TopicPartitions],
    ongoing: Mapping[TopicPartition, Ongoing],
    min_isr: Mapping[str, int],
) -> dict[TopicPartition, PartitionState]:
    """Combine the responses to the state of each partition."""
    now = {}
    for name, topic in topics.items():
        for index, one in topic.partitions.items():
            move = ongoing.get((name, index))
            now[name, index] = PartitionState(
                replicas=one.replicas if move is None else move.replicas,
                isr=one.isr,
                leader=one.leader,
                adding=() if move is None else move.adding,
                removing=() if move is None else move.removing,
                min_isr=min_isr.get(name, 1),
            )
    return now


# The sizes of moved replicas: for the status, never for a decision (KIP-435). Pure.
#
# A partition's size is that of the largest replica seen during its move. The leader's current replica is no substitute:
# during a move the leader may be a new replica that was read before it was complete, or may be missing, and retention
# shortens logs. The status's totals would then fall while bytes are moved.


class Sizes(NamedTuple):
    """The sizes of replicas in bytes, as last read from the brokers.

    Args:
        by_broker: by broker, the size of each of its replicas.
        largest: for each moved partition, the largest size of any replica since its move began.
    """

    by_broker: Mapping[int, Mapping[TopicPartition, int]] = {}
    largest: Mapping[TopicPartition, int] = {}

    def updated(
        self, found: Mapping[int, Mapping[TopicPartition, int]], moved: Collection[TopicPartition]
    ) -> "Sizes":
        """Return the sizes after they were read again.

        Args:
            found: the sizes by broker and partition, as now read.
            moved: the partitions that are moved; others are removed from `largest`.
        """
        largest = {
            key: max(self.largest.get(key, 0), *(sizes.get(key, 0) for sizes in found.values()), 0)
            for key in moved
        }
        return Sizes(found, largest)

    def partition(self, key: TopicPartition) -> int:
        """Return the estimated size of a complete replica of a moved partition, in bytes; 0 if unknown."""
        return self.largest.get(key, 0)

    def replica(self, broker: int, key: TopicPartition) -> int:
        """Return the size of a partition's replica at a broker, in bytes; 0 if unknown."""
        return self.by_broker.get(broker, {}).get(key, 0)
