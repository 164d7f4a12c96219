"""What the executor asks brokers, on a real socket and with responses as kafka-python encodes them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafka_client import Connection
from protocol.api import (
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_CLUSTER,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)
from protocol.messages import reassignments
from protocol.messages.reassignments import AlterResponse, Ongoing, Outcome, Reassignments
from proxy.config import Address
from proxy.control.cluster import BrokerClient, BrokerMap
from proxy.control.cluster.client import Target
from proxy.control.reassign import cluster as module
from proxy.control.reassign.cluster import Cluster, ClusterError, ClusterState, WithdrawnError
from proxy.system.stats import Stats
from quotas.reassignment.step import PartitionState
from tests.cluster import HOST
from tests.support.loop_broker import listening
from tests.unit.protocol.kafka_frames import RESPONSES, framed, struct

DESCRIBE_CONFIGS = 32
DESCRIBE_LOG_DIRS = 35
ALTER = ALTER_PARTITION_REASSIGNMENTS
LIST = LIST_PARTITION_REASSIGNMENTS
ELECT = ELECT_LEADERS
T0, T1 = ("t", 0), ("t", 1)


class Broker:
    """Responds to each API with what the test says; None closes the connection."""

    def __init__(self) -> None:
        self.responses: dict[int, Callable[[], bytes | None]] = {
            METADATA: metadata,
            DESCRIBE_CONFIGS: lambda: configs("2"),
            LIST: lambda: reassignments.write_list_response(Reassignments(0, 0, None, {}), 1),
            DESCRIBE_CLUSTER: lambda: None,
        }
        self.asked: list[int] = []
        self.writers: list[asyncio.StreamWriter] = []

    def respond(self, frame: bytes) -> bytes | None:
        self.asked.append(int.from_bytes(frame[4:6]))
        return self.responses[self.asked[-1]]()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Address]:
        async with listening(self.respond) as found:
            self.writers = found.writers
            yield found.address


def metadata(topic_error: int = 0) -> bytes:
    kind = RESPONSES[METADATA]
    brokers = [
        struct(kind, 12, "MetadataResponseBroker", node_id=node, host="h", port=1, rack=None)
        for node in (1, 2)
    ]
    where = {"leader_id": 1, "leader_epoch": 0, "replica_nodes": [1, 3], "isr_nodes": [1]}
    partitions = [
        struct(kind, 12, "MetadataResponsePartition", partition_index=number, offline_replicas=[3], **where)
        for number in (() if topic_error else (0, 1))
    ]
    topic = struct(kind, 12, "MetadataResponseTopic", error_code=topic_error, name="t", partitions=partitions)
    return framed(kind(version=12, throttle_time_ms=0, brokers=brokers, controller_id=1, topics=[topic]))


def fenced(*nodes: int) -> bytes:
    kind = RESPONSES[DESCRIBE_CLUSTER]
    brokers = [
        struct(kind, 2, "DescribeClusterBroker", broker_id=node, host="h", port=1, rack=None, is_fenced=True)
        for node in nodes
    ]
    return framed(kind(version=2, endpoint_type=1, cluster_id="c", controller_id=1, brokers=brokers))


def configs(value: str, error_code: int = 0) -> bytes:
    kind = RESPONSES[DESCRIBE_CONFIGS]
    entry = {"read_only": False, "config_source": 1, "is_sensitive": False, "synonyms": []}
    found = struct(kind, 1, "DescribeConfigsResourceResult", name="min.insync.replicas", value=value, **entry)
    of = {"error_code": error_code, "resource_type": 2, "resource_name": "t", "configs": [found]}
    return framed(kind(version=1, results=[struct(kind, 1, "DescribeConfigsResult", **of)]))


class Remembering(BrokerClient):
    """Remembers its last connection, and where it went."""

    def __init__(self, brokers: BrokerMap) -> None:
        super().__init__(brokers)
        self.dialled: list[Target] = []

    async def connect(self, target: Target, *, anyone: bool = False) -> Connection:
        self.dialled.append(target)
        self.last = await super().connect(target, anyone=anyone)
        return self.last


def asking(broker: Broker, work: Callable[[Cluster, Remembering], Any], *before: Address) -> Any:
    """Run a question against a broker, and those before it; it may look at the connection that it is sent over."""

    async def run() -> Any:
        async with broker.listening() as address:
            client = Remembering(BrokerMap((*before, address), Stats()))
            cluster = Cluster(client)
            try:
                return await work(cluster, client)
            finally:
                cluster.close()

    return asyncio.run(run())


async def seen(cluster: Cluster, _client: Remembering) -> ClusterState:
    return await cluster.read_state(["t"])


def test_partitions_are_read_with_their_moves() -> None:
    broker = Broker()
    ongoing = {T0: Ongoing((2, 1, 3), (2,), (3,))}
    broker.responses[LIST] = lambda: reassignments.write_list_response(Reassignments(0, 0, None, ongoing), 1)
    found = asking(broker, seen)
    assert found.partitions == {
        T0: PartitionState((2, 1, 3), (1,), 1, (2,), (3,), 2),
        T1: PartitionState((1, 3), (1,), 1, (), (), 2),
    }
    assert (found.live, found.registered) == ({1, 2}, {1, 2, 3})
    assert set(found.topic_ids) == {"t"}
    assert broker.asked == [METADATA, DESCRIBE_CONFIGS, LIST], "the list last"


def directories(*cordoned: bool, error_code: int = 0) -> bytes:
    """Each with whether it is cordoned; the first one has failed if there is an error."""
    kind = RESPONSES[DESCRIBE_LOG_DIRS]
    found = [
        struct(
            kind,
            5,
            "DescribeLogDirsResult",
            error_code=0 if number else error_code,
            log_dir=f"/{number}",
            topics=[],
            is_cordoned=one,
        )
        for number, one in enumerate(cordoned)
    ]
    return framed(kind(version=5, throttle_time_ms=0, error_code=0, results=found))


@pytest.mark.parametrize(
    ("response", "cordoned"),
    [
        (directories(True, True), {1}),
        (directories(True, False), set()),
        (directories(False, True, error_code=56), {1}),  # the other one has failed: KAFKA_STORAGE_ERROR
        (directories(), set()),  # no right to see them
        (None, set()),  # before 4.3 the connection is closed
    ],
)
def test_brokers_that_are_concerned_are_asked_whether_they_are_cordoned(
    response: bytes | None, cordoned: set[int]
) -> None:
    broker = Broker()
    broker.responses[DESCRIBE_LOG_DIRS] = lambda: response

    async def twice(cluster: Cluster, client: Remembering) -> ClusterState:
        (address,) = client.brokers.targets()
        for node in (1, 2, 3):  # 3 is not alive, and not asked
            client.brokers.learn(node, *address)
        await cluster.read_state(["t"], (3,))
        return await cluster.read_state(["t"], (3,))

    assert asking(broker, twice).cordoned == cordoned
    assert broker.asked.count(DESCRIBE_LOG_DIRS) == 1, (
        "broker 1 has replicas; what it said is kept for a while"
    )


def test_broker_that_does_not_respond_for_once_stays_cordoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CORDONED_SECONDS", 0.0)
    broker = Broker()
    responses = iter((directories(True), None, directories(False)))
    broker.responses[DESCRIBE_LOG_DIRS] = lambda: next(responses)

    async def thrice(cluster: Cluster, client: Remembering) -> list[set[int]]:
        (address,) = client.brokers.targets()
        client.brokers.learn(1, *address)
        return [set((await cluster.read_state(["t"], (1,))).cordoned) for _ in range(3)]

    assert asking(broker, thrice) == [{1}, {1}, set()]


def test_without_targets_no_broker_is_asked_whether_it_is_cordoned() -> None:
    broker = Broker()
    assert asking(broker, seen).cordoned == frozenset()
    assert DESCRIBE_LOG_DIRS not in broker.asked


def test_min_isr_is_not_asked_for_every_time() -> None:
    broker = Broker()

    async def twice(cluster: Cluster, _client: Remembering) -> None:
        await cluster.read_state(["t"])
        await cluster.read_state(["t"])

    asking(broker, twice)
    assert broker.asked.count(DESCRIBE_CONFIGS) == 1
    assert len(broker.writers) == 1


@pytest.mark.parametrize("error_code", [3, 17])
def test_topic_that_is_not_there_has_no_partitions(error_code: int) -> None:
    """Nor has one whose name can be none."""
    broker = Broker()
    broker.responses[METADATA] = lambda: metadata(error_code)
    found = asking(broker, seen)
    assert (dict(found.partitions), dict(found.topic_ids)) == ({}, {})


@pytest.mark.parametrize(
    ("key", "response", "problem"),
    [
        (METADATA, lambda: metadata(29), "Metadata of topic t: error 29"),
        (DESCRIBE_CONFIGS, lambda: configs("", 29), "DescribeConfigs of topic t: error 29"),
        (
            LIST,
            lambda: reassignments.write_list_response(Reassignments(0, 31, "no", {}), 1),
            "ListPartitionReassignments: error 31 no",
        ),
        (METADATA, lambda: None, "closed the connection without a response"),
    ],
)
def test_missing_describe_right_is_a_problem(
    key: int, response: Callable[[], bytes | None], problem: str
) -> None:
    broker = Broker()
    broker.responses[key] = response
    with pytest.raises(ClusterError, match=problem):
        asking(broker, seen)


def test_registered_brokers_are_not_asked_for_again_soon_after_a_failure() -> None:
    broker = Broker()

    async def twice(cluster: Cluster, _client: Remembering) -> Any:
        await cluster.read_state(["t"], registered=True)
        return await cluster.read_state(["t"], registered=True)

    assert asking(broker, twice).registered == {1, 2, 3}
    assert broker.asked.count(DESCRIBE_CLUSTER) == 2, "the second time of the next broker"


def test_registered_brokers_are_asked_for_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may have been restarting, and a target that is down would be refused as unknown from then on."""
    monkeypatch.setattr(module, "FENCED_SECONDS", 0.0)
    broker = Broker()
    responses = iter([None, None, fenced(1, 2, 7)])
    broker.responses[DESCRIBE_CLUSTER] = lambda: next(responses)

    async def twice(cluster: Cluster, _client: Remembering) -> Any:
        await cluster.read_state(["t"], registered=True)
        return await cluster.read_state(["t"], registered=True)

    assert asking(broker, twice).registered == {1, 2, 3, 7}


