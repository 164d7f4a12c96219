"""The recommended way to refuse a Produce request (docs/refusals.md), kept true for each client family.

A relay stands at the addresses that Sluice advertises. It delivers the responses that are owed, ends the connection
with a FIN, and drops what is pipelined behind the refused request: each family is to send all of it again, in order.
"""

import concurrent.futures
import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import HOST, Cluster
from tests.interop.conftest import available
from tests.interop.families import FAMILIES, Family
from tests.interop.fronts import behind
from tests.interop.refusals.measure import Lane, Setting, produce
from tests.interop.refusals.relay import Relay, refusal
from tests.interop.refusals.script import PRODUCE, Script, Way
from tests.support.proxy_process import SluiceProcess
from tests.support.wire import part, request, response
from tests.unit.protocol.kafka_frames import framed

# 10 MB: 100 requests of a client that sends each record by itself, 10 of one that fills requests of 1 MB.
SETTING = Setting(records=100)
SOFT_CLOSE = Script(Way.CLOSE, every=4, rounds_max=2)

# Five producers of one client id have a request of 800 kB waiting each: 4 MB, and a hold takes 1 s of 1.6 MB/s.
CROWDED = "crowded"
PRODUCERS = 5
RATE = 1_600_000
SMALL_HOLDS = {"policy": "schedule", "scope": "cluster", "hold_seconds_max": 1, "mute_seconds_max": 1}
CROWDED_SETTING = Setting(records=5, size=800_000, client_id=CROWDED)
NOTHING = Script(Way.CLOSE, every=0)


@contextlib.contextmanager
def fronted(kafka: Cluster, directory: Path, **fields: Any) -> Iterator[tuple[Lane, SluiceProcess]]:
    """A relay before a Sluice."""
    with (
        behind(kafka.bootstrap(), directory, **fields) as (sluice, routes),
        Relay({port: (HOST, own) for port, own in routes.items()}) as relay,
    ):
        yield Lane(kafka, relay, f"{HOST}:{min(routes)}"), sluice


@pytest.fixture(scope="module")
def lane(kafka: Cluster, interop_directory: Path) -> Iterator[Lane]:
    """A relay before a Sluice without quotas."""
    with fronted(kafka, interop_directory / "refusals") as (lane, _sluice):
        yield lane


def test_a_soft_close_costs_no_record_and_no_order(family: Family, lane: Lane, tmp_path: Path) -> None:
    outcome = produce(lane, family, SETTING, SOFT_CLOSE, tmp_path)
    assert outcome.survived, f"{outcome}\n{outcome.log}"
    assert outcome.counts.rounds == 2


@pytest.mark.parametrize("name", ["java", "librdkafka"])
def test_refused_produce_is_retried_by_clients(name: str, kafka: Cluster, tmp_path: Path) -> None:
    family = available(next(family for family in FAMILIES if family.name == name))
    limits = {CROWDED: {"producer_byte_rate": RATE}}
    with fronted(kafka, tmp_path, quotas=SMALL_HOLDS, client_quotas=limits) as (crowded, sluice):
        with concurrent.futures.ThreadPoolExecutor(PRODUCERS) as pool:
            runs = [
                pool.submit(produce, crowded, family, CROWDED_SETTING, NOTHING, tmp_path)
                for _ in range(PRODUCERS)
            ]
            outcomes = [run.result() for run in runs]
        refused = sluice.metric("sluice_produce_refused_total", kind="acks")
    assert refused > 0
    assert [outcome for outcome in outcomes if not outcome.survived] == []


@pytest.mark.parametrize("version", range(3, 14))
def test_a_refusal_by_error_responds_to_each_partition(version: int) -> None:
    topic_id = uuid.UUID(int=7)
    entries = [part(PRODUCE, version, "PartitionProduceData", index=index, records=b"r") for index in (0, 5)]
    data = part(PRODUCE, version, "TopicProduceData", name="t", topic_id=topic_id, partition_data=entries)
    asked = request(PRODUCE, version, transactional_id="x", acks=-1, timeout_ms=1, topic_data=[data])
    frame = refusal(framed(asked, correlation_id=9), version, 7, 250)
    assert frame is not None
    assert frame[4:8] == b"\0\0\0\x09"
    received = response(PRODUCE, version, frame)
    assert received.throttle_time_ms == 250
    (topic,) = received.responses
    assert [(entry.index, entry.error_code) for entry in topic.partition_responses] == [(0, 7), (5, 7)]
