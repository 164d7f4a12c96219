"""The recommended way to refuse a Produce request (docs/refusals.md), kept true for each client family.

A relay stands at the addresses that Sluice advertises. It delivers the responses that are owed, ends the connection
with a FIN, and drops what is pipelined behind the refused request: each family is to send all of it again, in order.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import HOST, Cluster, free_ports
from tests.interop.families import Family
from tests.interop.refusals.measure import Lane, Setting, produce
from tests.interop.refusals.relay import Relay, refusal
from tests.interop.refusals.script import PRODUCE, Script, Way
from tests.support.proxy_process import BROKER_ID_MAX, SluiceProcess, SluiceSettings
from tests.support.wire import part, request, response
from tests.unit.protocol.kafka_frames import framed

# 10 MB: 100 requests of a client that sends each record by itself, 10 of one that fills requests of 1 MB.
SETTING = Setting(records=100)
SOFT_CLOSE = Script(Way.CLOSE, every=4, rounds_max=2)
PORTS = BROKER_ID_MAX + 2


@pytest.fixture(scope="module")
def lane(kafka: Cluster, interop_directory: Path) -> Iterator[Lane]:
    """A relay before a Sluice without quotas."""
    directory = interop_directory / "refusals"
    directory.mkdir()
    first = free_ports(PORTS)[0]
    advertised = {"advertised_bootstrap_port": first, "advertised_first_broker_port": first + 1}
    settings = SluiceSettings(kafka.bootstrap(), listener=advertised)
    routes = {first + offset: (HOST, settings.ports.bootstrap + offset) for offset in range(PORTS)}
    with SluiceProcess.configured(settings, directory), Relay(routes) as relay:
        yield Lane(kafka, relay, f"{HOST}:{first}")


def test_a_soft_close_costs_no_record_and_no_order(family: Family, lane: Lane, tmp_path: Path) -> None:
    outcome = produce(lane, family, SETTING, SOFT_CLOSE, tmp_path)
    assert outcome.survived, f"{outcome}\n{outcome.log}"
    assert outcome.counts.rounds == 2


@pytest.mark.parametrize("version", range(3, 14))
def test_a_refusal_by_error_answers_each_partition(version: int) -> None:
    topic_id = uuid.UUID(int=7)
    entries = [part(PRODUCE, version, "PartitionProduceData", index=index, records=b"r") for index in (0, 5)]
    data = part(PRODUCE, version, "TopicProduceData", name="t", topic_id=topic_id, partition_data=entries)
    asked = request(PRODUCE, version, transactional_id="x", acks=-1, timeout_ms=1, topic_data=[data])
    frame = refusal(framed(asked, correlation_id=9), version, 7, 250)
    assert frame is not None
    assert frame[4:8] == b"\0\0\0\x09"
    answered = response(PRODUCE, version, frame)
    assert answered.throttle_time_ms == 250
    (topic,) = answered.responses
    assert [(entry.index, entry.error_code) for entry in topic.partition_responses] == [(0, 7), (5, 7)]


def test_acks_0_is_not_answered() -> None:
    asked = request(PRODUCE, 9, transactional_id=None, acks=0, timeout_ms=1, topic_data=[])
    assert refusal(framed(asked), 9, 7, 250) is None
