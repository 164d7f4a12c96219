"""Topics seen through raw frames: who leads what, writing batches, and Fetch requests (for tests/integration)."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka.record import MemoryRecordsBuilder

from tests.cluster import Address, Cluster
from tests.support.wire import Wire, part, request, response, wired
from tests.unit.protocol.kafka_frames import Message

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
CREATE_TOPICS: Final = 19
_LIST_OFFSETS_VERSION: Final = 5
_METADATA_VERSION: Final = 12
_FIND_VERSION: Final = 2
_CREATE_VERSION: Final = 5
_PRODUCE_VERSION: Final = 9
_NOT_CONTROLLER: Final = 41
_LEADERS_SECONDS_MAX: Final = 20.0
_COORDINATOR_SECONDS_MAX: Final = 60.0
NO_COMPRESSION: Final = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's name, its id, and the leader of each partition."""

    name: str
    topic_id: uuid.UUID
    leaders: Mapping[int, int]

    def led_by(self, broker: int) -> list[int]:
        return sorted(index for index, leader in self.leaders.items() if leader == broker)


def describe(kafka: Cluster, name: str, node: int = 1, partitions: int = 1) -> Topic:
    """Ask a broker for a topic, until it has at least so many partitions and each has a leader."""
    deadline = time.monotonic() + _LEADERS_SECONDS_MAX
    while True:
        with wired(kafka.address(node)) as wire:
            topics = [part(METADATA, _METADATA_VERSION, "MetadataRequestTopic", name=name)]
            received = wire.ask(
                request(METADATA, _METADATA_VERSION, topics=topics, allow_auto_topic_creation=False)
            )
        (found,) = response(METADATA, _METADATA_VERSION, received.frame).topics
        leaders = {entry.partition_index: entry.leader_id for entry in found.partitions}
        if len(leaders) >= partitions and all(leader >= 0 for leader in leaders.values()):
            return Topic(name, found.topic_id, leaders)
        assert time.monotonic() < deadline, f"{name} has no leaders: {leaders}"
        time.sleep(0.1)


def coordinator(wire: Wire, group: str) -> Message:
    """Ask for the coordinator of a group until there is one: the first question makes the topic of groups."""
    deadline = time.monotonic() + _COORDINATOR_SECONDS_MAX
    while True:
        received = wire.ask(request(FIND_COORDINATOR, _FIND_VERSION, key=group, key_type=0))
        found = response(FIND_COORDINATOR, _FIND_VERSION, received.frame)
        if not found.error_code:
            return found
        assert time.monotonic() < deadline, str(found)
        time.sleep(0.2)


def create(
    kafka: Cluster, name: str, *, partitions: int, replication: int, configs: Mapping[str, str]
) -> None:
    """Create a topic, and wait until every partition has a leader that every broker names."""
    topic = part(CREATE_TOPICS, _CREATE_VERSION, "CreatableTopic")
    topic.name, topic.num_partitions, topic.replication_factor = name, partitions, replication
    topic.configs = [_config(key, value) for key, value in configs.items()]
    asked = request(CREATE_TOPICS, _CREATE_VERSION, topics=[topic], timeout_ms=30_000, validate_only=False)
    # In KRaft mode every broker creates topics; elsewhere the controller does.
    error_code = _NOT_CONTROLLER
    for node in kafka.nodes:
        if error_code == _NOT_CONTROLLER:
            with wired(kafka.address(node)) as wire:
                (created,) = response(CREATE_TOPICS, _CREATE_VERSION, wire.ask(asked).frame).topics
            error_code = created.error_code
    assert error_code == 0, error_code
    described = [describe(kafka, name, node, partitions=partitions) for node in kafka.nodes]
    _wait_for_leaders(kafka, described[0])


def _wait_for_leaders(kafka: Cluster, topic: Topic) -> None:
    """Wait until each leader leads: brokers name one a moment before it does."""
    deadline = time.monotonic() + _LEADERS_SECONDS_MAX
    for partition, leader in topic.leaders.items():
        entry = part(
            LIST_OFFSETS,
            _LIST_OFFSETS_VERSION,
            "ListOffsetsPartition",
            partition_index=partition,
            timestamp=-1,
        )
        named = part(LIST_OFFSETS, _LIST_OFFSETS_VERSION, "ListOffsetsTopic", partitions=[entry])
        named.name = topic.name
        asked = request(LIST_OFFSETS, _LIST_OFFSETS_VERSION, replica_id=-1, isolation_level=0, topics=[named])
        error_code = -1
        while error_code:
            assert time.monotonic() < deadline, f"{topic.name}-{partition} is not led: error {error_code}"
            with wired(kafka.address(leader)) as wire:
                (responded,) = response(LIST_OFFSETS, _LIST_OFFSETS_VERSION, wire.ask(asked).frame).topics
            error_code = responded.partitions[0].error_code
            if error_code:
                time.sleep(0.05)


def _config(name: str, value: str) -> Message:
    config = part(CREATE_TOPICS, _CREATE_VERSION, "CreatableTopicConfig", value=value)
    config.name = name
    return config


def batch(values: Sequence[bytes], compression: int = NO_COMPRESSION) -> bytes:
    """Return one record batch."""
    builder = MemoryRecordsBuilder(2, compression, 16 * 1024 * 1024)
    # The wall clock: the brokers delete records that are older than their retention time.
    now_ms = int(time.time() * 1000)
    for value in values:
        builder.append(timestamp=now_ms, key=None, value=value, headers=[])
    builder.close()
    records: bytes = bytes(builder.buffer())
    return records


def produce_request(
    topic: Topic, partition: int, records: bytes, *, version: int = _PRODUCE_VERSION, acks: int = 1
) -> Message:
    """Return a Produce request of one batch."""
    entry = part(PRODUCE, version, "PartitionProduceData", index=partition, records=records)
    data = part(
        PRODUCE, version, "TopicProduceData", name=topic.name, topic_id=topic.topic_id, partition_data=[entry]
    )
    return request(PRODUCE, version, transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[data])


def write(address: Address, topic: Topic, partition: int, records: bytes) -> None:
    """Produce one batch directly at its leader, without an error."""
    with wired(address) as wire:
        received = wire.ask(produce_request(topic, partition, records))
    (data,) = response(PRODUCE, _PRODUCE_VERSION, received.frame).responses
    assert data.partition_responses[0].error_code == 0, str(data)


def fetch_request(
    topic: Topic,
    offsets: Mapping[int, int],
    *,
    version: int,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[int] = (),
    max_wait_ms: int = 0,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_000_000,
) -> Message:
    """Return a consumer's Fetch of these partitions from these offsets."""
    partitions = [
        part(
            FETCH,
            version,
            "FetchPartition",
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
        )
        for partition, offset in offsets.items()
    ]
    names = {"topic": topic.name, "topic_id": topic.topic_id}
    # Made only where it is needed: versions without sessions lack it.
    left_out = (
        [part(FETCH, version, "ForgottenTopic", **names, partitions=list(forgotten))] if forgotten else []
    )
    return request(
        FETCH,
        version,
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[part(FETCH, version, "FetchTopic", **names, partitions=partitions)] if offsets else [],
        forgotten_topics_data=left_out,
        rack_id="",
    )


def fetch(wire: Wire, message: Message, version: int) -> tuple[Message, float]:
    """Ask a Fetch; return the decoded response and the seconds it took."""
    received = wire.ask(message)
    return response(FETCH, version, received.frame), received.seconds
