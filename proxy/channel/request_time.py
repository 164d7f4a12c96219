"""Measures the time that a request occupies its broker, for `request_percentage` (kafka-quotas.md §2).

    sent_ns      the last byte of the request was written to the broker   (a slow upload is the client's time)
    moved_ns     the end of the previous response                         (a broker handles one request of a connection
                                                                           at a time: waiting for it costs nothing)
    now_ns       the first bytes of its own response: the time is charged, written into it, and the channel is muted

A Fetch may have waited for records, and the proxy cannot see how long: only time beyond its max_wait_ms counts, unless
the Fetch cannot have waited, because max_wait_ms is 0, or because its response exceeds min_bytes by so much that the
records were there before. JoinGroup and SyncGroup wait for other members and are not charged; nor are local responses.

Exempt, as in Kafka: followers' Fetches, Produce with acks=0, WriteTxnMarkers, and requests between brokers and
controllers. Also SASL exchanges, which Kafka's brokers handle before they know any quota.

Only requests of identities with a request quota reach this module: for others `RequestDirection` compares one
reference per frame, and does not wrap the owed response. `protocol.throttle` knows where a response has its throttle
time; `quotas.throttles.request` has the arithmetic.

Non-obvious:

- Without a request quota, the measurement costs one comparison per frame. A channel stores the engine's version for
  which its client has no such quota; any change of quotas changes the version.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from protocol import api
from protocol import throttle as throttle_time
from protocol.errors import TruncatedError, WireError
from protocol.header import RequestHead
from protocol.messages import fetch
from protocol.walks.share import fetch_waits
from proxy.channel.direction import (
    AT_ONCE_BYTES_MAX,
    NS_PER_MS,
    Buffer,
    ChannelDirection,
    ChannelState,
    Entry,
    LocalResponse,
    Owed,
    PendingResponse,
    skip_header_tags,
)
from proxy.channel.verdict import MORE, REPLACE, UNDECIDED
from quotas.throttles.bandwidth import Throttle
from quotas.throttles.client import ClientQuota
from quotas.throttles.mutation import MutationThrottle
from quotas.throttles.request import RequestThrottle

# Some requests of a connection are timed for `proxy.explain`: the time that their broker takes. While
# `RequestTimes.armed`, `unmeasured_version` differs from the engine's version, so that `RequestTimes.measure` is
# called for each request; at other times requests cost nothing. The time is from the end of the request to the first
# bytes of its response, divided by the number of responses owed at its start, since a broker handles one request of a
# connection at a time.

PROBED_MAX: Final = 16  # requests timed between two visits: each costs a third more instructions than others
ANY_WAIT: Final = -1  # as long as it likes: a group's members wait for each other


@dataclass(slots=True, eq=False)
class _Wrapped(Owed):
    """Wraps the owed response of an API's handler; None where the response is forwarded unchanged."""

    owed: Owed | None

    def muted(self, until_ms: int) -> Owed:
        """Return an `Owed` that also writes a mute until `until_ms` into the response, as its throttle time."""
        if self.owed is not None:
            self.owed = self.owed.muted(until_ms)
        return self


@dataclass(slots=True, eq=False)
class Probe(_Wrapped):
    """A request whose time at the broker is measured, as an example for `proxy.explain`.

    Attributes:
        key: its API key.
        request_bytes: the size of its frame.
        response_bytes: the size of its response's frame, with the length; 0 before it begins.
        sent_ns: when its header was read, in ns.
        wait_ns: the time that it asks the broker to wait, in ns; or ANY_WAIT.
        took_ns: the time at the broker, in ns, with that wait; -1 while the broker has it.
        waited_ns: the part of `took_ns` that may be that wait.
        acks_all: whether it is a Produce whose response waits for followers too.
    """

    _times: "RequestTimes"
    _requests: ChannelDirection
    key: int
    request_bytes: int
    wait_ns: int
    _no_wait_bytes: int
    acks_all: bool
    sent_ns: int
    _depth: int
    response_bytes: int = 0
    took_ns: int = -1
    waited_ns: int = 0

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Stop the measurement, since the response begins; the API's handler decides on the response."""
        if self.took_ns < 0:
            self._stop(direction)
        return 0 if self.owed is None else self.owed.respond(direction, buf, pos, end, entry, now_ms)

    def _stop(self, direction: ChannelDirection) -> None:
        state = direction.state
        since_ns = self.sent_ns
        self.response_bytes = direction.frame_bytes
        if len(state.in_flight) == 1:  # no later request has moved it
            since_ns = max(since_ns, self._requests.moved_ns)
        took_ns = max(0, state.now_ns - since_ns)
        if self.wait_ns == ANY_WAIT:
            self.waited_ns = took_ns
        elif direction.frame_bytes < self._no_wait_bytes:
            self.waited_ns = min(took_ns, self.wait_ns)
        self.took_ns = took_ns // self._depth
        self.waited_ns //= self._depth
        self._times.add(self)


