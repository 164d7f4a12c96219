"""Connects the Kafka group that chooses the holder, which has a thread of its own, with this member's port."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import aiokafka
import aiokafka.consumer.consumer
from aiokafka import errors
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocol,
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import LeaveGroupRequest
from aiokafka.structs import OffsetAndMetadata

from proxy.config import Address, FleetOptions
from proxy.events import Tell, untold
from proxy.events.kinds import HolderMoved
from proxy.fleet.election import (
    NO_TERM,
    Claim,
    Lasting,
    Past,
    Roster,
    Ruling,
    Standing,
    Statements,
    choose,
    read_roster,
    write_roster,
)
from proxy.fleet.messages import NAME_BYTES_MAX, NONCE_BYTES, cut
from proxy.fleet.port import AGAIN_MS, HolderPort
from proxy.fleet.secret import NO_SECRET, FleetSecret
from proxy.metrics.fleet import FleetFigures
from proxy.system.errors import reason
from proxy.system.logs import event
from proxy.topics.clients import bounded, client_options, problem_of, start_client, stop_client
from proxy.topics.records import Problem
from proxy.topics.topic import Access, LoopThread, ProblemError, TopicSpec, create, find
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import LeaseTerms
from quotas.sharing.lessor import Lessor

logger = logging.getLogger(__name__)


# Membership of the Kafka group that chooses the holder of a fleet; the only module here that needs aiokafka.
#
# The group's members are consumers of a topic of one partition, with their own assignor (`Assignor`). The statements of
# `proxy.fleet.election` are its user data. The holder commits an offset once a second; Kafka refuses commits of an
# earlier generation, so a commit confirms the tenure. The commit's metadata tells the next holder how long leases may
# last after it, and to whom they were granted. The holder also gets the partition, for tools that describe the group.
# The topic is neither read nor written.
#
# A ruling that is not signed by a member changes nothing for those that have followed the group without a gap: in each
# generation at most one of them is the holder, and if all of the next generation come from this one, that remains so. A
# member that has missed a generation does not know whether another holder was chosen there, and stops.
#
# A commit is one request, and is not repeated by itself: a second attempt could carry a later generation, or come after
# the next commit. While it is not known whether a commit was accepted, no newcomer is leased to that it does not name;
# the group is joined again then, since its next generation ends the doubt.
#
# The group runs in a thread with an event loop of its own, and calls `Listener` there.


SESSION_MS: Final = 6000  # the least that brokers accept by default
HEARTBEAT_MS: Final = 500
REBALANCE_MS: Final = 10_000
CONFIRM_SECONDS: Final = 1.0
_CONFIRM_SECONDS_MAX: Final = 4.0
_POLL_SECONDS: Final = 0.1  # a member that was chosen, or has a newcomer, commits after this time
_EXPEL_SECONDS_MAX: Final = 2.0
# Before each attempt. Together they are about as long as a session: then the broker removes the member itself.
EXPEL_PAUSES_SECONDS: Final = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 1.6)
_DESCRIBED_FIELDS: Final = 6  # of a group in a response: error, group, state, types, members
# After this time without a response the group is joined again; if its topic was deleted, it is created then.
SILENCE_MS: Final = 20_000
ASK_SECONDS: Final = 5.0  # between two checks, in a member that is not the holder, of the coordinator
PAUSE_SECONDS_MIN: Final = 0.5
PAUSE_SECONDS_MAX: Final = 10.0
_PROTOCOL: Final = "sluice-fleet-3"  # of the first two, members had other statements
_METADATA_VERSION: Final = 0
_PARTITION: Final = 0

_SAID_BYTES_MAX: Final = 4096  # of a member's metadata or assignment; a longer one is not Sluice's

UNSIGNED: Final = (
    "the leader of the group, which chooses the holder, is no member with this fleet.secret_file: either the files of "
    "members differ, or a foreign client is in the group, which an authorizer at the brokers prevents"
)
OTHER_VERSION: Final = (
    "the group has members of another version of Sluice, or foreign ones: all members must be of one version, so end "
    "those of the earlier one"
)

# A commit is refused: another generation has begun, or begins.
_REJOINS: Final = (
    errors.CommitFailedError,
    errors.IllegalStateError,
    errors.RebalanceInProgressError,
    errors.UnknownMemberIdError,
    errors.IllegalGenerationError,
)


class Listener(Protocol):
    """What `FleetGroup` reports to its owner; it calls these methods in the thread of the group."""

    def ruled(self, ruling: Ruling, mine: bool) -> None:
        """Take a ruling: the group leader's choice of the holder; `mine`: whether it has chosen this member."""

    def confirmed(self, sent_ms: int, learning_ms: int, roster: Roster) -> None:
        """Take Kafka's confirmation that this member is the holder: it has accepted the holder's commit.

        Args:
            sent_ms: when the commit was sent, by the clock of leases.
            learning_ms: how long earlier leases may still last, in ms; used only if this member becomes the holder now.
            roster: the latest list of lessees (processes that may have leases) that is committed for certain.
        """

    def group_problem(self, problem: Problem | None) -> None:
        """Take the reason why the group cannot be used; None: it can. The same one may be reported repeatedly."""

    def unsigned(self, what: str, count: int = 1, member: str = "") -> None:
        """Take note of statements that were ignored, since they are not signed with the fleet's secret.

        Args:
            what: "claim", "ruling" or "commit".
            count: how many were ignored.
            member: for claims, Kafka's member id of one sender; else "".
        """