def test_submission_returns_the_result_of_each_partition() -> None:
    broker = Broker()
    said = AlterResponse(0, True, Outcome(), [(T0, Outcome(39, "no"))])
    broker.responses[ALTER] = lambda: reassignments.write_alter_response(said, 0, 1)
    outcomes = asking(broker, lambda cluster, _client: cluster.submit({T0: (1, 2), T1: None}, lambda: True))
    assert outcomes[T0] == Outcome(39, "no")
    assert outcomes[T1].error_code == -1


def test_refusal_of_the_request_is_that_of_each_partition() -> None:
    broker = Broker()
    said = AlterResponse(0, True, Outcome(31, "no"), [])
    broker.responses[ALTER] = lambda: reassignments.write_alter_response(said, 0, 1)
    assert asking(broker, lambda cluster, _client: cluster.submit({T0: (1, 2)}, lambda: True)) == {
        T0: Outcome(31, "no")
    }


def test_submission_that_gets_no_response_is_not_made_again() -> None:
    broker = Broker()
    broker.responses[ALTER] = lambda: None
    with pytest.raises(ClusterError):
        asking(broker, lambda cluster, _client: cluster.submit({T0: (1, 2)}, lambda: True))
    assert broker.asked == [ALTER]


def test_change_of_a_process_that_executes_no_more_is_not_sent() -> None:
    broker = Broker()
    for work in (
        lambda cluster, _client: cluster.submit({T0: (1, 2)}, lambda: False),
        lambda cluster, _client: cluster.elect([T0], lambda: False),
    ):
        with pytest.raises(WithdrawnError):
            asking(broker, work)
    assert broker.asked == []


