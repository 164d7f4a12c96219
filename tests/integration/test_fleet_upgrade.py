"""A fleet of three behind a Service is replaced pod by pod, and clients notice nothing but new connections.

The same for longer, with each client family, the bound of every second and latencies: `make fleet ARGS=upgrade`.
"""

import time
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.gateways import available_haproxy
from tests.support.load import Load
from tests.support.numbered import NumberedProducer, lost
from tests.support.pods import Lifecycle, Pods
from tests.support.proxy_process import ROOT
from tests.support.waiting import until

CLIENT: Final = "hot"
QUOTA: Final = 2_000_000
LOADS: Final = 4
LARGEST_REQUEST: Final = 1_000_000  # librdkafka's
LIFE: Final = Lifecycle(pre_stop=1.0, min_ready=3.0)
STEADY_SECONDS: Final = 60.0


@pytest.mark.timeout(300)
def test_rolling_upgrade_of_a_fleet_loses_and_doubles_nothing_and_keeps_the_quota(
    kafka: Cluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    available_haproxy()
    numbered, hot = create_topic(partitions=3, replication=3), create_topic(partitions=3)
    with (
        Pods(kafka.bootstrap(), tmp_path, f"__fleet-{tmp_path.name}", (ROOT, ROOT), life=LIFE) as pods,
        NumberedProducer(pods.bootstrap, numbered, partitions=3) as load,
    ):
        pods.set_quota(CLIENT, "producer_byte_rate", QUOTA)
        load.wait_for(200)
        loads = [Load(pods.bootstrap, hot, CLIENT) for _ in range(LOADS)]
        try:
            until(lambda: all(each.bytes for each in loads), "all are served", STEADY_SECONDS)
            time.sleep(5)  # the burst
            began, before, (_, failed) = (
                time.monotonic(),
                sum(each.bytes for each in loads),
                pods.connections(),
            )
            replaced = pods.upgrade()
            seconds, passed = time.monotonic() - began, sum(each.bytes for each in loads) - before
        finally:
            for each in loads:
                each.stop()
        load.wait_for(200)
        load.stop()
        assert pods.connections()[1] == failed, "no pod has refused a connection"
        assert pods.holder() is not None
        processes = len(pods.ended) + len(pods.pods)
    assert [pod.number for pod in replaced] == [2, 1, 0]
    assert (load.failed, lost(load, kafka.bootstrap())) == ([], [])
    most = 1.01 * QUOTA * seconds + QUOTA + processes * LARGEST_REQUEST
    assert 0.5 * QUOTA * seconds < passed <= most, f"{passed / QUOTA / seconds:.2f} of the quota"
