"""Clients of brokers without an authorizer attack the group that chooses the holder: forged claims, rulings, commits.

They join the group at the broker, beside Sluice, with what they have read there: the genuine members' ids and claims.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.protocol.commit import OffsetCommitRequest

from proxy.config import Address
from proxy.control.cluster.bypasses import is_unguarded
from proxy.fleet.election import NO_TERM, TERM_MAX, Claim, Statements
from proxy.fleet.messages import NONCE_BYTES
from proxy.topics.topic import Access, TopicSpec, create
from tests.cluster import Cluster
from tests.integration.test_fleet_group import (
    LEARNING_SECONDS,
    TAKES_OVER_SECONDS,
    THIRDS,
    Member,
    fleet,
    holder_of,
    know_their_shares,
    learned,
    never_above_the_budget,
)
from tests.support.forged_members import joined, said
from tests.support.waiting import until

STAYS_SECONDS: Final = 3.0
GENERATIONS: Final = range(1, 40)  # Kafka tells no one the present one; an attacker tries
IGNORED: Final = "ignored in the group of the fleet"


async def described(kafka: Cluster, group: str) -> dict[str, bytes]:
    """The members of the group by id, with their claims, as any client may read them."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap())
    await admin.start()
    try:
        (response,) = await admin.describe_consumer_groups([group])
        members = response.groups[0][5]
        # While the group rebalances their metadata is empty.
        return {
            one[0]: ConsumerProtocol.METADATA.decode(one[3]).user_data if one[3] else b"" for one in members
        }
    finally:
        await admin.close()


@pytest.fixture
def members(kafka: Cluster, tmp_path: Path) -> Iterator[list[Member]]:
    """Three members that know their shares."""
    with fleet(kafka, f"__forged-{tmp_path.name}", tmp_path / "fleet") as found:
        know_their_shares(found)
        yield found


def all_logs(members: list[Member]) -> str:
    return "".join(member.log.read_text() for member in members)


@pytest.mark.timeout(300)
def test_forged_claims_and_commits_move_no_holder_and_no_share(kafka: Cluster, members: list[Member]) -> None:
    holder, began_ms = holder_of(members), int(members[0].now["at"])
    group = str(holder.now["group"])
    forged = Claim("x", Address("127.0.0.1", 9), 1, TERM_MAX, NO_TERM, bytes(NONCE_BYTES))

    async def attack() -> None:
        genuine = await described(kafka, group)
        assert len(genuine) == len(members)
        forgeries = {
            "term of 2^62, as the first version had it": said(
                b"\1\1x\x09127.0.0.1\0\x09" + (2**62).to_bytes(8)
            ),
            "greatest term": said(Statements(b"", group).write_claim(forged, "")),
            "another secret": said(Statements(b"guess", group).write_claim(forged, "")),
            "no metadata": b"\xff" * 9,
            **{f"claim of {member}": said(claim) for member, claim in genuine.items()},
        }
        for name, metadata in forgeries.items():
            async with joined(kafka.bootstrap(), group, metadata) as forger:
                await asyncio.sleep(STAYS_SECONDS)
                assert not forger.given, name

    asyncio.run(attack())
    until(lambda: IGNORED in all_logs(members), seconds=10)
    assert holder_of(members) is holder
    assert [member.share for member in members] == THIRDS
    lines = [line for member in members for line in member.lines if line["at"] > began_ms]
    assert all(line["leased"] and not line["cut_off"] for line in lines)
    assert {line["holder"] for line in lines} == {holder.address}
    never_above_the_budget(members, began_ms)

    # The holder is killed, and a client commits under a member's id that its leases are over.
    left = [member for member in members if member is not holder]
    holder.signal(signal.SIGKILL)
    asyncio.run(
        commit_until(kafka, group, "leases_ms=0 holder=x", lambda: any(one.now["holds"] for one in left))
    )
    assert learned(left)
    never_above_the_budget(left, began_ms)


async def commit_until(kafka: Cluster, group: str, text: str, over: Callable[[], bool]) -> None:
    """Commit under the ids of all members, in each generation that there may be."""
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap())
    await client.bootstrap()
    accepted, end = 0, time.monotonic() + TAKES_OVER_SECONDS + LEARNING_SECONDS
    try:
        while not over():
            assert time.monotonic() < end, "no member has become the holder in time"
            coordinator = await client.coordinator_lookup(CoordinationType.GROUP, group)
            await client.ready(coordinator, group=ConnectionGroup.COORDINATION)
            for member in await described(kafka, group):
                for generation in GENERATIONS:
                    commit = OffsetCommitRequest(group, generation, member, -1, [(group, [(0, 0, text)])])
                    response = await client.send(coordinator, commit, group=ConnectionGroup.COORDINATION)
                    accepted += not response.topics[0][1][0][1]
            await asyncio.sleep(0.2)
    finally:
        await client.close()
    assert accepted, "Kafka has accepted what a client has committed"


@pytest.mark.timeout(300)
def test_foreign_leader_of_the_group_is_named_and_the_fleet_begins_when_it_is_gone(
    kafka: Cluster, tmp_path: Path
) -> None:
    group = f"__forged-{tmp_path.name}"
    found: list[Member] = []

    async def attack() -> None:
        brokers = [
            (host, int(port))
            for host, _, port in (one.rpartition(":") for one in kafka.bootstrap().split(","))
        ]
        assert await is_unguarded(Access(brokers)), "which makes this possible"
        await create(Access(brokers), TopicSpec(group, one_partition=False))
        async with joined(kafka.bootstrap(), group, said(b"")) as forger:
            assert forger.given, "it is the leader, since it was there first"
            found.append(Member("a", kafka, group, tmp_path))
            await asyncio.to_thread(
                until, lambda: "no member with this" in str(found[0].now.get("group_problem"))
            )
            assert not found[0].now.get("holds")

    try:
        asyncio.run(attack())
        until(lambda: found[0].now["holds"] and found[0].now["leased"], seconds=40)
    finally:
        for member in found:
            member.signal(signal.SIGKILL)
