"""The channel of a follower: throttled partitions are left out of Fetches; all else is forwarded (KIP-73).

    follower ──► ReplicaRequests ──► leader      link: the follower's partitions, the leader's session
                     │   ▲
                    link │
                     ▼   │
    follower ◄── ResponseDirection ◄── leader

    request    Fetch 12-18 of a follower ──► unchanged, or with partitions left out or limited
    request    no partition left ───────────► WAIT (held) ─► decided on again, or an empty local response
    request    Fetch of another version ───► unchanged, and counted; no partition can be left out
    response   Fetch ──► walked: high watermarks and bytes; error and session id may be replaced by the follower's

A replica is left out if it is throttled, is behind, and one of its rates has no room: it is removed from the leader's
session, and added again as soon as there is room. A replica in sync must never be left out (KAFKA-4313), and one
without a known high watermark may be in sync: it is fetched with a limit of one byte, which returns its high watermark;
at most one of all such replicas returns a batch. The same applies to a full request, whose response must contain every
replica.

A replica that the follower has just begun to fetch may be throttled before Sluice knows it: it was just created, or is
being added. Unless it is in sync it is left out until the cluster was asked (`ReplicationSource`).

Brokers know each other's versions by metadata.version and do not negotiate them, so versions cannot be hidden. Clients
have another class of channel, so that replication costs their requests nothing; client quotas do not apply here.
Inter-broker SASL exchanges are forwarded unread: since Kafka 1.0 brokers frame them (KIP-152).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from protocol.api import FETCH
from protocol.header import REQUEST_HEAD, RequestHead
from protocol.messages import fetch
from protocol.messages.fetch import FetchFields, TopicPartition
from protocol.messages.replica_session import (
    VERSION_MIN,
    WRONG_EPOCH,
    FollowerRequest,
    ReplicaSession,
    is_full,
    read_follower,
)
from protocol.primitives import Portions, clear, for_each
from protocol.walks.fetch import ReplicaStatus, ReplicaWalk
from protocol.walks.walk import Walk
from proxy.channel.direction import (
    NS_PER_MS,
    Buffer,
    ChannelDirection,
    ChannelState,
    Entry,
    Observer,
    Owed,
    copied,
    skip_header_tags,
)
from proxy.channel.errors import REPLICA_FETCH_BYTES_MAX, PeerError
from proxy.channel.requests import HEAD_BYTES, RequestReader
from proxy.channel.responses import ResponseDirection
from proxy.channel.settings import ANY_BROKER
from proxy.channel.verdict import PASS, WALK, Verdict
from proxy.system.stats import Stats
from quotas.replication.replication_quotas import REPLICAS_MAX, Claim, Claims, ReplicationQuotas, Sharing

# The limit for a replica that may be in sync: the response has its high watermark and hardly any bytes.
_PROBE_BYTES: Final = 1
# The shortest wait that is sent to a leader; with less it would be asked all the time.
_WAIT_MS_MIN: Final = 5
# How soon to check whether a new replica is throttled, and how long to wait for the result.
_CHECK_MS: Final = 30
_CHECK_MS_MAX: Final = 2000
# The wait of an empty Fetch from a follower that asks for no wait (replica.fetch.wait.max.ms).
_EMPTY_WAIT_MS_MIN: Final = 100


class FetchDecision(NamedTuple):
    """What a follower's Fetch may request from its leader.

    Args:
        limits: the max_bytes of partitions; 0 leaves one out. All others keep the follower's limit.
        ready_ms: when more may be fetched, in ms; None if no partition is left out.
        empty: whether every partition is left out: no bytes are granted, and the request must not be forwarded.
    """

    limits: dict[TopicPartition, int]
    ready_ms: int | None = None
    empty: bool = False


class ReplicaThrottle(NamedTuple):
    """The replication limit because of which a follower's replicas are left out of a Fetch.

    Args:
        side: "leader" or "follower": whether the leader's limit is exceeded, or the follower's.
        broker: the broker that has the limit.
        limit: in bytes/s, for all processes of Sluice together.
    """

    side: str
    broker: int
    limit: float


@dataclass(slots=True, eq=False)
class ReplicaLink(Observer):
    """A follower's connection to a leader: its fetch session, and the bytes that it has reserved at replication quotas.

    A *claim* holds the bytes reserved for the next response of one replica. A request is taken and decided on in
    portions (`protocol.primitives`). Between two of them, other links may reserve bytes, quotas may change, and the
    connection may end. The lists of throttled replicas are as old as the claims.

    Attributes:
        follower: the id of the fetching broker; -1 before its first Fetch.
        session: the partitions that the follower fetches, and those in the leader's session.
        waiting: whether the current request was applied to the session (`take`), and has not been forwarded.
        unthrottled: whether no replica is left out on this connection, since it has too many to be kept in memory.
        fetch_in_flight: whether a Fetch is with the leader.
        changed: whether quotas have changed since the current request was decided on.
        now_ms: the time of the next portion; set before each.
    """

    _quotas: ReplicationQuotas
    leader: int
    _stats: Stats
    follower: int = -1
    session: ReplicaSession = field(default_factory=ReplicaSession)
    waiting: bool = False
    unthrottled: bool = field(init=False)
    fetch_in_flight: bool = False
    changed: bool = False
    now_ms: int = 0
    _waits_until_ms: int = 0
    _claims: Claims | None = None
    _left_out: Claim | None = None  # one of those that the last decision left out
    # The least recently granted claim is first.
    _claimed: dict[TopicPartition, Claim] = field(default_factory=dict)
    _replicas_counted: int = 0
    # New replicas for which a poll of the cluster must show whether they are throttled: the number of polls before,
    # and since when they are new.
    _unchecked: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Behind a port for several brokers, the leader is unknown.
        self.unthrottled = self.leader == ANY_BROKER

    def take(
        self, fields: FetchFields, frame: FollowerRequest, fields_at: int, version: int
    ) -> Portions[int]:
        """Apply a Fetch to the follower's session; the result is 0, or the error code with which to respond to it."""
        error = yield from self.session.take(fields, frame, fields_at, version)
        if error:
            return error
        self.follower = fields.replica_id
        self._waits_until_ms = self.now_ms + max(fields.max_wait_ms, _EMPTY_WAIT_MS_MIN)
        count = len(self.session.replicas)
        self._quotas.replicas += count - self._replicas_counted
        self._replicas_counted = count
        self._quotas.links.add(self)
        if self._quotas.replicas <= REPLICAS_MAX:
            self.waiting = True
            return 0
        self._stats.replication_unmirrored += 1
        self.unthrottled = self.session.full
        yield from self.close(self.now_ms)
        return 0 if self.unthrottled else WRONG_EPOCH

    def decide(self) -> Portions[FetchDecision]:
        """Decide which partitions to fetch from the leader, and how many bytes of each."""
        quotas = self._quotas
        yield from self._claim()
        limits: dict[TopicPartition, int] = {}
        self._left_out = None
        if not quotas.enforcing:
            return FetchDecision(limits)
        waiting = (yield from self._limit_unchecked(limits)) if self._unchecked else 0
        behind: list[TopicPartition] = []
        yield from for_each(self._claimed.items(), partial(self._find_behind, limits, behind))
        left_out: list[Claim] = []
        if behind:
            sharing = quotas.begin_sharing(len(behind))
            yield from for_each(behind, partial(self._share_out, sharing, limits, left_out))
            self._stats.replicas_left_out += len(left_out)
            self._left_out = left_out[0] if left_out else None
        if not (waiting or left_out):
            return FetchDecision(limits)
        now_ms = self.now_ms
        ready_in_ms = max(quotas.ready_in_ms(left_out, now_ms), _WAIT_MS_MIN)
        if waiting:
            ready_in_ms = min(ready_in_ms, _CHECK_MS)
        return FetchDecision(
            limits, now_ms + ready_in_ms, waiting + len(left_out) == len(self.session.replicas)
        )

    def leaving_out(self) -> ReplicaThrottle | None:
        """Return the limit because of which the present Fetch leaves out replicas; None if it does not."""
        claim = self._left_out
        if claim is None or not (self.waiting or self.fetch_in_flight):
            return None
        now_ms, quotas = self.now_ms, self._quotas
        rate = max(claim.reservation.rates, key=lambda rate: rate.ready_in_ms(claim.least, now_ms))
        if rate is quotas.follower(self.follower, now_ms):
            limit = quotas.follower_limits.limit(self.follower)
            return None if limit is None else ReplicaThrottle("follower", self.follower, limit)
        limit = quotas.leader_limits.limit(self.leader)
        return None if limit is None else ReplicaThrottle("leader", self.leader, limit)

    def wait_until(self, ready_ms: int, now_ms: int) -> int:
        """Return the time in ms until which a Fetch waits if all its partitions are left out; 0 if its wait is over."""
        return min(ready_ms, self._waits_until_ms) if now_ms < self._waits_until_ms else 0

    def forwarded(self) -> None:
        """Register that the request was sent to the leader: its response is expected."""
        self.waiting = False
        self.fetch_in_flight = True

    def update(self, statuses: Sequence[ReplicaStatus], now_ms: int) -> None:
        """Update partitions from a part of the leader's response: their high watermarks, and the bytes of claims."""
        unthrottled = 0
        for key, error_code, high_watermark, size, batch_bytes in statuses:
            replica = self.session.replicas.get(key)
            if replica is not None and not error_code:
                replica.high_watermark = high_watermark
            if size:
                self._quotas.record_arrived(self.follower, *key, size)
            claim = self._claimed.get(key)
            if claim is None:
                unthrottled += size
                continue
            granted = claim.reserved
            claim.settle(size, now_ms)
            if batch_bytes:
                claim.least = batch_bytes
            elif granted > _PROBE_BYTES and replica is not None and not replica.in_sync:
                # It was limited to less than a batch and was not the first partition: such a partition stays empty.
                claim.least = min(2 * granted, replica.max_bytes)
        if unthrottled:
            self._quotas.record_unthrottled(self.leader, self.follower, unthrottled)

    def reconsidered(self) -> None:
        """Let a waiting Fetch be decided on again: quotas or their enforcement have changed."""
        self.changed = True

    def walked(self, direction: ChannelDirection, walk: Walk, now_ms: int) -> None:
        """Update the partitions in the part of a response that was walked; after the last part, end the response."""
        assert isinstance(direction, ResponseDirection), "no request is walked here"
        assert isinstance(walk, ReplicaWalk), "no other response is walked here"
        if walk.statuses:
            self.update(walk.statuses, now_ms)
            walk.statuses.clear()
        if direction.walk is None:
            self.response_ended(now_ms)
            if direction.state.awaits_responses:  # a second Fetch waits
                direction.resume_requests()

    def response_ended(self, now_ms: int) -> None:
        """End the leader's response: give back the bytes that are reserved for partitions which it did not contain."""
        self.fetch_in_flight = False
        if self._claims is not None:
            self._claims.give_back(now_ms)

    def replica_offsets(self) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield topic, partition, fetch offset and high watermark of each replica whose high watermark is known."""
        replicas = self.session.replicas
        for key in list(replicas):
            replica = replicas.get(key)
            if replica is not None and replica.high_watermark >= 0:
                yield *key, replica.fetch_offset, replica.high_watermark

    def topics(self) -> set[bytes]:
        """Return the topics of all replicas, by id, or by name in versions with names."""
        return {topic for topic, _ in self.session.replicas}

    def close(self, now_ms: int) -> Portions[None]:
        """End the link; iterate over the result to free its memory in portions."""
        self.response_ended(now_ms)
        self._quotas.links.discard(self)
        self._quotas.replicas -= self._replicas_counted
        self._replicas_counted = 0
        kept = self.session.replicas, self._claimed, self._unchecked
        self.session, self._claims, self._claimed, self._unchecked = ReplicaSession(), None, {}, {}
        return _freed(*kept)

    def _claim(self) -> Portions[None]:
        """Update the claims from the lists and the follower's session."""
        quotas, session = self._quotas, self.session
        claims = self._claims
        added: Iterable[TopicPartition] = session.added
        if claims is None or claims.version != quotas.version or claims.follower != self.follower:
            claims = self._claims = Claims(quotas, self.leader, self.follower)
            yield from clear(self._claimed)
            added = session.replicas
        yield from for_each(session.removed, self._drop)
        if quotas.last_completed_poll is not None and session.added:
            yield from for_each(session.added, partial(self._note_added, (quotas.polls_started, self.now_ms)))
            quotas.poll_requested = True
        yield from for_each(added, partial(self._add, claims))
        session.added = ()
        yield from clear(session.removed)

    def _drop(self, removed: list[TopicPartition]) -> None:
        for key in removed:
            self._claimed.pop(key, None)
            self._unchecked.pop(key, None)

    def _note_added(self, met: tuple[int, int], added: list[TopicPartition]) -> None:
        # A request may both add and forget a partition.
        self._unchecked.update((key, met) for key in added if key in self.session.replicas)

    def _add(self, claims: Claims, added: list[TopicPartition]) -> None:
        for key in added:
            if key in self.session.replicas and key not in self._claimed:
                claim = claims.claim(*key, self.now_ms)
                if claim is not None:
                    self._claimed[key] = claim

    def _limit_unchecked(self, limits: dict[TopicPartition, int]) -> Portions[int]:
        """Leave out new replicas that are behind until it is known whether they are throttled; returns their number."""
        checked: list[TopicPartition] = []
        yield from for_each(self._unchecked.items(), partial(self._find_checked, checked))
        yield from for_each(checked, self._remove_checked)
        left_out: list[TopicPartition] = []
        yield from for_each(self._unchecked, partial(self._set_limits, limits, left_out))
        return len(left_out)

    def _find_checked(
        self, checked: list[TopicPartition], new: list[tuple[TopicPartition, tuple[int, int]]]
    ) -> None:
        """Find the new replicas whose throttle is known by now."""
        polled = self._quotas.last_completed_poll
        for key, (polls_before, since_ms) in new:
            # Only a poll that began after the replica appeared can have included it.
            known = polled is not None and polled > polls_before and self._quotas.is_named(key[0])
            if known or polled is None or self.now_ms - since_ms > _CHECK_MS_MAX:
                checked.append(key)
                self._stats.replicas_passed_unasked += not known

    def _remove_checked(self, checked: list[TopicPartition]) -> None:
        for key in checked:
            del self._unchecked[key]

    def _set_limits(
        self, limits: dict[TopicPartition, int], left_out: list[TopicPartition], new: list[TopicPartition]
    ) -> None:
        for key in new:
            replica = self.session.replicas[key]
            if self.session.full or replica.high_watermark < 0:
                limits[key] = _PROBE_BYTES
            elif not replica.in_sync:
                limits[key] = 0
                left_out.append(key)

    def _find_behind(
        self,
        limits: dict[TopicPartition, int],
        behind: list[TopicPartition],
        claimed: list[tuple[TopicPartition, Claim]],
    ) -> None:
        replicas = self.session.replicas
        behind += [key for key, _ in claimed if not (replicas[key].in_sync or key in limits)]

    def _share_out(
        self,
        sharing: Sharing,
        limits: dict[TopicPartition, int],
        left_out: list[Claim],
        behind: list[TopicPartition],
    ) -> None:
        now_ms = self.now_ms
        for key in behind:
            claim, replica = self._claimed[key], self.session.replicas[key]
            granted = sharing.grant(claim, replica.max_bytes, now_ms)
            if granted:
                self._claimed[key] = self._claimed.pop(key)
            elif self.session.full or replica.high_watermark < 0:
                granted = _PROBE_BYTES
                claim.reserve(granted)
            else:
                left_out.append(claim)
            limits[key] = granted


