"""The evasions of findings 10, 11 and 13 in front of real brokers: what was appended, and what was fetched.

Appended is what the log's end says; the scripted broker of the other modules would count what is refused as well.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pytest

from tests.cluster import HOST, Cluster
from tests.conftest import CreateTopic
from tests.hostile import wire
from tests.hostile.scene import QUOTA, Allowance, as_kafka, limits, scheduled, swarm
from tests.hostile.wire import Client
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import LIST_OFFSETS, Topic, batch, describe, write
from tests.support.wire import part, request, response, wired

SECONDS: Final = 6.0
HOLD_SECONDS: Final = 2.0
MUTE_SECONDS: Final = 4.0
RECORD_BYTES: Final = 900_000
FILLED: Final = 40
_MAX_BYTES: Final = 5_000_000
_UNIT: Final = RECORD_BYTES + 1_000  # a request, or a batch, of one record

pytestmark = pytest.mark.timeout(240)


@dataclass(frozen=True, slots=True)
class Front:
    """A proxy in front of the cluster, under one policy."""

    kafka: Cluster
    sluice: SluiceProcess
    policy: str

    def connect(self, topic: Topic, until: float) -> Client:
        """A connection to the leader of the topic's one partition."""
        return Client((HOST, self.sluice.ports.first_broker + topic.leaders[0]), until=until)

    def allowance(self, request_bytes: int, connections: int) -> Allowance:
        """What may pass in SECONDS."""
        if self.policy == "schedule":
            return scheduled(QUOTA, request_bytes, SECONDS)
        return as_kafka(QUOTA, request_bytes, SECONDS, connections, MUTE_SECONDS)


