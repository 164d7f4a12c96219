"""Membership of the Kafka group that chooses the holder of a fleet; the only module here that needs aiokafka.

The group's members are consumers of a topic of one partition, with their own assignor (`Assignor`). The claims of
`proxy.fleet.standing` are its user data, and the owner of the partition is the holder. The owner commits an offset once
a second; Kafka refuses commits of an earlier generation, so a commit confirms the tenure. The commit's metadata tells
the next holder how long leases may last after it. The topic is neither read nor written.

The group runs in a thread with an event loop of its own, and calls `Listener` there.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import aiokafka
from aiokafka import errors
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.structs import OffsetAndMetadata

from proxy.config import Address
from proxy.errors import reason
from proxy.fleet.standing import (
    Claim,
    Ruling,
    Standing,
    choose,
    read_claim,
    read_ruling,
    write_claim,
    write_lasting,
    write_ruling,
)
from proxy.topic_log.access import Access
from proxy.topic_log.clients import bounded, client_options, problem_of, start_client, stop_client
from proxy.topic_log.records import Problem
from proxy.topic_log.topic import ProblemError, TopicSpec, create, find

__all__ = ["Assignor", "FleetGroup", "Listener"]

SESSION_MS: Final = 6000  # the least that brokers accept by default
HEARTBEAT_MS: Final = 1000
REBALANCE_MS: Final = 10_000
CONFIRM_SECONDS: Final = 1.0
_CONFIRM_SECONDS_MAX: Final = 4.0
_POLL_SECONDS: Final = 0.25  # a member that was chosen confirms it after this time
# After this time without a response the group is joined again; if its topic was deleted, it is created then.
SILENCE_MS: Final = 20_000
ASK_SECONDS: Final = 5.0  # between two checks, in a member that is not the holder, of the coordinator
PAUSE_SECONDS_MIN: Final = 0.5
PAUSE_SECONDS_MAX: Final = 10.0
_PROTOCOL: Final = "sluice-fleet-1"
_METADATA_VERSION: Final = 0
_PARTITION: Final = 0

UNREAD: Final = (
    "the member that chooses the holder is of another version of Sluice: all members must be of one version"
)

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """The callbacks of the group, which are called in its thread."""

    def ruled(self, ruling: Ruling, mine: bool) -> None:
        """Take a ruling of the group; `mine` is whether this member is the holder."""

    def confirmed(self, sent_ms: int, learning_ms: int) -> None:
        """Take Kafka's confirmation that this member was the holder at `sent_ms`; a new holder learns `learning_ms`."""

    def group_problem(self, problem: Problem | None) -> None:
        """Take the reason why the group cannot be used; None if it can. May be called repeatedly with the same one."""


class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """Gives the partition to the holder. One instance for each membership.

    Args:
        claim: returns this member's claim.
        ruled: takes a ruling, None if it cannot be decoded; and whether it makes this member the holder.
    """

    name = _PROTOCOL

    def __init__(
        self, topic: str, claim: Callable[[], Claim], ruled: Callable[[Ruling | None, bool], None]
    ) -> None:
        self._topic = topic
        self._claim = claim
        self._ruled = ruled

    def metadata(self, topics: Iterable[str]) -> Any:
        """Return the metadata with which this member joins: its claim."""
        return ConsumerProtocolMemberMetadata(_METADATA_VERSION, list(topics), write_claim(self._claim()))

    def assign(self, _cluster: object, members: Mapping[str, Any]) -> dict[str, Any]:
        """Choose the holder; called in the member that Kafka makes the group's leader."""
        claims = {member: read_claim(metadata.user_data or b"") for member, metadata in members.items()}
        chosen, ruling = choose({member: claim for member, claim in claims.items() if claim is not None})
        data = write_ruling(ruling)
        return {
            member: ConsumerProtocolMemberAssignment(
                _METADATA_VERSION, [(self._topic, [_PARTITION])] if member == chosen else [], data
            )
            for member in members
        }

    def on_assignment(self, assignment: Any) -> None:
        """Take the assignment, whose user data is the ruling."""
        self._ruled(read_ruling(assignment.user_data or b""), bool(assignment.assignment))