def decoded_metadata(data: bytes) -> Any:
    """Decode the consumer metadata with which a member has joined the group; empty metadata if it is malformed."""
    nothing = ConsumerProtocolMemberMetadata(_METADATA_VERSION, [], b"")
    return _decoded(ConsumerProtocol.METADATA, data, nothing)


def own_assignment(data: bytes, topics: Container[str]) -> Any:
    """Decode a member's assignment, and reduce it to partition 0 of one topic; empty if it is malformed.

    The leader may be a foreign client, and aiokafka would fetch all partitions that it assigns. User data is kept.

    Args:
        topics: the topics from which a partition is accepted.
    """
    nothing = ConsumerProtocolMemberAssignment(_METADATA_VERSION, [], b"")
    found = _decoded(ConsumerProtocol.ASSIGNMENT, data, nothing)
    own = [
        (topic, [_PARTITION])
        for topic, partitions in found.assignment or ()
        if topic in topics and _PARTITION in (partitions or ())
    ]
    return ConsumerProtocolMemberAssignment(_METADATA_VERSION, own[:1], found.user_data or b"")


def _decoded(kind: Any, data: bytes, nothing: Any) -> Any:
    if len(data) > _SAID_BYTES_MAX:
        return nothing
    try:
        return kind.decode(data)
    except Exception:  # noqa: BLE001 - aiokafka raises whatever each field does
        return nothing


class _Coordinator(GroupCoordinator):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's coordinator, in which no other member's words end the membership."""

    async def _perform_assignment(self, response: Any) -> Any:
        assignor = self._lookup_assignor(response.group_protocol)
        assert assignor is not None, "Kafka chooses among the protocols of this member"
        # Topics of other members are of no interest.
        self._group_subscription = set(self._subscription.subscription.topics)
        self._metadata_snapshot = self._get_metadata_snapshot()
        members = {member[0]: decoded_metadata(member[-1]) for member in response.members}
        return assignor.assign(self._cluster, members)

    async def _on_join_complete(self, generation: int, member_id: str, protocol: str, data: bytes) -> None:
        own = own_assignment(data, self._subscription.subscription.topics)
        await super()._on_join_complete(generation, member_id, protocol, own.encode())


aiokafka.consumer.consumer.GroupCoordinator = _Coordinator


class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """The group's partition assignor: chooses the holder if this member is the group's leader. One for each membership.

    It also passes on the ruling (the choice of the holder) that this member receives.

    Args:
        statements: signs and verifies what members say in the group.
        claim: returns this member's signed claim.
        ruled: called with the signed ruling for this member.
        unsigned: called with the member ids of those whose claims are ignored.
    """

    name = _PROTOCOL

    def __init__(
        self,
        topic: str,
        statements: Statements,
        claim: Callable[[], bytes],
        ruled: Callable[[bytes], None],
        unsigned: Callable[[Sequence[str]], None],
    ) -> None:
        self._topic = topic
        self._statements = statements
        self._claim = claim
        self._ruled = ruled
        self._unsigned = unsigned

    def metadata(self, topics: Iterable[str]) -> Any:
        """Return the metadata with which this member joins the group; the user data is its claim."""
        return ConsumerProtocolMemberMetadata(_METADATA_VERSION, list(topics), self._claim())

    def assign(self, _cluster: object, members: Mapping[str, Any]) -> dict[str, Any]:
        """Choose the holder; return each member's assignment with its ruling. Called in the group's leader only."""
        statements, claims, unsigned = self._statements, dict[str, Claim](), list[str]()
        for member, metadata in members.items():
            claim = statements.read_claim(metadata.user_data or b"", member)
            if claim is None:
                unsigned.append(member)
            else:
                claims[member] = claim
        if unsigned:
            self._unsigned(unsigned)
        chosen, ruling = choose(claims)
        said = dict.fromkeys(members, b"")
        for member, claim in claims.items():
            said[member] = statements.write_ruling(ruling, member, claim.nonce, mine=member == chosen)
        return {
            member: ConsumerProtocolMemberAssignment(
                _METADATA_VERSION, [(self._topic, [_PARTITION])] if member == chosen else [], data
            )
            for member, data in said.items()
        }

    def on_assignment(self, assignment: Any) -> None:
        """Pass the ruling, the user data of this member's assignment, to `ruled`; called after each rebalance."""
        self._ruled(assignment.user_data or b"")


