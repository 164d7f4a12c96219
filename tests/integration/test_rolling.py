"""Brokers go to a newer release one after the other, under load: clients behind Sluice lose nothing, and find each
broker as soon as direct ones do.

From the release that `SLUICE_KAFKA` names to the next one; without it from the oldest to the newest in one go. Then the
cluster is told to use what is new (`kafka-features.sh upgrade`), through Sluice, under the same load.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

import pytest
from confluent_kafka import Consumer

from tests.cluster import Address, Cluster, ClusterOptions, readiness, tools
from tests.cluster.jars import NEWEST, RELEASES, release
from tests.support.numbered import NumberedProducer, lost
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import METADATA, create
from tests.support.waiting import until
from tests.support.wire import part, request, response, wired

STEPS: Final = {old: (old, new) for old, new in pairwise(RELEASES)}
OLD, NEW = STEPS.get(release(), (RELEASES[0], NEWEST))
TOPIC: Final = "rolled"
PARTITIONS: Final = 6
METADATA_VERSION: Final = 12
ROLLED_RECORDS: Final = 300
PROBE_SECONDS: Final = 0.1
# A broker that serves is asked twice at most before one that asks each 0.1 s hears it, and Sluice once more: a busy
# machine does each of these late.
LATER_SECONDS_MAX: Final = 2.0


class Probe:
    """Asks one address for Metadata again and again, each time on a new connection.

    Attributes:
        longest: the longest time between two responses, in seconds.
        responses: how many came.
    """

    def __init__(self, address: Address) -> None:
        self.longest = 0.0
        self.responses = 0
        self._address = address
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._ending.wait(PROBE_SECONDS):
            try:
                readiness.brokers(self._address)
            except (OSError, ValueError):
                continue
            now = time.monotonic()
            self.longest, self.responses, last = max(self.longest, now - last), self.responses + 1, now


class Reader:
    """A group of one member, which reads a topic from its beginning.

    Attributes:
        found: how often each number came.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.found: Counter[int] = Counter()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"rolling-{topic}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.found[int.from_bytes((message.value() or b"")[:8], "big")] += 1


@pytest.mark.timeout(300)
def test_brokers_go_to_a_newer_release_under_load(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with Cluster(ClusterOptions(kafka=OLD)) as kafka, ExitStack() as stack:
        settings = SluiceSettings(kafka.bootstrap())
        sluice = stack.enter_context(SluiceProcess.configured(settings, tmp_path))
        create(kafka, TOPIC, partitions=PARTITIONS, replication=3, configs={"min.insync.replicas": "2"})
        load = stack.enter_context(NumberedProducer(sluice.bootstrap, TOPIC, partitions=PARTITIONS))
        reader = stack.enter_context(Reader(sluice.bootstrap, TOPIC))
        load.wait_for(ROLLED_RECORDS)
        direct = {node: stack.enter_context(Probe(kafka.address(node))) for node in kafka.nodes}
        through = {node: stack.enter_context(Probe(sluice.ports.address(node))) for node in kafka.nodes}
        for node in kafka.nodes:
            kafka.stop_broker(node)
            kafka.start_broker(node, kafka=NEW)
            until(lambda: in_sync(kafka), "every replica is in sync", 60.0)
            load.wait_for(ROLLED_RECORDS)
        level = ("upgrade", "--release-version", NEW.rpartition(".")[0])
        tools.run(tools.FEATURES, "--bootstrap-server", sluice.bootstrap, *level)
        load.wait_for(ROLLED_RECORDS)
        load.stop()
        until(lambda: len(reader.found) >= len(load.delivered), "all are read through Sluice", 60.0)
        assert lost(load, kafka.bootstrap()) == []
    silent = {node: (direct[node].longest, through[node].longest) for node in direct}
    longest = [max(times) for times in zip(*silent.values(), strict=True)]
    record_property(
        "rolled",
        f"{OLD} to {NEW} under load, no record lost; longest silence of a broker {longest[0]:.1f} s direct, "
        f"{longest[1]:.1f} s through Sluice",
    )
    assert load.failed == []
    assert reader.found.keys() >= set(load.delivered)
    assert all(relayed <= own + LATER_SECONDS_MAX for own, relayed in silent.values()), silent
    assert min(own for own, _ in silent.values()) > PROBE_SECONDS, "each broker was away"


def in_sync(kafka: Cluster) -> bool:
    """Whether each partition has all its replicas, as the first broker says."""
    with wired(kafka.address(kafka.nodes[0])) as wire:
        topics = [part(METADATA, METADATA_VERSION, "MetadataRequestTopic", name=TOPIC)]
        asked = request(METADATA, METADATA_VERSION, topics=topics, allow_auto_topic_creation=False)
        (found,) = response(METADATA, METADATA_VERSION, wire.ask(asked).frame).topics
    return all(len(partition.isr_nodes) == len(kafka.nodes) for partition in found.partitions)