@pytest.fixture(scope="module", params=["schedule", "kip13"])
def front(
    request: pytest.FixtureRequest, kafka: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    quotas: dict[str, object] = {"policy": request.param, "mute_seconds_max": MUTE_SECONDS}
    if request.param == "schedule":
        quotas["hold_seconds_max"] = HOLD_SECONDS
    settings = SluiceSettings(kafka.bootstrap(), quotas=quotas, client_quotas={"<default>": limits(QUOTA)})
    with SluiceProcess.configured(settings, tmp_path_factory.mktemp("hostile")) as sluice:
        yield Front(kafka, sluice, request.param)


@pytest.fixture(scope="module")
def filled(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    """A topic with 36 MB in batches of one record; every broker has a replica, since only those are given any."""
    topic = describe(kafka, create_topic(replication=3))
    records = batch([bytes(RECORD_BYTES)])
    for _ in range(FILLED):
        write(kafka.address(topic.leaders[0]), topic, 0, records)
    return topic


def appended(kafka: Cluster, topic: Topic) -> int:
    """The bytes of records that the log holds."""
    entry = part(LIST_OFFSETS, 5, "ListOffsetsPartition", partition_index=0, timestamp=-1)
    named = part(LIST_OFFSETS, 5, "ListOffsetsTopic", partitions=[entry])
    named.name = topic.name
    asked = request(LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=[named])
    with wired(kafka.address(topic.leaders[0])) as client:
        (responded,) = response(LIST_OFFSETS, 5, client.ask(asked).frame).topics
    return int(responded.partitions[0].offset) * RECORD_BYTES


def name() -> str:
    """A client id that no other test has: with a burst of its own."""
    return f"hostile-{secrets.token_hex(4)}"


PRODUCERS: Final[dict[str, tuple[int, int, bool]]] = {
    # acks, connections, whether each request has a new one
    "stays": (1, 1, False),
    "reconnects": (1, 8, True),
    "reconnects with acks=0": (0, 8, True),
    "60 at once": (1, 60, False),
}


def together(brought: Callable[[str], int], names: Iterable[str]) -> dict[str, int]:
    """Return what each client brought; they run at the same time, each with a quota of its own."""
    with ThreadPoolExecutor(len(CONSUMERS)) as pool:
        return dict(zip(names, pool.map(brought, names), strict=True))


@pytest.fixture(scope="module")
def produced(front: Front, create_topic: CreateTopic) -> dict[str, int]:
    """The bytes that each producer has appended."""
    topics = {what: describe(front.kafka, create_topic()) for what in PRODUCERS}

    def produce(what: str) -> int:
        acks, connections, anew = PRODUCERS[what]
        topic = topics[what]
        frame = wire.produce(name(), batch([bytes(RECORD_BYTES)]), acks=acks, topics=[topic.name])
        until = time.monotonic() + SECONDS

        def once(_: int) -> None:
            client = front.connect(topic, until)
            try:
                while True:
                    client.send(frame)
                    if acks:
                        client.skip()
                    if anew:
                        return
            finally:
                client.close()

        swarm(connections, until, once)
        return appended(front.kafka, topic)

    return together(produce, PRODUCERS)


@pytest.mark.parametrize("what", PRODUCERS)
def test_producer_appends_no_more_than_its_quota(front: Front, produced: dict[str, int], what: str) -> None:
    _, connections, _ = PRODUCERS[what]
    assert produced[what] <= front.allowance(_UNIT, connections).in_run
    if what == "stays":
        assert produced[what] > QUOTA * SECONDS / 4, "an honest producer gets something"


def fetched(front: Front, topic: Topic, ask: Callable[[str, Topic], bytes], depth: int) -> int:
    """The bytes of the responses to `depth` pipelined requests, each followed by another when it gets a response."""
    frame = ask(name(), topic)
    until = time.monotonic() + SECONDS
    total = 0
    client = front.connect(topic, until)
    try:
        client.send(frame * depth)
        while True:
            total += client.skip()
            client.send(frame)  # from the beginning again: what it holds is not the point
    except OSError:
        return total  # the time is over, or it was closed
    finally:
        client.close()


def fetch(version: int, *, as_replica: bool = False) -> Callable[[str, Topic], bytes]:
    """A Fetch of the whole topic, by its id where the version names ids; or one that says it is a follower's."""

    def ask(client_id: str, topic: Topic) -> bytes:
        replica_id = min({1, 2, 3} - {topic.leaders[0]}) if as_replica else -1
        key = topic.topic_id.bytes if version >= 13 else _compact_or_not(topic.name, version)
        return wire.fetch(
            client_id,
            version=version,
            replica_id=replica_id,
            key=key,
            max_bytes=_MAX_BYTES,
            partition_max_bytes=_MAX_BYTES,
        )

    return ask


def _compact_or_not(text: str, version: int) -> bytes:
    raw = text.encode()
    return bytes([len(raw) + 1]) + raw if version >= 12 else len(raw).to_bytes(2, "big") + raw


CONSUMERS: Final = {
    "stays": (fetch(12), 1),
    "replica_id, v7": (fetch(7, as_replica=True), 1),
    "replica_id, v12": (fetch(12, as_replica=True), 1),
    "replica state, v17": (fetch(17, as_replica=True), 1),
    "pipelined": (fetch(12), 50),
    "pipelined by id": (fetch(17), 50),
}


@pytest.fixture(scope="module")
def consumed(front: Front, filled: Topic) -> dict[str, int]:
    """The bytes that each consumer has got."""
    return together(lambda what: fetched(front, filled, *CONSUMERS[what]), CONSUMERS)


@pytest.mark.parametrize("what", CONSUMERS)
def test_consumer_fetches_no_more_than_its_quota(front: Front, consumed: dict[str, int], what: str) -> None:
    # Under `schedule` half a second's quota is asked for; a batch may be more. `kip13` lets ten seconds' pass.
    size = _UNIT + QUOTA // 2 if front.policy == "schedule" else _MAX_BYTES + _UNIT
    assert consumed[what] <= front.allowance(size, 1).in_run
    if what == "stays":
        assert consumed[what] > QUOTA * SECONDS / 4, "an honest consumer gets something"