class Probed(NamedTuple):
    """The timed requests (`Probe`) whose responses have begun since the last call of `RequestTimes.visit`.

    Args:
        missed: the estimated number of requests that came after the last timed one, and were not timed.
    """

    probes: list[Probe]
    missed: int = 0


NONE_PROBED: Final = Probed([])


# The time that a Fetch or ShareFetch asks its broker to wait for records (max_wait_ms, min_bytes).

FETCHES: Final = frozenset((api.FETCH, api.SHARE_FETCH))
# One append ends a Fetch's wait, and a batch is at most this large (message.max.bytes, by default): if a response
# exceeds min_bytes by this much, the records were complete before that append.
_APPENDED_BYTES_MAX: Final = 1024 * 1024


class FetchWait(NamedTuple):
    """How long a Fetch lets its broker wait for records.

    Args:
        wait_ms: the longest wait; 0 for none.
        no_wait_bytes: if the response's frame has this many bytes or more, the broker cannot have waited.
        follower: whether a follower sends the request (or its fields are invalid).
    """

    wait_ms: int = 0
    no_wait_bytes: int = 0
    follower: bool = False


_NO_WAIT: Final = FetchWait()
_OF_FOLLOWER: Final = FetchWait(follower=True)


def read_wait(buf: Buffer, pos: int, end: int, body: int, head: RequestHead) -> FetchWait | None:
    """Return how long a Fetch or ShareFetch may wait for records; None if its first fields have not arrived."""
    length, key, version, _, _ = head
    seen = min(end, pos + 4 + length)
    fields_at = skip_header_tags(buf, body, seen, flexible=api.flexible(key, version))
    if fields_at is None:
        return None
    if key == api.FETCH:
        fields = fetch.read_request(buf, fields_at, seen, version)
        if fields is None:
            return None
        if fields.replica_id >= 0:
            return _OF_FOLLOWER
        wait_ms, min_bytes = fields.max_wait_ms, fields.min_bytes
    else:
        try:
            wait_ms, min_bytes = fetch_waits(buf, fields_at, seen)
        except TruncatedError:
            return None
        except WireError:
            return _OF_FOLLOWER
    if wait_ms <= 0 or min_bytes <= 0:
        return _NO_WAIT
    return FetchWait(wait_ms, min_bytes + _APPENDED_BYTES_MAX)


_OF_GROUPS: Final = frozenset((api.JOIN_GROUP, api.SYNC_GROUP))
_ACKS_ALL: Final = -1
_FLEXIBLE_SINCE: Final = 9
_TRANSACTIONS_SINCE: Final = 3
# The number of tags (flexible versions only) and the transactional id's length, before acks.
_FLEXIBLE_FIELDS: Final = Struct(">BBh").unpack_from
_FIELDS: Final = Struct(">hh").unpack_from


def _is_acks_all(buf: Buffer, body: int, version: int) -> bool:
    """Whether a Produce has acks=all, as far as its first fields say; one of a transaction always has."""
    if version >= _FLEXIBLE_SINCE:
        tags, transactional_id, acks = _FLEXIBLE_FIELDS(buf, body)
        return not tags and bool(transactional_id or acks == _ACKS_ALL)
    first, second = _FIELDS(buf, body)
    if version < _TRANSACTIONS_SINCE:
        return bool(first == _ACKS_ALL)
    return bool(first >= 0 or second == _ACKS_ALL)


# LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown; WriteTxnMarkers; the quorum's Vote, Begin- and
# EndQuorumEpoch; AlterPartition, Envelope, FetchSnapshot, BrokerRegistration, BrokerHeartbeat, AllocateProducerIds,
# ControllerRegistration, AssignReplicasToDirs, UpdateRaftVoter, and the states of share groups: all of them require
# the right to CLUSTER_ACTION.
_BETWEEN_BROKERS: Final = frozenset(
    (4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, *range(83, 88))
)
_UNMEASURED: Final = _BETWEEN_BROKERS | {
    api.SASL_HANDSHAKE, api.SASL_AUTHENTICATE, api.JOIN_GROUP, api.SYNC_GROUP,
}  # fmt: skip

_MUTATIONS: Final = frozenset((api.CREATE_TOPICS, api.CREATE_PARTITIONS, api.DELETE_TOPICS))

_NOT_CHARGED: Final = -1
_HEAD_BYTES: Final = 8  # length and correlation id
_INT32: Final = Struct(">i")


@dataclass(slots=True, eq=False)
class Measured(_Wrapped):
    """A request at the broker whose time there will be charged to a request quota.

    Attributes:
        times: the measurements of its channel.
        requests: the request direction, which knows when a large request has been sent completely.
        wait_us: the longest wait for records, unless the response's frame has `no_wait_bytes` or more.
        throttle_ms: the throttle time decided when the response began; -1 before that.
    """

    times: "RequestTimes"
    requests: ChannelDirection
    key: int
    throttle: RequestThrottle
    quota: ClientQuota
    sent_ns: int
    wait_us: int = 0
    no_wait_bytes: int = 0
    throttle_ms: int = _NOT_CHARGED

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Charge the request, since its response begins; over the quota, mute the channel and set the throttle time."""
        if self.throttle_ms == _NOT_CHARGED:
            _charge(direction, self, now_ms)
        if self.throttle_ms:
            return _enforce(direction, self, buf, pos, end, entry, now_ms)
        return 0 if self.owed is None else self.owed.respond(direction, buf, pos, end, entry, now_ms)


@dataclass(slots=True, eq=False)
class RequestTimes:
    """Measures one channel's requests for the request quota, and times some of them for `proxy.explain`.

    Attributes:
        armed: whether requests are timed now; at most PROBED_MAX are timed between two calls of `visit`.
        probe: the last timed request; None before the first.
        measured: the last measured request, until its response arrives.
    """

    armed: bool = False
    probe: Probe | None = None
    measured: Measured | None = None
    _probes: list[Probe] | None = None  # whose responses have begun; None for most channels, which are idle
    _asked: int = 0
    _began_ns: int = 0
    _stopped_ns: int = 0

    def measure(
        self,
        direction: ChannelDirection,
        buf: Buffer,
        pos: int,
        end: int,
        body: int,
        head: RequestHead,
        now_ms: int,
    ) -> int:
        """Begin to measure the request just handled, if its client has a request quota or requests are timed.

        Returns 0, or the order MORE if more of it must arrive first.
        """
        order = self._measure(direction, buf, pos, end, body, head, now_ms)
        state = direction.state
        if self.armed and not order:
            self._begin_probe(direction, buf, pos, end, body, head)
            if self._is_last(state.now_ns):
                self.armed = False
            else:
                state.unmeasured_version = None  # the next request comes here too
        return order

    def visit(self, state: ChannelState, *, time_requests: bool) -> Probed:
        """Begin or stop timing requests; returns the timed ones whose responses have begun since the last call."""
        taken = self._take(state.now_ns)
        self.armed = time_requests
        if time_requests:
            self._asked = self._stopped_ns = 0
            state.unmeasured_version = None
        return taken

    def _is_last(self, now_ns: int) -> bool:
        """Note that a request was to be timed; return whether it was the last one."""
        if not self._asked:
            self._began_ns = now_ns
        self._asked += 1
        if self._asked < PROBED_MAX:
            return False
        self._stopped_ns = now_ns
        return True

    def add(self, probe: Probe) -> None:
        """Add a timed request whose response has begun."""
        if self._probes is None:
            self._probes = [probe]
        elif len(self._probes) < PROBED_MAX:
            self._probes.append(probe)

    def _take(self, now_ns: int) -> Probed:
        if not self._probes:
            return NONE_PROBED
        taken = Probed(self._probes, self._missed(now_ns))
        self._probes = None
        return taken

    def _begin_probe(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead
    ) -> None:
        """Time the request just handled, if the broker owes a response to it."""
        state = direction.state
        in_flight = state.in_flight
        length, key, asked_version, correlation_id, _ = head
        if not in_flight:
            return
        owed_to, version, owed = in_flight[-1]
        # With acks=0 no entry was added.
        if owed_to != correlation_id or isinstance(owed, Probe | LocalResponse | PendingResponse):
            return
        wait_ns, no_wait_bytes = ANY_WAIT if key in _OF_GROUPS else 0, 0
        if key in FETCHES:
            wait = read_wait(buf, pos, end, body, head)
            if wait is None or wait.follower:
                return
            wait_ns, no_wait_bytes = wait.wait_ms * NS_PER_MS, wait.no_wait_bytes
        acks_all = (
            key == api.PRODUCE
            and body + 4 <= min(end, pos + 4 + length)
            and _is_acks_all(buf, body, asked_version)
        )
        self.probe = Probe(
            owed,
            self,
            direction,
            key,
            4 + length,
            wait_ns,
            no_wait_bytes,
            acks_all,
            state.now_ns,
            len(in_flight),
        )
        in_flight[-1] = (correlation_id, version, self.probe)

    def _measure(
        self,
        direction: ChannelDirection,
        buf: Buffer,
        pos: int,
        end: int,
        body: int,
        head: RequestHead,
        now_ms: int,
    ) -> int:
        """Measure the request just handled if its identity has a quota."""
        state = direction.state
        if state.request_throttle_version is not state.engine.version:
            _look_up(state, now_ms)
        throttle, identity = state.request_throttle, state.identity
        if throttle is None or identity is None:
            state.unmeasured_version = state.engine.version
            return 0
        _, key, version, correlation_id, _ = head
        in_flight = state.in_flight
        if key in _UNMEASURED or not in_flight:
            return 0
        owed_to, _, owed = in_flight[-1]
        # With acks=0 no entry was added.
        if owed_to != correlation_id or isinstance(owed, Measured | LocalResponse | PendingResponse):
            return 0
        measured = Measured(owed, self, direction, key, throttle, identity.quota, state.now_ns)
        if key in FETCHES:
            wait = read_wait(buf, pos, end, body, head)
            if wait is None and end - pos < head[0] + 4:
                in_flight.pop()  # for an incomplete request, both handlers have only added the entry
                if key == api.FETCH and state.engine.weighs_fetched_topics:
                    state.fetch_owed = False  # as if no limited Fetch were with the broker
                return direction.order_more(end - pos, head[0])
            if wait is None or wait.follower:
                return 0
            measured.wait_us, measured.no_wait_bytes = wait.wait_ms * 1000, wait.no_wait_bytes
        last = self.measured
        if last is not None and direction.moved_ns > last.sent_ns:
            last.sent_ns = direction.moved_ns
        self.measured = measured
        in_flight[-1] = (correlation_id, version, measured)
        return 0

    def _missed(self, now_ns: int) -> int:
        """Return the estimated number of requests after the last timed one, at the same rate as before."""
        stopped_ns, self._stopped_ns = self._stopped_ns, 0
        if not stopped_ns:
            return 0
        return (self._asked - 1) * (now_ns - stopped_ns) // max(1, stopped_ns - self._began_ns)


def _look_up(state: ChannelState, now_ms: int) -> None:
    """Look up whether the current identity has a request quota."""
    identity = state.identity
    assert identity is not None, "the request direction has set it"
    version = state.engine.version
    state.request_throttle = None
    state.request_throttle_version = version
    if state.engine.requests.limiting() and identity.quota.requests.limits(now_ms):
        state.request_throttle = identity.quota.requests
    else:
        state.unmeasured_version = version


def _enforce(
    direction: ChannelDirection,
    measured: Measured,
    buf: Buffer,
    pos: int,
    end: int,
    entry: Entry,
    now_ms: int,
) -> int:
    """Let the API's handler decide; then mute for the longest throttle time, and put it into the response."""
    key, version, throttle_ms = measured.key, entry[1], measured.throttle_ms
    if _needs_more(direction, end - pos, key, version):
        return direction.verdict.order
    state = direction.state
    left_ms = max(0, state.mute_until_ms - now_ms)
    other = _other_throttle(measured)
    counted = (0, 0) if other is None else (other.throttled_total, other.throttle_ms_total)
    order = 0
    if measured.owed is not None:
        order = measured.owed.respond(direction, buf, pos, end, entry, now_ms)
        if order & UNDECIDED:
            return order
    other_ms = 0 if other is None else other.throttle_ms_total - counted[1]
    # Kafka counts one throttle, for the longer kind, and for this one on a tie. The rest of a mute was counted before.
    if throttle_ms >= max(left_ms, other_ms):
        if other is not None:
            other.throttled_total, other.throttle_ms_total = counted
        measured.throttle.count(throttle_ms - left_ms)
    mute_ms = state.mute(measured.throttle, throttle_ms, now_ms)
    if mute_ms:
        direction.verdict.signal = True
        reported_ms = state.reported_ms(mute_ms, now_ms)
        if reported_ms:
            _write_throttle_time(direction, buf, pos, end, order, key, version, reported_ms)
    return order


