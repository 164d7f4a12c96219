"""Connects the Kafka group that chooses the holder, which has a thread of its own, with this member's port."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
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
    Said,
    Standing,
    Statements,
    choose,
    choose_all,
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
# If the keys are divided into parts, each part has a holder, a partition, and its own commits in it. The generations of
# the group fence all of them; a holder of several parts commits for all in one request.
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

_SAID_BYTES_MAX: Final = 32_768  # of a member's metadata or assignment; a longer one is not Sluice's

UNSIGNED: Final = (
    "the leader of the group, which chooses the holder, is no member with this fleet.secret_file: either the files of "
    "members differ, or a foreign client is in the group, which an authorizer at the brokers prevents"
)
OTHER_VERSION: Final = (
    "the group has members of another version of Sluice or with another fleet.parts, or foreign ones: both must be the "
    "same in all members, so end those of the earlier version or number"
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

    def ruled(self, said: Sequence[Said]) -> None:
        """Take the rulings: of each part, the leader's choice of the holder, and whether it is this member."""

    def confirmed(self, part: int, sent_ms: int, learning_ms: int, roster: Roster) -> None:
        """Take Kafka's confirmation that this member is the holder of a part: it has accepted the holder's commit.

        Args:
            part: the number of the part.
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


def own_assignment(data: bytes, topics: Container[str], parts: int = 1) -> Any:
    """Decode a member's assignment, and reduce it to the parts' partitions of one topic; empty if it is malformed.

    The leader may be a foreign client, and aiokafka would fetch all partitions that it assigns. User data is kept.

    Args:
        topics: the topics from which partitions are accepted.
        parts: the number of parts; their partitions have the same numbers.
    """
    nothing = ConsumerProtocolMemberAssignment(_METADATA_VERSION, [], b"")
    found = _decoded(ConsumerProtocol.ASSIGNMENT, data, nothing)
    own = [
        (topic, wanted)
        for topic, partitions in found.assignment or ()
        if topic in topics and (wanted := sorted(set(partitions or ()) & set(range(parts))))
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
        assignor = self._lookup_assignor(protocol)
        assert isinstance(assignor, Assignor), "Kafka chooses among the protocols of this member"
        own = own_assignment(data, self._subscription.subscription.topics, assignor.parts)
        await super()._on_join_complete(generation, member_id, protocol, own.encode())


aiokafka.consumer.consumer.GroupCoordinator = _Coordinator


class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """The group's partition assignor: chooses the holder if this member is the group's leader. One for each membership.

    It also passes on the ruling (the choice of the holder) that this member receives.

    Args:
        parts: the number of parts, each with a holder.
        statements: signs and verifies what members say in the group.
        claim: returns this member's signed claim.
        ruled: called with the signed ruling for this member.
        unsigned: called with the member ids of those whose claims are ignored.
    """

    name = _PROTOCOL

    def __init__(
        self,
        topic: str,
        parts: int,
        statements: Statements,
        claim: Callable[[], bytes],
        ruled: Callable[[bytes], None],
        unsigned: Callable[[Sequence[str]], None],
    ) -> None:
        # Kafka refuses a member with another number of parts: its keys would have other lessors.
        if parts > 1:
            self.name = f"{_PROTOCOL}.{parts}"
        self.parts = parts
        self._topic = topic
        self._statements = statements
        self._claim = claim
        self._ruled = ruled
        self._unsigned = unsigned

    def metadata(self, topics: Iterable[str]) -> Any:
        """Return the metadata with which this member joins the group; the user data is its claim."""
        return ConsumerProtocolMemberMetadata(_METADATA_VERSION, list(topics), self._claim())

    def assign(self, _cluster: object, members: Mapping[str, Any]) -> dict[str, Any]:
        """Choose the holders; return each member's assignment with its ruling. Called in the group's leader only."""
        statements, claims, unsigned = self._statements, dict[str, Claim](), list[str]()
        for member, metadata in members.items():
            claim = statements.read_claim(metadata.user_data or b"", member)
            if claim is None:
                unsigned.append(member)
            else:
                claims[member] = claim
        if unsigned:
            self._unsigned(unsigned)
        chosen = [choose(claims)] if self.parts == 1 else choose_all(claims, self.parts)
        said = dict.fromkeys(members, b"")
        for member, claim in claims.items():
            rulings = [(ruling, member == holder) for holder, ruling in chosen]
            said[member] = statements.write_ruling(rulings, member, claim.nonce)
        own = {
            member: [part for part, (holder, _) in enumerate(chosen) if holder == member]
            for member in members
        }
        return {
            member: ConsumerProtocolMemberAssignment(
                _METADATA_VERSION, [(self._topic, own[member])] if own[member] else [], data
            )
            for member, data in said.items()
        }

    def on_assignment(self, assignment: Any) -> None:
        """Pass the ruling, the user data of this member's assignment, to `ruled`; called after each rebalance."""
        self._ruled(assignment.user_data or b"")


