"""A foreign member of the group that chooses a fleet's holder: it joins with any bytes, through aiokafka.

As the group's leader it gives itself the partition, and others junk.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiokafka
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

PROTOCOL: Final = "sluice-fleet-3"
_JOINED_SECONDS_MAX: Final = 30.0


class Forger(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """The foreign member.

    Attributes:
        generations: how often it was assigned something.
        given: whether it has had the partition.
    """

    name = PROTOCOL

    def __init__(self, topic: str, metadata: Any) -> None:
        self._topic = topic
        self._metadata = metadata
        self.generations = 0
        self.given = False

    def metadata(self, topics: object) -> Any:
        """Return what it joins with."""
        return self._metadata

    def assign(self, _cluster: object, members: dict[str, Any]) -> dict[str, Any]:
        """Rule, if Kafka makes this the leader."""
        return {
            member: ConsumerProtocolMemberAssignment(0, [(self._topic, [0])], b"\2junk") for member in members
        }

    def on_assignment(self, assignment: Any) -> None:
        """Note whether the partition was given to it."""
        self.generations += 1
        self.given = self.given or bool(assignment.assignment)


@asynccontextmanager
async def joined(
    bootstrap: str, group: str, metadata: Any, seconds: float = _JOINED_SECONDS_MAX
) -> AsyncIterator[Forger]:
    """Join the group.

    Raises:
        TimeoutError: it has not joined within `seconds`.
        KafkaError: it was refused.
    """
    forger = Forger(group, metadata)
    consumer = aiokafka.AIOKafkaConsumer(
        group,
        bootstrap_servers=bootstrap,
        group_id=group,
        partition_assignment_strategy=[forger],
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
    )
    starting = asyncio.create_task(consumer.start())
    try:
        async with asyncio.timeout(seconds):
            while not forger.generations:
                if starting.done():
                    starting.result()
                await asyncio.sleep(0.05)
        yield forger
    finally:
        starting.cancel()
        await consumer.stop()


def said(user_data: bytes) -> ConsumerProtocolMemberMetadata:
    """Return the metadata of a member that claims this."""
    return ConsumerProtocolMemberMetadata(0, [], user_data)
