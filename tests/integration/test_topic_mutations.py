"""Partition mutation quotas on the real cluster (KIP-599): what is admitted is there afterwards, and nothing else.

The rate is one partition in a hundred seconds, so that what a test takes is not refilled while it runs: what is in
the bucket is its burst.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from tests.cluster import Cluster, ClusterOptions, tools
from tests.conftest import CreateTopic
from tests.support.mutation_frames import EXCEEDED, create, delete, errors, grow
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import METADATA, describe
from tests.support.waiting import until
from tests.support.wire import Wire, part, request, response, wired
from tests.support.workers import one_process

RATE = 0.01
BURST = 10
NONE = 0
NO_BURST = one_process("a worker begins without a burst, and has a share of it")


@pytest.fixture
def names() -> list[str]:
    """Names that no other test uses."""
    stem = secrets.token_hex(4)
    return [f"m-{stem}-{index}" for index in range(8)]


@contextmanager
def limited(
    kafka: Cluster, tmp_path: Path, *, rate: float = RATE, burst: float = BURST
) -> Iterator[SluiceProcess]:
    """A gateway whose clients may make `burst` mutations each."""
    directory = tmp_path / secrets.token_hex(4)
    directory.mkdir()
    settings = SluiceSettings(
        kafka.bootstrap(),
        quotas={"window_samples": round(burst / rate)},
        client_quotas={"<default>": {"controller_mutation_rate": rate}},
    )
    with SluiceProcess.configured(settings, directory) as sluice:
        yield sluice


def sizes_on(kafka: Cluster) -> dict[str, int]:
    """Every topic's number of partitions, asked of a broker directly."""
    with wired(kafka.address(1)) as wire:
        received = wire.ask(request(METADATA, 12, topics=None, allow_auto_topic_creation=False))
    return {topic.name: len(topic.partitions) for topic in response(METADATA, 12, received.frame).topics}


def settled(kafka: Cluster, wanted: dict[str, int]) -> None:
    """Brokers hear of a change a moment later: wait for what must come, for at most as long as `describe` does."""
    for name, partitions in wanted.items():
        describe(kafka, name, 1, partitions=partitions)


def say(wire: Wire, frame: bytes) -> bytes:
    """Send a whole frame and give the response's."""
    wire.send_bytes(frame)
    return wire.receive()


@NO_BURST
def test_kafka_topics_gets_error_89_for_exactly_the_topics_beyond_the_bucket(
    kafka: Cluster, tmp_path: Path, names: list[str]
) -> None:
    with limited(kafka, tmp_path) as sluice:
        made, refused = [], []
        for name in names[:5]:
            create_it = ("--create", "--topic", name, "--partitions", "4", "--replication-factor", "1")
            try:
                tools.run(tools.TOPICS, "--bootstrap-server", sluice.bootstrap, *create_it)
                made.append(name)
            except tools.ToolError as error:
                refused.append(name if "ThrottlingQuotaExceededException" in str(error) else str(error))
        # Each run is a client of its own, with Kafka's own client id: 4 + 4 + 4 of 10 leave -2.
        assert (made, refused) == (names[:3], names[3:5])
        settled(kafka, dict.fromkeys(made, 4))
        assert not set(refused) & set(sizes_on(kafka))
        assert sluice.metric("sluice_topics_rejected_total", api="CreateTopics") == 2


def test_partitions_are_added_and_topics_deleted_within_the_bucket_alone(
    kafka: Cluster, tmp_path: Path, create_topic: CreateTopic
) -> None:
    grown, ungrown = create_topic(partitions=2), create_topic(partitions=2)
    with limited(kafka, tmp_path) as sluice, wired(sluice.ports.address(1), "grower") as wire:
        found, _ = errors(CREATE_PARTITIONS, 3, say(wire, grow(3, {grown: 14, ungrown: 3})))
        assert found == [(grown, NONE), (ungrown, EXCEEDED)]  # 14 - 2 = 12 of 10
    settled(kafka, {grown: 14})
    assert sizes_on(kafka)[ungrown] == 2
    with limited(kafka, tmp_path) as sluice, wired(sluice.ports.address(1)) as wire:
        found, _ = errors(DELETE_TOPICS, 5, say(wire, delete(5, [grown, ungrown])))
        assert found == [(grown, NONE), (ungrown, EXCEEDED)]  # 14 of 10
    until(lambda: grown not in sizes_on(kafka), "the topic is gone")
    assert sizes_on(kafka)[ungrown] == 2


def test_topics_are_deleted_by_id_within_the_bucket_alone(
    kafka: Cluster, tmp_path: Path, create_topic: CreateTopic
) -> None:
    gone, stays = create_topic(partitions=11), create_topic(partitions=1)
    ids = [describe(kafka, name, 1).topic_id for name in (gone, stays)]
    with limited(kafka, tmp_path) as sluice, wired(sluice.ports.address(1)) as wire:
        found, _ = errors(DELETE_TOPICS, 6, say(wire, delete(6, ids)))
        assert found == [(gone, NONE), (None, EXCEEDED)]
    until(lambda: gone not in sizes_on(kafka), "the topic is gone")
    assert stays in sizes_on(kafka)


@NO_BURST
def test_kafkas_own_system_test_passes(kafka: Cluster, tmp_path: Path, names: list[str]) -> None:
    """controller_mutation_quota_test.py: create 10, grow to 20, delete 20; then nothing more."""
    # 33 tokens at 0.015/s, as Kafka's 11 windows of 200 s.
    with limited(kafka, tmp_path, rate=0.015, burst=33) as sluice, wired(sluice.ports.address(1)) as wire:
        said = [
            errors(CREATE_TOPICS, 7, say(wire, create(7, {names[0]: 10})))[0],
            errors(CREATE_PARTITIONS, 3, say(wire, grow(3, {names[0]: 20})))[0],
            errors(DELETE_TOPICS, 6, say(wire, delete(6, [names[0]])))[0],
        ]
        assert said == [[(names[0], NONE)]] * 3
        found, throttle_ms = errors(CREATE_TOPICS, 7, say(wire, create(7, {names[1]: 1})))
        assert found == [(names[1], EXCEEDED)]  # 33 - 10 - 10 - 20 = -7
        assert 440_000 < throttle_ms <= 466_667  # 7 / 0.015 per s
        assert names[1] not in sizes_on(kafka)


def test_auto_created_topic_is_charged_and_over_the_quota_is_not_created(
    tmp_path: Path, names: list[str]
) -> None:
    properties = {"auto.create.topics.enable": "true", "num.partitions": "12"}
    with (
        Cluster(ClusterOptions(nodes=1, properties=properties)) as alone,
        limited(alone, tmp_path) as sluice,
        wired(sluice.ports.address(1)) as wire,
    ):
        until(lambda: ask_for(wire, names[0]) == 12, "the broker creates it", 20)
        assert sluice.metric("sluice_client_mutation_tokens") < -1  # 10 - 12
        assert ask_for(wire, names[1]) == 0
        assert ask_for(wire, names[1]) == 0
        assert names[1] not in sizes_on(alone)
        assert sluice.metric("sluice_topics_rejected_total", api="Metadata") == 2


def ask_for(wire: Wire, name: str) -> int:
    """Ask for a topic as clients do, which may create it; give its number of partitions."""
    topic = part(METADATA, 12, "MetadataRequestTopic", name=name)
    received = wire.ask(request(METADATA, 12, topics=[topic], allow_auto_topic_creation=True))
    (found,) = response(METADATA, 12, received.frame).topics
    return len(found.partitions)