class _Seat:
    """What one member knows of the holder of one part.

    Attributes:
        roster: what to commit, while this member is the holder.
        goes_on: whether this member was the holder in the last generation too, so no other one in between.
        doubtful: the rosters of which is not known whether they were committed in this generation.
    """

    def __init__(self, standing: Standing, place: Any) -> None:
        self.standing = standing
        self.place = place  # the partition
        self.roster: Roster | None = None
        self.goes_on = False
        self.doubtful: list[Roster] = []

    def rule(self, said: Said, now_ms: int, *, follows: bool) -> None:
        """Apply a ruling; `follows`: no generation was missed."""
        ruling, mine = said
        self.goes_on = follows and mine and self.standing.mine
        if not mine:
            self.roster = None
        self.standing.rule(ruling, now_ms, mine=mine)

    def surely(self, committed: Roster) -> Roster:
        """Return the roster with a number that is surely committed: not above that of any roster in doubt."""
        if not self.doubtful:
            return committed
        own = [one.number for one in self.doubtful if one.begun is committed.begun]
        number = min(own) if len(own) == len(self.doubtful) else -1
        return committed._replace(number=min(number, committed.number))


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
        parts: the number of parts of the keys, each with a holder.
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
        parts: int = 1,
    ) -> None:
        self._run = run
        self._joined: Any = None  # the consumer, also while it joins
        self._generation = -1  # in which the last ruling was made
        self._rulings = 0  # counts them
        self._seats = [
            _Seat(Standing(tenure_ms, lasting_ms), aiokafka.TopicPartition(group, part))
            for part in range(parts)
        ]
        self._access = access
        self._secret_file = secret
        self._secret = b""
        self._statements = Statements(b"", group)
        self._nonce = b""
        self._bound = False  # whether the last claim was made for a member id
        # The last generation that left no gap, for this member id.
        self._followed: tuple[str, int] | None = None
        self._group = group
        self._name = cut(name, NAME_BYTES_MAX)
        self._lasting_ms = [lasting_ms] * parts
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

    async def enlist(self, part: int, known: Roster, roster: Roster) -> None:
        """Set the list of lessees (processes that may have leases) that this holder commits, and commit it soon.

        No effect if `known`, an earlier list of the caller's lessor, is not of the same lessor as the list in force:
        this member is then not the holder any more, or became it anew.
        """
        seat = self._seats[part]
        if seat.roster is not None and seat.roster.begun is known.begun:
            seat.roster = roster
            self._confirm_ms = 0

    async def expel(self, address: Address) -> None:
        """Ask Kafka to remove the holder at this address, whose process has ended, so that the others choose again.

        If the process has not ended after all, the cost is a change of the holder. Attempts are repeated until there is
        another ruling: a group that is being joined again is described without assignments, so the holder cannot be
        told from others, and the coordinator may be away for a moment. This member joins again only after the removal:
        that would make the group wait for the holder, until its session is over.
        """
        rulings, own = self._rulings, set[int]()
        for part, seat in enumerate(self._seats):
            if seat.standing.ruling is not None and seat.standing.ruling.address == address:
                own.add(part)
        if not own:
            return
        for pause in EXPEL_PAUSES_SECONDS:
            await asyncio.sleep(pause)
            if self._rulings != rulings:
                return
            if self._consumer is not None and await self._remove_holder(
                self._consumer._coordinator, own, rulings
            ):
                break
        else:
            event(logger, logging.INFO, "the holder that has ended could not be removed from the group")
        if self._consumer is not None and self._rulings == rulings:
            self._consumer._coordinator.request_rejoin()

    async def _remove_holder(self, coordinator: Any, parts: set[int], rulings: int) -> bool:
        """Remove the members from the group that have its partitions; return whether the coordinator has done so.

        Args:
            parts: those of the holder; they are the numbers of its partitions.
            rulings: the number of the rulings by which it is known; after further ones none is removed any more.
        """
        removed = False
        try:
            asked = coordinator._send_req(DescribeGroupsRequest([self._group]))
            for found in (await bounded(asked, _EXPEL_SECONDS_MAX)).groups:
                for member_id in _holders(found, self._group, parts):
                    if self._rulings != rulings:
                        return removed
                    request = LeaveGroupRequest(self._group, member_id)
                    left = await bounded(coordinator._send_req(request), _EXPEL_SECONDS_MAX)
                    removed = removed or errors.for_code(left.error_code) is errors.NoError
        except (errors.KafkaError, TimeoutError) as error:
            logger.debug("the holder that has ended is not removed from the group yet: %s", error)
        return removed

    async def resign(self, lasting_ms: Mapping[int, int]) -> None:
        """Commit for the last time, if this member is a holder: for how many ms its leases may still last.

        Args:
            lasting_ms: by the number of the part.
        """
        self._ended = True
        now_ms, rosters = self._now_ms(), {}
        for part, ms in lasting_ms.items():
            seat = self._seats[part]
            self._lasting_ms[part] = ms
            if seat.standing.holds(now_ms) and seat.roster is not None:
                rosters[part] = seat.roster
        if self._consumer is not None and rosters:
            try:
                await self._commit(self._consumer, rosters)
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
        spec = TopicSpec(self._group, one_partition=False, partitions=len(self._seats))
        if await find(self._access, spec) is None:
            await create(self._access, spec)
        consumer = aiokafka.AIOKafkaConsumer(
            self._group,
            **await client_options(self._access),
            group_id=self._group,
            partition_assignment_strategy=[
                Assignor(
                    self._group, len(self._seats), statements, self._claim, self._rule, self._note_claims
                )
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
            if any(seat.standing.mine for seat in self._seats):
                if any(seat.standing.asks for seat in self._seats) or now_ms >= self._confirm_ms:
                    await self._confirm(consumer)
            elif now_ms >= self._ask_at_ms:
                self._ask_at_ms = now_ms + int(ASK_SECONDS * 1000)
                await bounded(consumer.committed(self._seats[0].place), _CONFIRM_SECONDS_MAX)
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
        rulings = self._rulings
        if any(seat.standing.asks for seat in self._seats):
            await self._succeed(consumer, rulings)
            if self._rulings != rulings:
                return
        rosters = {
            part: seat.roster for part, seat in enumerate(self._seats) if seat.standing.mine and seat.roster
        }
        assert rosters, "it has been read what the last holder has committed"
        sent_ms = self._now_ms()
        self._confirm_ms = sent_ms + int(CONFIRM_SECONDS * 1000)
        try:
            await self._commit(consumer, rosters)
        except _REJOINS:
            raise  # it was refused
        except (errors.KafkaError, TimeoutError):
            for part, roster in rosters.items():
                if roster not in self._seats[part].doubtful:
                    self._seats[part].doubtful.append(roster)
            self._confirm_ms = 0
            raise
        if self._rulings != rulings or self._ended:
            return
        doubtful = any(seat.doubtful for seat in self._seats)
        sure = {part: self._seats[part].surely(roster) for part, roster in rosters.items()}
        if doubtful:
            consumer._coordinator.request_rejoin()
        self._confirmed(sure, sent_ms)
        self._responded()

    def _confirmed(self, rosters: Mapping[int, Roster], sent_ms: int) -> None:
        """Extend the tenures: Kafka has accepted the commit that was sent at this time."""
        for part, roster in rosters.items():
            seat = self._seats[part]
            learning_ms = seat.standing.confirm(sent_ms)
            if seat.standing.holds(self._now_ms()):
                self._listener.confirmed(part, sent_ms, learning_ms, roster)

    async def _succeed(self, consumer: Any, rulings: int) -> None:
        """Read what the last holders have committed; it counts unless there was another ruling in between."""
        asking = [part for part, seat in enumerate(self._seats) if seat.standing.asks]
        places = [self._seats[part].place for part in asking]
        # `committed` does not return the metadata.
        found = await bounded(consumer._coordinator.fetch_committed_offsets(places), _CONFIRM_SECONDS_MAX)
        if self._rulings != rulings:
            return
        for part in asking:
            seat = self._seats[part]
            committed = found[seat.place].metadata if seat.place in found else None
            lasting = None if committed is None else self._statements.read_lasting(committed, part)
            if committed is not None and lasting is None and self._statements.signed:
                self._listener.unsigned("commit")
            believed = seat.standing.succeed(lasting, committed=committed is not None)
            past = read_roster(committed) if believed else Past(0, None)
            if seat.roster is None or not (seat.goes_on or past.author == self._run):
                seat.roster = Roster(
                    past, 0, past.lessees
                )  # another member may have been the holder meanwhile

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

    async def _commit(self, consumer: Any, rosters: Mapping[int, Roster]) -> None:
        """Commit once, in the generation of the last ruling, for all parts of which this member is the holder.

        Raises:
            CommitFailedError: it is over.
            KafkaError, TimeoutError: it may have been accepted or not.
        """
        words = {}
        for part, roster in rosters.items():
            seat = self._seats[part]
            assert seat.standing.ruling is not None, "only a holder commits"
            lasting = Lasting(self._lasting_ms[part], seat.standing.ruling.term)
            lessees = write_roster(self._run, roster.lessees)
            word = self._statements.write_lasting(lasting, self._name, lessees, part)
            words[seat.place] = OffsetAndMetadata(0, word)
        coordinator = consumer._coordinator
        if coordinator.generation != self._generation:
            raise errors.CommitFailedError("the group is being joined again")
        # Not `consumer.commit`, which repeats it, and refuses if an unsigned ruling has left this member without the
        # partition. The request is made in the first step, without a wait before.
        await bounded(coordinator._do_commit_offsets(None, words), _CONFIRM_SECONDS_MAX)

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
        now_ms = self._now_ms()
        (number, known), *more = [(seat.standing.number(now_ms), seat.standing.known) for seat in self._seats]
        claim = Claim(self._name, self._claimed, self._run, number, known, self._nonce, parts=tuple(more))
        return self._statements.write_claim(claim, member)

    def _note_claims(self, members: Sequence[str]) -> None:
        self._listener.unsigned("claim", len(members), members[0])

    def _rule(self, data: bytes) -> None:
        coordinator = self._joined._coordinator
        member, generation = coordinator.member_id, coordinator.generation
        parts = len(self._seats)
        said = self._statements.read_ruling(data, member, self._nonce, parts)
        follows = self._followed == (member, generation - 1)
        self._followed, self._generation = (member, generation), generation
        for seat in self._seats:
            seat.doubtful.clear()  # Kafka accepts no commit of an earlier generation any more
        self._unread = None if said is not None else Problem("unsigned", UNSIGNED)
        self._listener.group_problem(self._unread)
        if said is None:
            self._listener.unsigned("ruling")
            if follows:
                return
            # Who the holder is cannot be known here, but it is not this member.
            said, self._followed = [(Ruling("", None, NO_TERM), False)] * parts, None
        self._rulings += 1
        now_ms = self._now_ms()
        for seat, one in zip(self._seats, said, strict=True):
            seat.rule(one, now_ms, follows=follows)
        self._listener.ruled(said)
        # Parts are also given to members that come later.
        wanted = parts > 1 or not said[0][0].name
        if self._statements.signed and wanted and not self._bound and self._claimed is not None:
            coordinator.request_rejoin()  # with a claim that is bound


def _holders(described: Any, group: str, parts: set[int]) -> list[str]:
    """Return the ids of the members that have any of these partitions, as Kafka describes the group."""
    *_, members = described[:_DESCRIBED_FIELDS]
    own = {
        str(member[0]): own_assignment(member[-1] or b"", {group}, max(parts) + 1).assignment
        for member in members
    }
    return [
        one for one, assigned in own.items() if any(parts & set(partitions) for _, partitions in assigned)
    ]


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
        capacities: of each part of the keys; divide the capacities among classes while this member is the holder.
        tell: called with an event when the holder changes.
        run: a random number that identifies this process from its start to its end.
        secret: the fleet's secret.

    Attributes:
        addresses: of each part of the keys, the holder's address by the group's last ruling; None if it is not known.
        problem: why the group cannot be used; None if it can.
    """

    def __init__(
        self,
        options: FleetOptions,
        access: Access,
        port: HolderPort,
        terms: Callable[[], LeaseTerms],
        capacities: Sequence[Capacities],
        now_ms: Callable[[], int],
        figures: FleetFigures,
        tell: Tell = untold,
        run: int = 0,
        secret: FleetSecret = NO_SECRET,
    ) -> None:
        self._run = run
        parts = len(port.seats)
        self._begun: list[Past | None] = [
            None
        ] * parts  # what the present lessors began with, or the last ones
        self._ended: dict[int, int] = {}  # the runs of holders that have ended, and when that was seen
        for part, seat in enumerate(port.seats):
            seat.enlists = partial(self._enlist, part)
        self._expelling: dict[int, Future[None]] = {}  # by the run
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
        self.addresses: list[Address | None] = [None] * parts
        self.problem: Problem | None = None
        self._closing = False
        lasting_ms = terms().lasting_ms(TENURE_MS)
        self._group = FleetGroup(
            access, options.group, options.own_name, TENURE_MS, lasting_ms, self, now_ms, run, secret, parts
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
        for seat in self._port.seats:
            if seat.lessor is not None:
                seat.lessor.ended(run, now_ms)
        before = self._expelling.get(run)
        if before is None or before.done():  # a holder of several parts ends once
            self._expelling = {run: self._thread.submit(self._group.expel(address))}

    async def close(self) -> None:
        """Leave the group, so that it chooses another member without delay.

        If this member is the holder, it stops granting first, and commits how long its leases may still last.
        """
        self._closing = True
        lasting_ms = {}
        for part, seat in enumerate(self._port.seats):
            ms = seat.lasting_ms()
            if ms is not None:
                lasting_ms[part] = ms
            seat.retire("the holder has ended")
        if lasting_ms:
            resigned = asyncio.wrap_future(self._thread.submit(self._group.resign(lasting_ms)))
            with suppress(TimeoutError):
                await asyncio.wait_for(resigned, _RESIGN_SECONDS_MAX)
        await asyncio.to_thread(self._thread.close)

    # Called in the group's thread.

    def ruled(self, said: Sequence[Said]) -> None:
        """Pass the rulings (the choice of each part's holder) on to the application's loop.

        There it sets `addresses`, reports a change of the first part's holder, and stops serving other members in the
        parts of which this member was not chosen; in the others it serves them only after `confirmed`.
        """
        self._call(self._ruled, said)

    def confirmed(self, part: int, sent_ms: int, learning_ms: int, roster: Roster) -> None:
        """Pass Kafka's confirmation of this holder to the application's loop (`Listener.confirmed`)."""
        self._call(self._confirmed, part, sent_ms, learning_ms, roster)

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

    def _ruled(self, said: Sequence[Said]) -> None:
        ruling, _ = said[0]
        before, self._holder = self._holder, ruling.name
        if before is not None and before != ruling.name:
            self._tell(HolderMoved(before, ruling.name, str(ruling.address or "")))
        for part, (ruling, mine) in enumerate(said):
            self.addresses[part] = ruling.address
            if not mine:
                self._port.seats[part].retire(
                    f"{ruling.name} is the holder, at {ruling.address}" if ruling.name else NO_HOLDER
                )

    def _confirmed(self, part: int, sent_ms: int, learning_ms: int, roster: Roster) -> None:
        """Extend this holder's tenure; become the holder of the part if this member is not yet.

        It is never the holder before Kafka has its commit, which its successor reads.
        """
        if self._closing:
            return
        seat = self._port.seats[part]
        if roster.begun is not self._begun[part]:
            seat.retire("another member was the holder meanwhile")
        lessor = seat.lessor
        if lessor is None:
            lessor = self._lead(part, learning_ms, roster)
        seat.confirm(sent_ms)
        if roster.begun is self._begun[part]:
            lessor.enlist(roster.number)

    def _lead(self, part: int, learning_ms: int, roster: Roster) -> Lessor:
        """Become the holder of a part; returns the new lessor."""
        at_ms, again = self._now_ms(), roster.begun is self._begun[part]
        begun = Past(self._run, None) if again else roster.begun
        capacities = self._capacities[part].begin()
        lessor = Lessor(self._terms(), self._run, capacities, at_ms, learning_ms, begun.lessees)
        if again:  # its tenure was over: what the group has is the roster of the lessor before
            lessor.enlist(-1)
            self._thread.submit(self._group.enlist(part, roster, Roster(begun, 0, None)))
        self._begun[part] = begun
        for run, ended_ms in self._ended.items():
            lessor.ended(run, ended_ms)
        self._port.seats[part].lead(lessor, TENURE_MS)
        return lessor

    def _enlist(self, part: int, number: int, lessees: frozenset[int] | None) -> None:
        """Commit the roster of this holder, after a change."""
        begun = self._begun[part]
        if begun is not None:
            roster = Roster(begun, number, lessees)
            self._thread.submit(self._group.enlist(part, roster, roster))

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
