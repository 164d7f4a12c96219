"""Kafka's admin client over the partition mutation quota, with and without its own retries (KIP-599)."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.interop.conftest import available
from tests.interop.families import FAMILIES, JAVA_3_9, Family
from tests.interop.runs import Crowd, Run, options
from tests.support.proxy_process import SluiceProcess, SluiceSettings

EXCEEDED = "ThrottlingQuotaExceededException"
RUN_SECONDS_MAX = 90.0
# 2 partitions/s after a burst of 4: of three topics of 4 partitions the first leaves 0, the second -4: 2 s.
RATE, BURST, PARTITIONS = 2, 4, 4
WAIT_MS = 2000


@pytest.fixture(params=[FAMILIES[0], JAVA_3_9], ids=lambda family: family.name)
def java(request: pytest.FixtureRequest) -> Family:
    """Kafka's own client, the current one and the last of 3.x."""
    assert isinstance(request.param, Family), "the parameters are families"
    return available(request.param)


@contextmanager
def limited(kafka: Cluster, directory: Path, rate: float = RATE) -> Iterator[SluiceProcess]:
    """A gateway that lets all clients together make so many mutations a second."""
    quotas = {"partition_mutations_rate": rate, "partition_mutations_burst": BURST}
    with SluiceProcess.configured(SluiceSettings(kafka.bootstrap(), quotas=quotas), directory) as process:
        yield process


@pytest.fixture
def sluice(kafka: Cluster, tmp_path: Path) -> Iterator[SluiceProcess]:
    """The gateway of those who wait."""
    with limited(kafka, tmp_path) as process:
        yield process


def names(count: int) -> list[str]:
    stem = secrets.token_hex(4)
    return [f"j-{stem}-{index}" for index in range(count)]


def mutate(
    crowd: Crowd, java: Family, sluice: SluiceProcess, command: str, topics: list[str], **more: str
) -> Run:
    words = options(sluice.bootstrap, "mutator", ",".join(topics), partitions=PARTITIONS, **more)
    return crowd.start(java, command, *words).wait(RUN_SECONDS_MAX)


def errors(run: Run) -> dict[str, str]:
    return {event.text("topic"): event.text("error") for event in run.events("mutation")}


def test_without_retries_the_client_hears_which_topics_wait_how_long(
    crowd: Crowd, java: Family, kafka: Cluster, tmp_path: Path
) -> None:
    topics = names(3)
    with limited(kafka, tmp_path, rate=0.1) as slow:
        run = mutate(crowd, java, slow, "create-topics", topics, retry="false")
    assert errors(run) == {topics[0]: "", topics[1]: "", topics[2]: EXCEEDED}
    told = {event.text("topic"): event.number("throttle_ms") for event in run.events("mutation")}
    assert 20_000 < told[topics[2]] <= 40_000  # 4 / 0.1 per s, less what the broker needed


def test_with_retries_the_client_waits_and_creates_them_all(
    crowd: Crowd, java: Family, sluice: SluiceProcess
) -> None:
    topics = names(3)
    run = mutate(crowd, java, sluice, "create-topics", topics, retry="true")
    assert errors(run) == dict.fromkeys(topics, "")
    assert run.last("mutated").number("ms") >= WAIT_MS
    assert sluice.metric("sluice_topics_rejected_total", api="CreateTopics") >= 1


def test_partitions_and_deletions_wait_as_well(
    crowd: Crowd, java: Family, sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    topics = [create_topic(partitions=1) for _ in range(3)]
    run = mutate(crowd, java, sluice, "create-partitions", topics, retry="false")
    refused = [name for name, error in errors(run).items() if error == EXCEEDED]
    assert len(refused) == 1  # 4 - 3 - 3 leaves -2
    run = mutate(crowd, java, sluice, "delete-topics", topics, retry="true")
    assert errors(run) == dict.fromkeys(topics, "")
    assert sluice.metric("sluice_topics_rejected_total", api="DeleteTopics") >= 1
