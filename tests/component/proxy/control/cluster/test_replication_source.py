"""What is throttled, asked of a scripted broker: configs, reassignments, names; and what holds without a response."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from proxy.config import ReplicationSettings
from proxy.control.cluster import BrokerClient, BrokerMap, ReplicationSource
from proxy.control.cluster.replication_source import FOLLOWER_REPLICAS, LEADER_REPLICAS
from proxy.system.logs import FIELDS
from proxy.system.stats import Stats
from quotas.definitions.kinds import FOLLOWER_RATE, LEADER_RATE
from quotas.replication.replication_quotas import ReplicationOptions, ReplicationQuotas
from tests.support.loop_broker import listening
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, decoded, framed
from tests.unit.protocol.kafka_frames import struct as entry

TOPIC = bytes(range(16))
METADATA, DESCRIBE_CONFIGS, REASSIGNMENTS = 3, 32, 46


@dataclass
class Broker:
    """What a broker responds.

    Attributes:
        configs: resource -> its configs.
        adding: of partition 0 of topic `t`.
        asked: the names asked about, in order.
    """

    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    adding: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    silent: bool = False
    knows_topics: bool = True

    def respond(self, frame: bytes) -> bytes | None:
        if self.silent:
            return None
        api_key = int.from_bytes(frame[4:6])
        if api_key == METADATA:
            return self._metadata(decoded(REQUESTS[3], 12, frame))
        if api_key == DESCRIBE_CONFIGS:
            return self._configs(decoded(REQUESTS[DESCRIBE_CONFIGS], 1, frame))
        kind = RESPONSES[REASSIGNMENTS]
        of = {"partition_index": 0, "replicas": [1, *self.adding], "adding_replicas": self.adding}
        partition = entry(kind, 0, "OngoingPartitionReassignment", removing_replicas=[], **of)
        topic = entry(kind, 0, "OngoingTopicReassignment", name="t", partitions=[partition])
        return framed(kind(version=0, error_code=0, topics=[topic] if self.adding else []), correlation_id=1)

    def _metadata(self, request: Any) -> bytes:
        self.asked.append("names")
        kind = RESPONSES[3]
        said = {"error_code": 0, "name": "t"} if self.knows_topics else {"error_code": 100, "name": None}
        topics = [
            entry(kind, 12, "MetadataResponseTopic", topic_id=topic.topic_id, partitions=[], **said)
            for topic in request.topics
        ]
        return framed(kind(version=12, brokers=[], topics=topics), correlation_id=1)

    def _configs(self, request: Any) -> bytes:
        kind = RESPONSES[DESCRIBE_CONFIGS]
        rest = {"read_only": False, "config_source": 1, "is_sensitive": False, "synonyms": []}
        results = []
        for resource in request.resources:
            name, known = resource.resource_name, self.knows_topics or resource.resource_type != 2
            self.asked.append(name)
            configs = [
                entry(kind, 1, "DescribeConfigsResourceResult", name=key, value=value, **rest)
                for key, value in (self.configs.get(name, {}) if known else {}).items()
            ]
            of = {"resource_type": resource.resource_type, "resource_name": name, "configs": configs}
            results.append(entry(kind, 1, "DescribeConfigsResult", error_code=0 if known else 3, **of))
        return framed(kind(version=1, results=results), correlation_id=1)


@dataclass
class World:
    """A source and whom it asks."""

    broker: Broker
    writers: list[asyncio.StreamWriter]
    brokers: BrokerMap
    quotas: ReplicationQuotas
    source: ReplicationSource
    changes: list[int]


@asynccontextmanager
async def world(settings: ReplicationSettings | None = None) -> AsyncIterator[World]:
    settings = settings or ReplicationSettings()
    broker = Broker()
    async with listening(broker.respond) as found:
        brokers = BrokerMap((found.address,), Stats())
        brokers.learn(1, *found.address)
        brokers.set_live([1])
        quotas = ReplicationQuotas(ReplicationOptions())
        changes: list[int] = []
        source = ReplicationSource(
            BrokerClient(brokers), quotas, settings, lambda: changes.append(1), lambda: 77
        )
        source.configure(settings)
        yield World(broker, found.writers, brokers, quotas, source, changes)
        task = asyncio.create_task(source.run())  # closes its connections when it is cancelled
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_rates_and_lists_of_the_cluster_are_taken() -> None:
    async with world() as found:
        found.quotas.unknown_topics.add(TOPIC)
        await found.source.poll()
        assert found.broker.asked == ["names", "1"], "there is no rate, so topics are not asked about"
        found.broker.asked.clear()
        found.changes.clear()
        found.broker.configs = {
            "1": {LEADER_RATE: "4000000", FOLLOWER_RATE: "9223372036854775807"},
            "t": {LEADER_REPLICAS: "0:1,nonsense", FOLLOWER_REPLICAS: "*"},
        }
        await found.source.poll()
        quotas = found.quotas
        assert quotas.leader_limits.limit(1) == 4_000_000
        assert quotas.follower_limits.limit(1) is None
        assert quotas.topic_names == {TOPIC: "t"}
        assert quotas.lists.leaders["t"].holds(0, 1)
        assert quotas.lists.followers["t"].every
        assert quotas.last_completed_poll == quotas.polls_started == 2
        assert found.changes == [1]
        await found.source.poll()
        assert found.changes == [1], "nothing has changed"
        assert found.broker.asked == ["1", "t", "1", "t"]


async def test_brokers_that_are_not_there_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as found:
        found.quotas.name_topics({TOPIC: "t"})
        found.broker.configs = {"1": {LEADER_RATE: "1000"}, "t": {LEADER_REPLICAS: "0:1,1:99,2:98"}}
        await found.source.poll()
        assert found.quotas.lists.leaders["t"].holds(0, 1), "the rest of the list holds"
    (said,) = [record for record in caplog.records if "do not exist" in record.getMessage()]
    assert said.__dict__[FIELDS] == {"brokers": "98,99", "count": 2}


async def test_throttle_stays_when_no_broker_responds() -> None:
    async with world() as found:
        found.quotas.name_topics({TOPIC: "t"})
        found.broker.configs = {"1": {LEADER_RATE: "1000"}, "t": {LEADER_REPLICAS: "*"}}
        await found.source.poll()
        found.broker.silent = True
        await found.source.poll()
        assert found.source.problem
        assert found.quotas.failed_polls == 1
        assert found.quotas.leader_limits.limit(1) == 1000
        assert found.quotas.lists.leaders["t"].every
        assert found.quotas.last_completed_poll is None, "no replica waits for a response that may not come"
        found.broker.silent = False
        await found.source.poll()
        assert not found.source.problem


async def test_two_brokers_at_one_address_are_asked_at_once() -> None:
    """A broker that came back with another id, or two behind one name."""
    async with world() as found:
        found.broker.configs = {"1": {LEADER_RATE: "1000"}, "2": {LEADER_RATE: "2000"}}
        found.brokers.learn(2, *found.brokers.addresses()[1])
        found.brokers.set_live([1, 2])
        for _ in range(3):
            await found.source.poll()
            assert not found.source.problem
        assert found.quotas.leader_limits.of_broker == {1: 1000, 2: 2000}


def test_connection_that_was_reset_while_idle_is_made_anew() -> None:
    """On the loop that Sluice runs on: uvloop raises RuntimeError from writes on a connection that is gone."""

    async def polled() -> None:
        async with world() as found:
            found.broker.configs = {"1": {LEADER_RATE: "1000"}}
            await found.source.poll()
            linger = struct.pack("ii", 1, 0)
            found.writers[0].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            found.writers[0].transport.abort()
            await asyncio.sleep(0.05)
            await found.source.poll()
            assert found.source.problem
            await found.source.poll()
            assert not found.source.problem
            assert found.quotas.leader_limits.limit(1) == 1000

    uvloop.run(polled())


async def test_throttle_stays_while_a_broker_does_not_know_the_topic() -> None:
    """One that has just been started, or that does not show the topic any more."""
    async with world() as found:
        found.quotas.name_topics({TOPIC: "t"})
        found.broker.configs = {"1": {LEADER_RATE: "1000"}, "t": {LEADER_REPLICAS: "*"}}
        await found.source.poll()
        found.broker.knows_topics = False
        await found.source.poll()
        assert found.quotas.lists.leaders["t"].every
        found.broker.knows_topics = True
        found.broker.configs["t"] = {}
        await found.source.poll()
        assert not found.quotas.lists.leaders


async def test_name_is_asked_for_a_minute_however_often_that_is() -> None:
    """Where followers wait for news, questions follow each other by 20 ms."""
    async with world(ReplicationSettings(throttled="file")) as found:
        found.broker.knows_topics = False
        found.quotas.unknown_topics.add(TOPIC)
        for _ in range(70):
            await found.source.poll()
        found.broker.knows_topics = True
        await found.source.poll()
        assert found.quotas.topic_names == {TOPIC: "t"}


async def test_replicas_being_added_are_taken_and_own_rates_hold_at_once() -> None:
    settings = ReplicationSettings(throttled="reassignments", leader_rate=5, follower_rate=6)
    async with world(settings) as found:
        found.broker.adding = [3, 4]
        await found.source.poll()
        assert found.quotas.lists.adding == {("t", 0): frozenset({3, 4})}
        assert found.quotas.leader_limits.limit(9) == 5
        assert found.quotas.follower_limits.limit(9) == 6
        found.broker.silent = True
        found.source.configure(ReplicationSettings(throttled="reassignments", leader_rate=2))
        await found.source.poll()
        assert found.quotas.leader_limits.limit(1) == 2, "though the cluster cannot be asked"
        assert found.quotas.lists.adding == {("t", 0): frozenset({3, 4})}
        found.broker.silent, found.broker.adding = False, []
        await found.source.poll()
        assert not found.quotas.lists.adding


async def test_response_to_an_older_question_changes_nothing() -> None:
    """The settings change while the cluster is being asked."""
    settings = ReplicationSettings(throttled="file", leader_rate=5, leader_throttled_replicas={"t": "0:1"})
    async with world(ReplicationSettings(throttled="reassignments", leader_rate=7)) as found:
        found.broker.adding = [3]
        polling = asyncio.ensure_future(found.source.poll())
        await asyncio.sleep(0)  # it has asked, and there is no answer yet
        found.source.configure(settings)
        await polling
        assert found.quotas.lists.leaders["t"].holds(0, 1)
        assert not found.quotas.lists.adding
        assert found.quotas.leader_limits.limit(1) == 5


async def test_topic_that_is_met_while_the_cluster_is_asked_is_asked_for_next() -> None:
    async with world(ReplicationSettings(throttled="file", leader_rate=5)) as found:
        found.quotas.unknown_topics.add(bytes(16))
        polling = asyncio.ensure_future(found.source.poll())
        await asyncio.sleep(0)
        found.quotas.unknown_topics.add(TOPIC)
        await polling
        await found.source.poll()
        assert found.quotas.topic_names[TOPIC] == "t"


async def test_lists_of_the_file_leave_only_topic_names_to_ask_for_and_switching_off_removes_them() -> None:
    settings = ReplicationSettings(throttled="file", leader_rate=5, leader_throttled_replicas={"t": "0:1"})
    async with world(settings) as found:
        assert found.quotas.lists.leaders["t"].holds(0, 1)
        found.quotas.unknown_topics.add(TOPIC)
        await found.source.poll()
        assert found.quotas.topic_names == {TOPIC: "t"}
        assert found.broker.asked == ["names"]
        found.source.configure(ReplicationSettings(throttled="off"))
        await found.source.poll()
        assert not found.quotas.lists.leaders
        assert found.quotas.leader_limits.limit(1) is None
        assert found.quotas.last_completed_poll is None
        assert found.broker.asked == ["names"]


@pytest.mark.parametrize(("value", "limit"), [("x", None), ("-1", None), ("", None), ("0", 0)])
async def test_malformed_rate_is_no_throttle_and_zero_is_one(value: str, limit: int | None) -> None:
    async with world() as found:
        found.broker.configs = {"1": {LEADER_RATE: value}}
        await found.source.poll()
        assert found.quotas.leader_limits.limit(1) == limit


async def test_cluster_without_a_known_broker_is_a_problem() -> None:
    source = ReplicationSource(
        BrokerClient(BrokerMap((), Stats())),
        ReplicationQuotas(ReplicationOptions()),
        ReplicationSettings(),
        lambda: None,
        lambda: 0,
    )
    await source.poll()
    assert source.problem == "no broker is known yet"
