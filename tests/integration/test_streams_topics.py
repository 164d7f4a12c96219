"""Internal topics that brokers create for streams groups count against the mutation quota (KIP-599, KIP-1071)."""

import secrets
import struct
import time

import pytest

from protocol.api import STREAMS_GROUP_HEARTBEAT
from protocol.header import response_body_start
from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.frames import request
from tests.support.gateway_fixture import gateway_fixture
from tests.support.proxy_process import SluiceProcess
from tests.support.raw_topics import coordinator, describe
from tests.support.streams_frames import Part, heartbeat_body, topology
from tests.support.waiting import until
from tests.support.wire import wired

LOADING = 14

sluice = gateway_fixture(
    client_quotas={
        name: {"controller_mutation_rate": rate} for name, rate in (("limited", 1), ("retrying", 5))
    }
)


class Member:
    """One member, which joins again and again."""

    def __init__(self, kafka: Cluster, sluice: SluiceProcess, client_id: str, source: str) -> None:
        self.group = f"streams-{secrets.token_hex(4)}"
        self.changelogs = [f"{self.group}-{number}-changelog" for number in range(5)]
        self._client_id, self._source = client_id, source
        with wired(kafka.address(1)) as wire:
            self._at = sluice.ports.address(coordinator(wire, self.group).node_id)

    def joins(self) -> tuple[int, int, float]:
        """Its error code, its throttle time in ms, and how long it took."""
        part = Part(sources=[self._source], changelogs=self.changelogs)
        body = heartbeat_body(self.group, secrets.token_hex(8), 0, topology(part))
        started = time.monotonic()
        with wired(self._at, self._client_id) as wire:
            wire.send_bytes(request(STREAMS_GROUP_HEARTBEAT, 0, body, client_id=self._client_id))
            frame = wire.receive()
        at = response_body_start(frame, 0, len(frame), STREAMS_GROUP_HEARTBEAT, 0)
        throttle_ms, error_code = struct.unpack_from(">ih", frame, at)
        return error_code, throttle_ms, time.monotonic() - started


def existing(kafka: Cluster, names: list[str]) -> list[int]:
    return [len(describe(kafka, name, partitions=0).leaders) for name in names]


@pytest.fixture
def source(create_topic: CreateTopic) -> str:
    return create_topic(partitions=6)


def test_internal_topics_are_charged_once_and_over_the_quota_none_is_made(
    kafka: Cluster, sluice: SluiceProcess, source: str
) -> None:
    first = Member(kafka, sluice, "limited", source)
    assert first.joins()[0] == 0
    until(lambda: existing(kafka, first.changelogs) == [6] * 5, "the broker has created them")
    assert sluice.metric("sluice_client_mutations_total", client_id="limited") == 30

    second = Member(kafka, sluice, "limited", source)
    error_code, throttle_ms, seconds = second.joins()
    assert (error_code, seconds < 1) == (LOADING, True)
    assert 0 < throttle_ms <= 2000, "no more than a group's heartbeats can wait"
    assert existing(kafka, second.changelogs) == [0] * 5

    assert first.joins()[0] == 0, "its topics are there"
    other = Member(kafka, sluice, "unlimited", source)
    assert other.joins()[0] == 0


def test_member_that_tries_again_joins_when_the_bucket_is_full_enough(
    kafka: Cluster, sluice: SluiceProcess, source: str
) -> None:
    """5/s and a burst of 55: two groups of 30 partitions leave a debt of 5."""
    for _ in range(2):
        assert Member(kafka, sluice, "retrying", source).joins()[0] == 0
    member = Member(kafka, sluice, "retrying", source)
    assert member.joins()[0] == LOADING
    until(lambda: member.joins()[0] == 0, "it joins")
    until(lambda: existing(kafka, member.changelogs) == [6] * 5, "the broker has created them")