def _charge(direction: ChannelDirection, measured: Measured, now_ms: int) -> None:
    """Charge the time at the broker, and decide on the throttle time of this response."""
    state = direction.state
    now_ns, since_ns = state.now_ns, max(measured.sent_ns, direction.moved_ns)
    if measured.times.measured is measured:
        since_ns = max(since_ns, measured.requests.moved_ns)
        measured.times.measured = None
    direction.moved_ns = now_ns
    spent_us = (now_ns - since_ns) // 1000
    if direction.frame_bytes < measured.no_wait_bytes:
        spent_us -= measured.wait_us
    throttle = measured.throttle
    muted_ms = state.muted_by(throttle, now_ms) if state.mute_until_ms > now_ms else 0
    if throttle.enforcing:
        measured.throttle_ms = throttle.record(max(0, spent_us), now_ms, muted_ms)
    else:
        measured.throttle_ms = 0
        state.virtual_time.weigh_again(measured.sent_ns // NS_PER_MS, now_ms)
        throttle.predict(max(0, spent_us), now_ms, state.virtual_time)


def _other_throttle(measured: Measured) -> Throttle | MutationThrottle | None:
    """Return the other throttle that this response may be charged to; None if there is none."""
    if measured.key in FETCHES:
        return measured.quota.fetch
    return measured.quota.mutations if measured.key in _MUTATIONS else None


def _needs_more(direction: ChannelDirection, have: int, key: int, version: int) -> bool:
    """Whether the throttle time has not arrived; then the order is MORE."""
    length = direction.frame_bytes - 4
    offset = throttle_time.position(key, version)
    if offset == throttle_time.NONE or have >= length + 4:
        return False
    if offset == throttle_time.LAST:
        # If longer fields precede it, it is not searched for: the mute alone must suffice.
        return length + 4 <= AT_ONCE_BYTES_MAX and not direction.whole(have, length, AT_ONCE_BYTES_MAX)
    if have >= _HEAD_BYTES + api.flexible(key, version) + offset + _INT32.size:
        return False
    return direction.order_more(have, length) == MORE


def _write_throttle_time(
    direction: ChannelDirection,
    buf: Buffer,
    pos: int,
    end: int,
    order: int,
    key: int,
    version: int,
    mute_ms: int,
) -> None:
    """Write the larger throttle time into the response; without a place for it, none is written."""
    if (
        direction.frame_bytes > AT_ONCE_BYTES_MAX
        and throttle_time.position(key, version) == throttle_time.LAST
    ):
        return
    try:
        if order == REPLACE:
            response = bytearray(direction.verdict.insert)
            throttle_time.patch(response, key, version, mute_ms)
            direction.verdict.insert = response
            return
        with memoryview(buf)[pos : min(end, pos + direction.frame_bytes)] as frame:
            throttle_time.patch(frame, key, version, mute_ms)
        direction.verdict.patches += 1
    except WireError:
        return  # the broker's response ends before it; the mute alone must suffice