class FleetGroup:
    """One member's membership.

    Args:
        group: the name of the group, and of its topic.
        name: this member's name.
        lasting_ms: how long leases may last after a confirmation.
        listener: called in the group's thread.
        now_ms: the clock of leases.
    """

    def __init__(
        self,
        access: Access,
        group: str,
        name: str,
        tenure_ms: int,
        lasting_ms: int,
        listener: Listener,
        now_ms: Callable[[], int],
    ) -> None:
        self._access = access
        self._group = group
        self._name = name
        self._standing = Standing(tenure_ms, lasting_ms)
        self._lasting_ms = lasting_ms
        self._ended = False
        self._consumer: Any = None  # while this is a member
        self._confirm_ms = 0  # when to confirm the tenure again
        self._listener = listener
        self._now_ms = now_ms
        self._address: Address | None = None
        self._claimed: Address | None = None  # the address that other members know
        self._ask_at_ms = 0
        self._heard_ms = 0
        self._unread: Problem | None = None

    async def advertise(self, address: Address | None) -> None:
        """Set the address at which other members reach this one; None if it cannot be the holder. Joins again."""
        self._address = address

    async def resign(self, lasting_ms: int) -> None:
        """Commit how long this holder's leases may last, since it grants no more."""
        self._lasting_ms, self._ended = lasting_ms, True
        if self._consumer is not None and self._standing.holds(self._now_ms()):
            try:
                await self._commit(self._consumer)
            except (errors.KafkaError, TimeoutError) as error:
                logger.debug("the end of this holder is not committed: %s", error)

    async def run(self) -> None:
        """Keep the membership until cancelled."""
        pause = PAUSE_SECONDS_MIN
        while True:
            began_ms = self._now_ms()
            try:
                await self._join()
                continue
            except (ProblemError, errors.KafkaError, OSError, TimeoutError) as error:
                problem = self._problem_of(error)
            except Exception as error:  # the edge of a membership: it must not end unseen
                logger.exception("a membership of the group failed")
                problem = Problem("failed", f"internal error: {reason(error)}")
            self._listener.group_problem(problem)
            lasted = self._now_ms() - began_ms > SESSION_MS
            pause = PAUSE_SECONDS_MIN if lasted else min(2 * pause, PAUSE_SECONDS_MAX)
            await asyncio.sleep(pause)

    async def _join(self) -> None:
        """Keep the membership until the address changes.

        Raises:
            ProblemError: the topic or the group cannot be used.
        """
        self._claimed = self._address
        spec = TopicSpec(self._group, one_partition=False)
        if await find(self._access, spec) is None:
            await create(self._access, spec)
        consumer = aiokafka.AIOKafkaConsumer(
            self._group,
            **await client_options(self._access),
            group_id=self._group,
            partition_assignment_strategy=[Assignor(self._group, self._claim, self._rule)],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            enable_auto_commit=False,
            auto_offset_reset="latest",
        )
        try:
            await start_client(consumer)
            self._consumer = consumer
            self._heard_ms = self._now_ms()
            while self._claimed == self._address:
                await self._turn(consumer)
        finally:
            self._consumer = None
            await stop_client(consumer.stop, consumer._client.close)

    async def _turn(self, consumer: Any) -> None:
        """Poll once; confirm the tenure if that is due, else check that the group's coordinator responds.

        The check is needed since aiokafka reports no error while it looks for a coordinator.
        """
        try:
            await bounded(consumer.getmany(timeout_ms=int(_POLL_SECONDS * 1000)), _CONFIRM_SECONDS_MAX)
            now_ms = self._now_ms()
            if self._place in consumer.assignment():
                if self._standing.asks or now_ms >= self._confirm_ms:
                    await self._confirm(consumer)
            elif now_ms >= self._ask_at_ms:
                self._ask_at_ms = now_ms + int(ASK_SECONDS * 1000)
                await bounded(consumer.committed(self._place), _CONFIRM_SECONDS_MAX)
                self._responded()
        except (errors.CommitFailedError, errors.IllegalStateError, errors.RebalanceInProgressError):
            return  # the group is joined again in the background
        except TimeoutError as error:
            problem = Problem("unreachable", reason(error, _CONFIRM_SECONDS_MAX))
            if self._now_ms() - self._heard_ms > SILENCE_MS:
                raise ProblemError(*problem) from error
            self._listener.group_problem(problem)

    @property
    def _place(self) -> Any:
        return aiokafka.TopicPartition(self._group, _PARTITION)

    async def _confirm(self, consumer: Any) -> None:
        """Confirm this holder's tenure by a commit; ignore the result if there was another ruling in between."""
        standing = self._standing
        ruling = standing.ruling
        if standing.asks:
            # `committed` does not return the metadata.
            asked = consumer._coordinator.fetch_committed_offsets([self._place])
            found = await bounded(asked, _CONFIRM_SECONDS_MAX)
            if standing.ruling is not ruling:
                return
            standing.succeed(found[self._place].metadata if self._place in found else None)
        sent_ms = self._now_ms()
        await self._commit(consumer)
        self._confirm_ms = sent_ms + int(CONFIRM_SECONDS * 1000)
        if standing.ruling is not ruling or self._ended:
            return
        learning_ms = standing.confirm(sent_ms)
        if standing.holds(self._now_ms()):
            self._listener.confirmed(sent_ms, learning_ms)
        self._responded()

    def _responded(self) -> None:
        """Note that the group's coordinator has responded."""
        self._heard_ms = self._now_ms()
        self._listener.group_problem(self._unread)

    def _problem_of(self, error: Exception) -> Problem:
        """Return the problem of an error, of aiokafka or of this package, that has ended the membership."""
        if any(isinstance(one, errors.GroupAuthorizationFailedError) for one in (error, error.__cause__)):
            return Problem("denied", f"an ACL denies Read on group {self._group} to Sluice's own user")
        if isinstance(error, ProblemError):
            return error.problem
        return problem_of(error, "be a member of the group").problem

    async def _commit(self, consumer: Any) -> None:
        word = write_lasting(self._lasting_ms, self._name)
        await bounded(consumer.commit({self._place: OffsetAndMetadata(0, word)}), _CONFIRM_SECONDS_MAX)

    def _claim(self) -> Claim:
        self._claimed = self._address
        return Claim(self._name, self._claimed, self._standing.term(self._now_ms()))

    def _rule(self, ruling: Ruling | None, mine: bool) -> None:
        if ruling is None:
            # Written by another version: who the holder is cannot be known here, but it is not this member.
            self._unread = Problem("version", UNREAD)
            nothing = Ruling("", None, 0)
            self._standing.rule(nothing, self._now_ms(), mine=False)
            self._listener.ruled(nothing, False)
            self._listener.group_problem(self._unread)
            return
        self._unread = None
        self._standing.rule(ruling, self._now_ms(), mine=mine)
        self._listener.group_problem(None)
        self._listener.ruled(ruling, mine)