def test_reading_goes_on_with_the_next_broker() -> None:
    broker = Broker()
    responses = iter([None, metadata()])
    broker.responses[METADATA] = lambda: next(responses)
    found = asking(broker, seen)
    assert set(found.partitions) == {T0, T1}
    assert len(broker.writers) == 2


def test_connection_that_was_closed_while_idle_fails_nothing() -> None:
    """Brokers close after connections.max.idle.ms, and between two reassignments lie days."""
    broker = Broker()
    said = AlterResponse(0, True, Outcome(), [(T0, Outcome())])
    broker.responses[ALTER] = lambda: reassignments.write_alter_response(said, 0, 1)

    async def submit_late(cluster: Cluster, client: Remembering) -> Any:
        await cluster.read_state(["t"])
        for writer in broker.writers:
            writer.close()
        async with asyncio.timeout(20):
            while not client.last.closed:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.001)
        return await cluster.submit({T0: (1, 2)}, lambda: True)

    assert asking(broker, submit_late) == {T0: Outcome()}
    assert broker.asked.count(ALTER) == 1


def test_no_reachable_broker_is_a_problem() -> None:
    with pytest.raises(ClusterError, match="no broker is known"):
        asyncio.run(Cluster(BrokerClient(BrokerMap((), Stats()))).read_state(["t"]))


def test_election_returns_the_result_of_each_partition() -> None:
    broker = Broker()
    kind = RESPONSES[ELECT]
    results = [
        struct(kind, 1, "PartitionResult", partition_id=number, error_code=code, error_message="m")
        for number, code in ((0, 84), (1, 80))
    ]
    topic = struct(kind, 1, "ReplicaElectionResult", topic="t", partition_result=results)
    broker.responses[ELECT] = lambda: framed(
        kind(version=1, throttle_time_ms=0, error_code=0, replica_election_results=[topic])
    )
    assert asking(broker, lambda cluster, _client: cluster.elect([T0, T1], lambda: True)) == {
        T0: (0, "m"),
        T1: (80, "m"),
    }


def test_broker_that_fails_is_not_the_first_again() -> None:
    broker = Broker()

    async def twice(cluster: Cluster, client: Remembering) -> list[int]:
        await cluster.read_state(["t"])
        cluster.close()
        await cluster.read_state(["t"])
        return [target[1] for target in client.dialled]

    first, *others = asking(broker, twice, Address(HOST, 1))
    assert first == 1
    assert others == [others[0]] * 2