class FleetGroup:
    """One member's membership in the Kafka group that chooses the holder.

    Args:
        group: the name of the group, and of its topic.
        name: this member's name.
        tenure_ms: how long this member remains the holder after a commit that Kafka has accepted, in ms.
        lasting_ms: how long leases may last after such a commit, in ms.
        listener: called in the group's thread.
        now_ms: the clock of leases, in ms.
        run: a random number that identifies this process from its start to its end.
        secret: the fleet's secret, with which statements are signed.
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
        run: int = 0,
        secret: FleetSecret = NO_SECRET,
    ) -> None:
        self._run = run
        self._joined: Any = None  # the consumer, also while it joins
        self._generation = -1  # in which the last ruling was made
        self._roster: Roster | None = None  # what to commit, while this member is the holder
        # Whether this member was the holder in the last generation too, so no other one in between.
        self._goes_on = False
        self._doubtful: list[Roster] = []  # whether they were committed in this generation is not known
        self._access = access
        self._secret_file = secret
        self._secret = b""
        self._statements = Statements(b"", group)
        self._nonce = b""
        self._bound = False  # whether the last claim was made for a member id
        # The last generation that left no gap, for this member id.
        self._followed: tuple[str, int] | None = None
        self._group = group
        self._place = aiokafka.TopicPartition(group, _PARTITION)
        self._name = cut(name, NAME_BYTES_MAX)
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
        self._look_at_ms = 0  # at the secret's file

    async def advertise(self, address: Address | None) -> None:
        """Set the address at which other members reach this one, and join again; None: it cannot be the holder."""
        self._address = address

    async def enlist(self, known: Roster, roster: Roster) -> None:
        """Set the list of lessees (processes that may have leases) that this holder commits, and commit it soon.

        No effect if `known`, an earlier list of the caller's lessor, is not of the same lessor as the list in force:
        this member is then not the holder any more, or became it anew.
        """
        if self._roster is not None and self._roster.begun is known.begun:
            self._roster = roster
            self._confirm_ms = 0

    async def expel(self, address: Address) -> None:
        """Ask Kafka to remove the holder at this address, whose process has ended, so that the others choose again.

        If the process has not ended after all, the cost is a change of the holder. Attempts are repeated until there is
        another ruling: a group that is being joined again is described without assignments, so the holder cannot be
        told from others, and the coordinator may be away for a moment. This member joins again only after the removal:
        that would make the group wait for the holder, until its session is over.
        """
        ruling = self._standing.ruling
        if ruling is None or ruling.address != address:
            return
        for pause in EXPEL_PAUSES_SECONDS:
            await asyncio.sleep(pause)
            if self._standing.ruling is not ruling:
                return
            if self._consumer is not None and await self._remove_holder(self._consumer._coordinator, ruling):
                break
        else:
            event(logger, logging.INFO, "the holder that has ended could not be removed from the group")
        if self._consumer is not None and self._standing.ruling is ruling:
            self._consumer._coordinator.request_rejoin()

    async def _remove_holder(self, coordinator: Any, ruling: Ruling) -> bool:
        """Remove the members from the group that have its partition; return whether the coordinator has done so.

        Args:
            ruling: by which the holder is known; none is removed any more as soon as there is another one.
        """
        removed = False
        try:
            asked = coordinator._send_req(DescribeGroupsRequest([self._group]))
            for found in (await bounded(asked, _EXPEL_SECONDS_MAX)).groups:
                for member_id in _holders(found, self._group):
                    if self._standing.ruling is not ruling:
                        return removed
                    request = LeaveGroupRequest(self._group, member_id)
                    left = await bounded(coordinator._send_req(request), _EXPEL_SECONDS_MAX)
                    removed = removed or errors.for_code(left.error_code) is errors.NoError
        except (errors.KafkaError, TimeoutError) as error:
            logger.debug("the holder that has ended is not removed from the group yet: %s", error)
        return removed

    async def resign(self, lasting_ms: int) -> None:
        """Commit for the last time, if this member is the holder: for how many ms its leases may still last."""
        self._lasting_ms, self._ended = lasting_ms, True
        if self._consumer is not None and self._standing.holds(self._now_ms()) and self._roster is not None:
            try:
                await self._commit(self._consumer, self._roster)
            except (errors.KafkaError, TimeoutError) as error:
                logger.debug("the end of this holder is not committed: %s", error)

    async def run(self) -> None:
        """Join the group, and join again after each failure, until cancelled."""
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
        """Keep the membership until the address or the secret changes.

        Raises:
            ProblemError: the topic or the group cannot be used.
        """
        self._claimed = self._address
        self._secret = await self._secret_file.read()
        self._statements = statements = Statements(self._secret, self._group)
        spec = TopicSpec(self._group, one_partition=False)
        if await find(self._access, spec) is None:
            await create(self._access, spec)
        consumer = aiokafka.AIOKafkaConsumer(
            self._group,
            **await client_options(self._access),
            group_id=self._group,
            partition_assignment_strategy=[
                Assignor(self._group, statements, self._claim, self._rule, self._note_claims)
            ],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            enable_auto_commit=False,
            auto_offset_reset="latest",
        )
        self._joined = consumer
        try:
            await start_client(consumer)
            self._consumer = consumer
            self._heard_ms = self._now_ms()
            while self._claimed == self._address and self._secret == await self._secret_now():
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
            if self._standing.mine:
                if self._standing.asks or now_ms >= self._confirm_ms:
                    await self._confirm(consumer)
            elif now_ms >= self._ask_at_ms:
                self._ask_at_ms = now_ms + int(ASK_SECONDS * 1000)
                await bounded(consumer.committed(self._place), _CONFIRM_SECONDS_MAX)
                self._responded()
        except _REJOINS:
            return  # the group is joined again in the background
        except (TimeoutError, errors.KafkaError) as error:
            if isinstance(error, errors.KafkaError) and not error.retriable:
                raise
            problem = Problem("unreachable", reason(error, _CONFIRM_SECONDS_MAX))
            if self._now_ms() - self._heard_ms > SILENCE_MS:
                raise ProblemError(*problem) from error
            self._listener.group_problem(problem)

    async def _confirm(self, consumer: Any) -> None:
        """Confirm this holder's tenure by a commit; a result after another ruling is ignored."""
        standing = self._standing
        ruling = standing.ruling
        if standing.asks:
            await self._succeed(consumer, ruling)
            if standing.ruling is not ruling:
                return
        roster = self._roster
        assert roster is not None, "it has been read what the last holder has committed"
        sent_ms = self._now_ms()
        self._confirm_ms = sent_ms + int(CONFIRM_SECONDS * 1000)
        try:
            await self._commit(consumer, roster)
        except _REJOINS:
            raise  # it was refused
        except (errors.KafkaError, TimeoutError):
            if roster not in self._doubtful:
                self._doubtful.append(roster)
            self._confirm_ms = 0
            raise
        if standing.ruling is not ruling or self._ended:
            return
        if self._doubtful:
            roster = self._surely(roster)
            consumer._coordinator.request_rejoin()
        learning_ms = standing.confirm(sent_ms)
        if standing.holds(self._now_ms()):
            self._listener.confirmed(sent_ms, learning_ms, roster)
        self._responded()

    async def _succeed(self, consumer: Any, ruling: Ruling | None) -> None:
        """Read what the last holder has committed; it counts unless there was another ruling in between."""
        # `committed` does not return the metadata.
        asked = consumer._coordinator.fetch_committed_offsets([self._place])
        found = await bounded(asked, _CONFIRM_SECONDS_MAX)
        if self._standing.ruling is not ruling:
            return
        committed = found[self._place].metadata if self._place in found else None
        lasting = None if committed is None else self._statements.read_lasting(committed)
        if committed is not None and lasting is None and self._statements.signed:
            self._listener.unsigned("commit")
        believed = self._standing.succeed(lasting, committed=committed is not None)
        past = read_roster(committed) if believed else Past(0, None)
        if self._roster is None or not (self._goes_on or past.author == self._run):
            self._roster = Roster(past, 0, past.lessees)  # another member may have been the holder meanwhile

    def _surely(self, committed: Roster) -> Roster:
        """Return the roster with a number that is surely committed: not above that of any roster in doubt."""
        own = [one.number for one in self._doubtful if one.begun is committed.begun]
        number = min(own) if len(own) == len(self._doubtful) else -1
        return committed._replace(number=min(number, committed.number))

    def _responded(self) -> None:
        """Register that the group's coordinator has responded: the group can be used."""
        self._heard_ms = self._now_ms()
        self._listener.group_problem(self._unread)

    def _problem_of(self, error: Exception) -> Problem:
        """Return the problem of an error, of aiokafka or of this package, that has ended the membership."""
        if any(isinstance(one, errors.GroupAuthorizationFailedError) for one in (error, error.__cause__)):
            return Problem("denied", f"an ACL denies Read on group {self._group} to Sluice's own user")
        if any(isinstance(one, errors.InconsistentGroupProtocolError) for one in (error, error.__cause__)):
            return Problem("version", OTHER_VERSION)
        if isinstance(error, ProblemError):
            return error.problem
        return problem_of(error, "be a member of the group").problem

    async def _commit(self, consumer: Any, roster: Roster) -> None:
        """Commit once, in the generation of the last ruling.

        Raises:
            CommitFailedError: it is over.
            KafkaError, TimeoutError: it may have been accepted or not.
        """
        ruling = self._standing.ruling
        assert ruling is not None, "only a holder commits"
        lasting = Lasting(self._lasting_ms, ruling.term)
        word = self._statements.write_lasting(lasting, self._name, write_roster(self._run, roster.lessees))
        coordinator = consumer._coordinator
        if coordinator.generation != self._generation:
            raise errors.CommitFailedError("the group is being joined again")
        # Not `consumer.commit`, which repeats it, and refuses if an unsigned ruling has left this member without the
        # partition. The request is made in the first step, without a wait before.
        sent = coordinator._do_commit_offsets(None, {self._place: OffsetAndMetadata(0, word)})
        await bounded(sent, _CONFIRM_SECONDS_MAX)

    async def _secret_now(self) -> bytes:
        """Return the secret in force; the file is looked at every few seconds."""
        now_ms = self._now_ms()
        if now_ms < self._look_at_ms:
            return self._secret
        self._look_at_ms = now_ms + int(ASK_SECONDS * 1000)
        return await self._secret_file.read()

    def _claim(self) -> bytes:
        self._claimed = self._address
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        member: str = self._joined._coordinator.member_id
        self._bound = bool(member)
        number = self._standing.number(self._now_ms())
        claim = Claim(self._name, self._claimed, self._run, number, self._standing.known, self._nonce)
        return self._statements.write_claim(claim, member)

    def _note_claims(self, members: Sequence[str]) -> None:
        self._listener.unsigned("claim", len(members), members[0])

    def _rule(self, data: bytes) -> None:
        coordinator = self._joined._coordinator
        member, generation = coordinator.member_id, coordinator.generation
        found = self._statements.read_ruling(data, member, self._nonce)
        follows = self._followed == (member, generation - 1)
        self._followed, self._generation = (member, generation), generation
        self._doubtful.clear()  # Kafka accepts no commit of an earlier generation any more
        self._unread = None if found is not None else Problem("unsigned", UNSIGNED)
        self._listener.group_problem(self._unread)
        if found is None:
            self._listener.unsigned("ruling")
            if follows:
                return
            # Who the holder is cannot be known here, but it is not this member.
            found, self._followed = (Ruling("", None, NO_TERM), False), None
        ruling, mine = found
        self._goes_on = follows and mine and self._standing.mine
        if not mine:
            self._roster = None
        self._standing.rule(ruling, self._now_ms(), mine=mine)
        self._listener.ruled(ruling, mine)
        if self._statements.signed and not (ruling.name or self._bound) and self._claimed is not None:
            coordinator.request_rejoin()  # with a claim that is bound


