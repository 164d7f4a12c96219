"""A group member that fetches and heartbeats on one connection keeps its membership, however far over its quota.

That is what sarama and KafkaJS do; here with raw frames, the shortest session timeout a broker allows, and debts
whose throttle time would be longer than it.
"""

import secrets
import time
from dataclasses import dataclass

import pytest

from tests.cluster import HOST, Cluster
from tests.conftest import CreateTopic
from tests.support.gateway_fixture import gateway_fixture
from tests.support.proxy_process import SluiceProcess
from tests.support.raw_topics import Topic, batch, coordinator, describe, fetch, fetch_request, write
from tests.support.wire import Wire, part, request, response, wired

JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
FETCH_VERSION = 11
SESSION_TIMEOUT_MS = 6_000
MEMBER_ID_REQUIRED = 79
RETRIABLE = {14, 15, 16}  # the coordinator is loading, not there yet, or elsewhere
BYTES_PER_SECOND = 5_000
BATCH_BYTES = 60_000
RUN_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Membership:
    """The member that the broker knows."""

    group: str
    generation: int
    member: str


# A quota at which one batch costs twice the session timeout.
sluice = gateway_fixture(
    "function",
    policies=["kip13", "schedule"],
    client_quotas={"<default>": {"consumer_byte_rate": BYTES_PER_SECOND}},
)


@pytest.fixture(scope="module")
def topic(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    """Six partitions, each with ten batches of 60 KB."""
    found = describe(kafka, create_topic(partitions=6))
    for partition, leader in found.leaders.items():
        for _ in range(10):
            write(kafka.address(leader), found, partition, batch([bytes(BATCH_BYTES)]))
    return found


def join(wire: Wire, group: str) -> Membership:
    """Join as the only member, and sync."""
    protocol = part(JOIN_GROUP, 5, "JoinGroupRequestProtocol", name="range", metadata=b"")
    member, deadline = "", time.monotonic() + 30
    while True:
        joined = response(
            JOIN_GROUP,
            5,
            wire.ask(
                request(
                    JOIN_GROUP,
                    5,
                    group_id=group,
                    session_timeout_ms=SESSION_TIMEOUT_MS,
                    rebalance_timeout_ms=SESSION_TIMEOUT_MS,
                    member_id=member,
                    group_instance_id=None,
                    protocol_type="consumer",
                    protocols=[protocol],
                )
            ).frame,
        )
        if joined.error_code == 0:
            break
        assert joined.error_code in RETRIABLE | {MEMBER_ID_REQUIRED}, str(joined)
        assert time.monotonic() < deadline, str(joined)
        member = joined.member_id
    mine = part(SYNC_GROUP, 3, "SyncGroupRequestAssignment", member_id=joined.member_id, assignment=b"all")
    synced = wire.ask(
        request(
            SYNC_GROUP,
            3,
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=None,
            assignments=[mine],
        )
    )
    assert response(SYNC_GROUP, 3, synced.frame).error_code == 0
    return Membership(group, joined.generation_id, joined.member_id)


def test_member_that_fetches_far_over_its_quota_is_never_expelled(
    sluice: SluiceProcess, topic: Topic
) -> None:
    group = f"member-{secrets.token_hex(4)}"
    with wired((HOST, sluice.ports.bootstrap)) as wire:
        found = coordinator(wire, group)
    node = found.node_id
    assert (found.host, found.port) == sluice.ports.address(node)
    partition = topic.led_by(node)[0]
    with wired(sluice.ports.address(node), group) as wire:
        own = join(wire, group)
        ends = time.monotonic() + RUN_SECONDS
        throttled, longest, received = 0, 0.0, 0
        while time.monotonic() < ends:
            message = fetch_request(topic, {partition: 0}, version=FETCH_VERSION, max_wait_ms=100)
            reply, _ = fetch(wire, message, FETCH_VERSION)
            throttled += reply.throttle_time_ms > 0
            received += sum(
                len(entry.records or b"") for found in reply.responses for entry in found.partitions
            )
            beat = wire.ask(
                request(
                    HEARTBEAT,
                    3,
                    group_id=group,
                    generation_id=own.generation,
                    member_id=own.member,
                    group_instance_id=None,
                )
            )
            longest = max(longest, beat.seconds)
            assert response(HEARTBEAT, 3, beat.frame).error_code == 0, f"after {longest:.1f} s"
    assert throttled >= 5
    assert received > 0
    # Well below the session timeout: a fifth of it, and what a busy machine adds.
    assert longest <= SESSION_TIMEOUT_MS / 1000 / 2 + 0.5
