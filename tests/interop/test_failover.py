"""A client that never asks for its bootstrap servers again goes on behind HAProxy when one of two gateways is killed.

It is the setting of all Java clients before 4.0 that was measured not to move by itself (`make failover`).
"""

import functools
from pathlib import Path
from typing import Final

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.interop.conftest import available
from tests.interop.failover.measure import PARTITIONS, Watched, used
from tests.interop.families import FAMILIES
from tests.interop.runs import Crowd, options
from tests.support.gateways import BALANCED, Gateways, available_haproxy

_NEVER: Final = "metadata.recovery.strategy=none"
_BEGUN_SECONDS_MAX: Final = 60.0
_MOVED_SECONDS_MAX: Final = 20.0
_END_SECONDS_MAX: Final = 60.0


def test_java_client_without_rebootstrap_moves_behind_haproxy(
    kafka: Cluster, create_topic: CreateTopic, crowd: Crowd, tmp_path: Path
) -> None:
    java = available(FAMILIES[0])
    available_haproxy()
    topic = create_topic(partitions=PARTITIONS, replication=3)
    stop = tmp_path / "stop"
    with Gateways(kafka.bootstrap(), BALANCED, tmp_path) as gateways:
        words = options(
            gateways.bootstrap, topic, topic, partitions=PARTITIONS, size=100, watch_ms=20, properties=_NEVER
        )
        producer = crowd.start(java, "produce", *words, "--stop-file", str(stop))
        consumer = crowd.start(java, "consume", *words, "--group", topic)
        sent, received = Watched(producer), Watched(consumer)
        begun = crowd.until(lambda: sent.served_since(0) and received.served_since(0), _BEGUN_SECONDS_MAX)
        assert begun, consumer.describe()

        killed = gateways.kill(used(gateways, topic))

        for run, watched in ((producer, sent), (consumer, received)):
            moved = crowd.until(functools.partial(watched.served_since, killed + 1), _MOVED_SECONDS_MAX)
            assert moved, run.describe()
        stop.touch()
        assert producer.wait(_END_SECONDS_MAX).last("produced").number("errors") == 0
        acknowledged = sent.indexes()
        arrived = crowd.until(lambda: acknowledged <= received.indexes(), _END_SECONDS_MAX)
        assert arrived, f"{acknowledged - received.indexes()} did not arrive\n{consumer.describe()}"