def _freed(*checked: dict[TopicPartition, Any]) -> Portions[None]:
    for items in checked:
        yield from clear(items)


_HEAD: Final = REQUEST_HEAD.unpack_from
# Bytes of a response: length, correlation id and tag count before the throttle time; error and session id after it.
_ERROR_AT: Final = 13
_RESPONSE_HEAD_BYTES: Final = 19
_ERROR_AND_SESSION: Final = Struct(">hi")


@dataclass(slots=True, eq=False)
class _Fetched(Owed):
    """A leader's response to its follower's Fetch."""

    _link: ReplicaLink

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Write the follower's session id into the head of the leader's response, and begin a walk through the rest."""
        length = direction.frame_bytes - 4
        if end - pos < _RESPONSE_HEAD_BYTES:
            return direction.order_more(end - pos, length)
        if buf[pos + 8]:
            raise PeerError(
                "malformed", "a Fetch response with tagged fields in its header, which no broker sends"
            )
        error_code, session_id = _ERROR_AND_SESSION.unpack_from(buf, pos + _ERROR_AT)
        translated = self._link.session.responded(error_code, session_id)
        if translated != (error_code, session_id):
            _ERROR_AND_SESSION.pack_into(buf, pos + _ERROR_AT, *translated)
            direction.verdict.patches += 1
            direction.state.stats.session_translations += 1
        direction.walk = ReplicaWalk(entry[1], length)
        return WALK


class ReplicaRequests(RequestReader):
    """The direction from a follower to its leader: applies replication quotas to its Fetches (KIP-73)."""

    __slots__ = ("_current", "_link", "_work")

    def __init__(self, state: ChannelState, link: ReplicaLink) -> None:
        super().__init__(state)
        self._link = link
        # The last Fetch, if it waits.
        self._current: tuple[fetch.FetchFields, FollowerRequest, int] | None = None
        self._work: Portions[int] | None = None  # the work on the current Fetch, while it is incomplete

    def receive(self, buf: Buffer, start: int, end: int, now_ns: int) -> Verdict:
        """Decide what to do with bytes from the follower (`Direction.receive`); returns the verdict."""
        verdict, state = self.verdict, self.state
        verdict.insert = b""
        state.now_ns = now_ns
        now_ms = now_ns // NS_PER_MS
        pos = start
        if verdict.passthrough:
            pos = self.skip_passthrough(start, end)
        verdict.order = PASS
        while not verdict.passthrough:
            if len(state.in_flight) >= state.in_flight_max:
                self.await_responses()
                break
            if end - pos < HEAD_BYTES:
                self.handle_short_header(buf, pos, end)
                break
            head: RequestHead = _HEAD(buf, pos)
            self.check_header(buf, pos, head)
            if head[1] != FETCH or self._link.unthrottled:
                self.owe_unchanged(*head[1:4])
            elif self._fetch(buf, pos, end, head, now_ms):
                break
            pos += 4 + head[0]
            if pos >= end:
                verdict.passthrough = pos - end
                verdict.order = PASS
                pos = end
                break
        verdict.passing = pos - start
        return verdict

    def _fetch(self, buf: Buffer, pos: int, end: int, head: RequestHead, now_ms: int) -> int:
        """Return 0 to forward a Fetch, or an order."""
        length, key, version, correlation_id, _ = head
        link, state = self._link, self.state
        if not VERSION_MIN <= version <= fetch.VERSION_MAX:
            # Unreadable, but not refused: replication continues without a throttle.
            state.stats.replication_unknown_versions[str(version)] += 1
            self.owe_unchanged(key, version, correlation_id)
            return 0
        if not self.whole(end - pos, length, REPLICA_FETCH_BYTES_MAX):
            return self.verdict.order
        if link.fetch_in_flight:  # brokers send one at a time; a second one waits for the response
            return self.await_responses()
        if self._work is None:
            if not link.waiting:  # otherwise it was read before, and has waited
                self._current = self._read(buf, pos, head)
            if self._current is None:
                return self.verdict.order
            fields, frame, fields_at = self._current
            if fields.replica_id < 0:
                self.owe_unchanged(key, version, correlation_id)
                return 0
            self._work = self._decide(head, fields, frame, fields_at)
        return self._do_portion(self._work, now_ms)

    def _do_portion(self, work: Portions[int], now_ms: int) -> int:
        """Do one portion of the work; returns the result of `_fetch` after the last one, or an order before."""
        self._link.now_ms = now_ms
        try:
            next(work)
        except StopIteration as over:
            self._work = None
            order: int = over.value
            return order
        return self.next_turn()

    def _read(
        self, buf: Buffer, pos: int, head: RequestHead
    ) -> tuple[fetch.FetchFields, FollowerRequest, int] | None:
        """Return a complete Fetch's fields, its topics, and the offset of the fields; None with an order."""
        length, _, version, _, client_id_length = head
        frame_end = pos + 4 + length
        fields_at = skip_header_tags(buf, pos + HEAD_BYTES + max(client_id_length, 0), frame_end)
        fields = None if fields_at is None else fetch.read_request(buf, fields_at, frame_end, version)
        if fields is None or fields_at is None:
            raise PeerError(
                "malformed", f"Fetch version {version} of {length} bytes ends before its fields do"
            )
        asked = copied(buf, pos, frame_end)
        read = self.parse(read_follower, asked, fields_at - pos, version, is_full(fields))
        if read is None:
            return None
        replica_id, frame = read
        if version >= fetch.REPLICA_TAG_SINCE:
            fields = fields._replace(replica_id=replica_id)
        return fields, frame, fields_at - pos

    def _decide(
        self, head: RequestHead, fields: fetch.FetchFields, frame: FollowerRequest, fields_at: int
    ) -> Portions[int]:
        """Apply a Fetch to the session; then forward it, hold it, or send an empty local response."""
        length, key, version, correlation_id, _ = head
        link, state = self._link, self.state
        link.changed = False
        if not link.waiting:
            error = yield from link.take(fields, frame, fields_at, version)
            if error:
                return self._respond_locally(head, fetch.empty_response(version, correlation_id, 0, 0, error))
            if link.unthrottled:
                self.owe_unchanged(key, version, correlation_id)
                return 0
        limits, ready_ms, empty = yield from link.decide()
        max_wait_ms = None
        if ready_ms is not None:
            if empty and not link.session.full:
                return self._hold_or_respond(head, ready_ms)
            # The leader may as well respond when more may be fetched.
            max_wait_ms = min(fields.max_wait_ms, ready_ms - link.now_ms)
        forwarded = yield from link.session.forward(limits, max_wait_ms, frame, fields_at, version)
        link.forwarded()
        self._current = None
        state.in_flight.append((correlation_id, version, _Fetched(link)))
        if forwarded is None:
            self.counts[key] += 1
            return 0
        state.stats.requests[FETCH] += 1
        return self.replace(length + 4, forwarded)

    def _hold_or_respond(self, head: RequestHead, ready_ms: int) -> int:
        """Hold a Fetch of which every partition is left out, or send an empty local response."""
        _, _, version, correlation_id, _ = head
        link = self._link
        until_ms = link.wait_until(ready_ms, link.now_ms)
        if until_ms:
            return self.next_turn() if link.changed else self.wait(until_ms, held=True)
        self.state.stats.replica_fetches_answered += 1
        link.waiting = False
        self._current = None
        session_id = link.session.respond_locally()
        return self._respond_locally(head, fetch.empty_response(version, correlation_id, session_id, 0))

    def _respond_locally(self, head: RequestHead, response: bytes) -> int:
        """Add a local response to the owed ones; returns the order that drops the request."""
        length, key, version, correlation_id, _ = head
        self.state.respond_locally(correlation_id, version, response)
        self.counts[key] += 1
        self.verdict.signal = True
        return self.replace(length + 4, b"")