def _holders(described: Any, group: str) -> list[str]:
    """Return the ids of the members that have the group's partition, as Kafka describes the group."""
    *_, members = described[:_DESCRIBED_FIELDS]
    return [str(member[0]) for member in members if own_assignment(member[-1] or b"", {group}).assignment]


TENURE_MS: Final = 5000
_RESIGN_SECONDS_MAX: Final = 2.0
NO_HOLDER: Final = "no member can be the holder"
_ENDED_MAX: Final = 64  # holders that have ended, as remembered
_ENDED_TOLD: Final = 4


class Elected:
    """Makes this member the holder while the group has chosen it: connects `FleetGroup` with this member's port.

    Args:
        access: the access to the group's cluster.
        port: this member's port, which serves the others while this member is the holder.
        terms: returns the lease terms between the holder and its members.
        capacities: divides the capacities among classes while this member is the holder.
        tell: called with an event when the holder changes.
        run: a random number that identifies this process from its start to its end.
        secret: the fleet's secret.

    Attributes:
        address: the holder's address by the group's last ruling; None if it is not known.
        problem: why the group cannot be used; None if it can.
    """

    def __init__(
        self,
        options: FleetOptions,
        access: Access,
        port: HolderPort,
        terms: Callable[[], LeaseTerms],
        capacities: Capacities,
        now_ms: Callable[[], int],
        figures: FleetFigures,
        tell: Tell = untold,
        run: int = 0,
        secret: FleetSecret = NO_SECRET,
    ) -> None:
        self._run = run
        self._begun: Past | None = None  # what the present lessor began with, or the last one
        self._ended: dict[int, int] = {}  # the runs of holders that have ended, and when that was seen
        port.enlists = self._enlist
        self._tell = tell
        self._holder: str | None = None  # its name; "" for none, None before the first ruling
        self._unsigned_ms: dict[str, int] = {}  # when the last line was logged
        self._options = options
        self._port = port
        self._terms = terms
        self._capacities = capacities
        self._now_ms = now_ms
        self._figures = figures
        self._loop = asyncio.get_running_loop()
        self.address: Address | None = None
        self.problem: Problem | None = None
        self._closing = False
        lasting_ms = terms().lasting_ms(TENURE_MS)
        self._group = FleetGroup(
            access, options.group, options.own_name, TENURE_MS, lasting_ms, self, now_ms, run, secret
        )
        self._thread = LoopThread("fleet")
        self._thread.submit(self._group.run())

    def bound(self) -> None:
        """Offer this member to the group as a possible holder; called when its port is bound."""
        self._thread.submit(self._group.advertise(self._options.own_address))

    @property
    def ended(self) -> str:
        """The last few holders whose processes this member has seen end; the next holder then frees their shares.

        Each is its run (the random number that identifies its process) in hexadecimal, space-separated; "" for none.
        """
        return " ".join(f"{run:x}" for run in list(self._ended)[-_ENDED_TOLD:])

    def holder_ended(self, address: Address, run: int) -> None:
        """Register that the process of a holder has ended: free its shares, and remove it from the group.

        Args:
            address: where that holder was reached.
            run: the random number that identifies its process.
        """
        now_ms = self._now_ms()
        if len(self._ended) >= _ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        self._ended[run] = now_ms
        if self._port.lessor is not None:
            self._port.lessor.ended(run, now_ms)
        self._thread.submit(self._group.expel(address))

    async def close(self) -> None:
        """Leave the group, so that it chooses another member without delay.

        If this member is the holder, it stops granting first, and commits how long its leases may still last.
        """
        self._closing = True
        lasting_ms = self._port.lasting_ms()
        self._port.retire("the holder has ended")
        if lasting_ms is not None:
            resigned = asyncio.wrap_future(self._thread.submit(self._group.resign(lasting_ms)))
            with suppress(TimeoutError):
                await asyncio.wait_for(resigned, _RESIGN_SECONDS_MAX)
        await asyncio.to_thread(self._thread.close)

    # Called in the group's thread.

    def ruled(self, ruling: Ruling, mine: bool) -> None:
        """Pass a ruling (the choice of the holder) on to the application's loop.

        There it sets `address`, reports a change of the holder, and stops serving other members unless `mine`.
        `mine`: whether this member was chosen; it serves the others only after `confirmed`.
        """
        self._call(self._ruled, ruling, mine)

    def confirmed(self, sent_ms: int, learning_ms: int, roster: Roster) -> None:
        """Pass Kafka's confirmation of this holder to the application's loop (`Listener.confirmed`)."""
        self._call(self._confirmed, sent_ms, learning_ms, roster)

    def group_problem(self, problem: Problem | None) -> None:
        """Pass to the application's loop why the group cannot be used; None if it can."""
        self._call(self._note_problem, problem)

    def unsigned(self, what: str, count: int = 1, member: str = "") -> None:
        """Pass to the application's loop that unsigned statements were ignored (`Listener.unsigned`)."""
        self._call(self._note_unsigned, what, count, member)

    def _call(self, act: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *arguments)

    # Called in the application's loop.

    def _ruled(self, ruling: Ruling, mine: bool) -> None:
        self.address = ruling.address
        before, self._holder = self._holder, ruling.name
        if before is not None and before != ruling.name:
            self._tell(HolderMoved(before, ruling.name, str(ruling.address or "")))
        if not mine:
            self._port.retire(
                f"{ruling.name} is the holder, at {ruling.address}" if ruling.name else NO_HOLDER
            )

    def _confirmed(self, sent_ms: int, learning_ms: int, roster: Roster) -> None:
        """Extend this holder's tenure; become the holder if this member is not yet.

        It is never the holder before Kafka has its commit, which its successor reads.
        """
        if self._closing:
            return
        if roster.begun is not self._begun:
            self._port.retire("another member was the holder meanwhile")
        lessor = self._port.lessor
        if lessor is None:
            lessor = self._lead(learning_ms, roster)
        self._port.confirm(sent_ms)
        if roster.begun is self._begun:
            lessor.enlist(roster.number)

    def _lead(self, learning_ms: int, roster: Roster) -> Lessor:
        """Become the holder; returns the new lessor."""
        at_ms, again = self._now_ms(), roster.begun is self._begun
        begun = Past(self._run, None) if again else roster.begun
        capacities = self._capacities.begin()
        lessor = Lessor(self._terms(), self._run, capacities, at_ms, learning_ms, begun.lessees)
        if again:  # its tenure was over: what the group has is the roster of the lessor before
            lessor.enlist(-1)
            self._thread.submit(self._group.enlist(roster, Roster(begun, 0, None)))
        self._begun = begun
        for run, ended_ms in self._ended.items():
            lessor.ended(run, ended_ms)
        self._port.lead(lessor, TENURE_MS)
        return lessor

    def _enlist(self, number: int, lessees: frozenset[int] | None) -> None:
        """Commit the roster of this holder, after a change."""
        if self._begun is not None:
            roster = Roster(self._begun, number, lessees)
            self._thread.submit(self._group.enlist(roster, roster))

    def _note_unsigned(self, what: str, count: int, member: str) -> None:
        """Count an ignored statement; log one line for each kind in ten minutes."""
        self._figures.unsigned[what] += count
        now_ms = self._now_ms()
        if now_ms < self._unsigned_ms.get(what, 0):
            return
        self._unsigned_ms[what] = now_ms + AGAIN_MS
        event(
            logger,
            logging.WARNING,
            "ignored in the group of the fleet: it is not signed with fleet.secret_file",
            group=self._options.group,
            what=what,
            member=member,
        )

    def _note_problem(self, problem: Problem | None) -> None:
        """Log one line for each problem, not for each attempt; the texts of one cause may vary between attempts."""
        group, before = self._options.group, self.problem
        self.problem, self._figures.group_problem = problem, "" if problem is None else problem.cause
        if problem is None:
            if before is not None:
                event(logger, logging.INFO, "the group of the fleet can be used again", group=group)
        elif _differs(problem, before):
            event(
                logger,
                logging.WARNING,
                "the group of the fleet cannot be used",
                group=group,
                cause=problem.cause,
                detail=problem.text,
            )


def _differs(problem: Problem, before: Problem | None) -> bool:
    """Whether a problem is to be logged: its cause, or the missing permission, differs from the last one's."""
    if before is None or before.cause != problem.cause:
        return True
    return problem.cause == "denied" and before.text != problem.text
