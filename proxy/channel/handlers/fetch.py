"""Fetch, versions 0-18 (KIP-13, KIP-219, KIP-227).

Behavior: an identity over its quota gets a local, empty response at once, with the throttle time of a full one; the
request is not forwarded, and `protocol.messages.fetch_session` keeps the session's epochs in step. In a forwarded Fetch
max_bytes is reduced to the budget, and max_wait_ms if other clients wait for the budget. The bytes in a response are
charged when its header arrives; the throttle time is written into the same response, and the channel is muted. With
its header the size of the first batch is read, if a quota limits it, so that a later max_bytes cuts no batch. One
limited Fetch is with the broker at a time: a pipelined one waits for the response, as in a broker. A Fetch that ends
its session while over the quota is forwarded without topics. Replicas are exempt at replication listeners only
(`proxy.channel.follower`): any client can claim to be a replica. Ignored: topics and records, except for the first
batch, the walk to NodeEndpoints at the end of a response, the bytes of each topic if topics have quotas
(`charge_fetched`), and the records behind the log's end of a client that has a limit for those
(`proxy.channel.catch_up`).

Version notes: throttle_time_ms since 1; max_bytes since 3; sessions since 7; flexible since 12; topic ids
since 13; NodeEndpoints (KIP-951) since 16, in a gateway only.
"""

from dataclasses import dataclass
from struct import pack_into
from typing import Final

from protocol.api import FETCH, MAX_VERSION
from protocol.header import RequestHead
from protocol.messages import fetch
from protocol.messages.fetch_session import must_forward
from protocol.walks.fetch import FetchWalk, first_batch_bytes
from proxy.channel.catch_up import (
    ERROR_AND_SESSION,
    FLEXIBLE_SINCE,
    RESPONSE_HEAD_BYTES,
    SESSION_SINCE,
    THROTTLE_SINCE,
    UNFORESEEN_BYTES_MAX,
    DividedFetch,
)
from proxy.channel.direction import (
    AT_ONCE_BYTES_MAX,
    Buffer,
    ChannelDirection,
    Entry,
    Identity,
    Owed,
    skip_header_tags,
)
from proxy.channel.errors import REQUEST_BYTES_MAX, PeerError
from proxy.channel.verdict import WALK
from quotas.limiters.batches import may_be_cut, record_first_batch
from quotas.limiters.limiter import ADMITTED

_BYTES_MAX: Final = REQUEST_BYTES_MAX[FETCH]

_NODE_ENDPOINTS_SINCE: Final = 16


@dataclass(slots=True, eq=False)
class Fetched(Owed):
    """The owed response to a Fetch, which is charged to the client's quota when it begins.

    Args:
        session_id: the fetch session of the request, with which that of the response is compared; 0: it is not.
        exclusive: whether a quota was checked before it was forwarded; then the channel's next Fetch waits for it.
    """

    identity: Identity
    session_id: int
    exclusive: bool

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Charge the response, set its throttle time, and walk it if addresses may be at its end."""
        length = direction.frame_bytes - 4
        if end - pos < RESPONSE_HEAD_BYTES and end - pos < length + 4:
            return direction.order_more(end - pos, length)
        version = entry[1]
        identity, session_id = self.identity, self.session_id
        state = direction.state
        throttle = identity.quota.fetch
        # Kafka records 4 + the body (kafka-quotas.md §1.4), so a flexible header's empty tag section is subtracted.
        size, throttle_at = (length - 1, pos + 9) if version >= FLEXIBLE_SINCE else (length, pos + 8)
        if self.exclusive:
            state.fetch_owed = False
            flow = identity.fetch
            if flow.admitted >= 0 and may_be_cut(flow, size):  # limited by a quota
                record_first_batch(flow, first_batch_bytes(buf, pos, end, version))
            decision = throttle.fetched(identity.fetch, size, now_ms)
        else:  # forwarded without a check of the budget; a limited one may be with the broker
            decision = throttle.delivered(identity.fetch, size, now_ms)
        if decision is not ADMITTED:
            mute_ms = state.mute(throttle, decision.throttle_ms, now_ms)
            direction.verdict.signal = True
            if version >= THROTTLE_SINCE and throttle_at + 4 <= end:
                direction.report_mute(buf, throttle_at, mute_ms, now_ms)
        if session_id and version >= SESSION_SINCE and throttle_at + 10 <= end:
            error_code, response_id = ERROR_AND_SESSION(buf, throttle_at + 4)
            if error_code or response_id != session_id:
                state.sessions.drop(state.settings.broker, session_id)
        if state.walks_all or state.engine.charges_fetched_topics:
            direction.walk = state.walks.fetch_walk(direction, buf, pos, end, version)
            return 0 if direction.walk is None else WALK
        if version >= _NODE_ENDPOINTS_SINCE and state.settings.address_map is not None:
            direction.walk = FetchWalk(version, length)
            return WALK
        return 0


def _unlimited_response(identity: Identity) -> Owed:
    """Return the owed response to an unlimited Fetch: one object per identity."""
    owed = identity.fetched = Fetched(identity, 0, exclusive=False)
    return owed


def request(  # noqa: C901, PLR0912 - a call a frame costs 5 %
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Handle a Fetch: forward it with reduced limits and the broker's session epoch, or respond locally and mute.

    Returns 0 to forward the request, or an `Order`.
    """
    length, _, version, correlation_id, _ = head
    if version > MAX_VERSION[FETCH] or version < 0:
        raise PeerError("unsupported_version", f"Fetch version {version}")
    state = direction.state
    identity = state.identity
    assert identity is not None, "the request direction has set it"
    throttle, flow = identity.quota.fetch, identity.fetch
    catch_up = identity.catch_up(now_ms) if state.engine.limits_catch_up else None
    if catch_up is not None and identity.behind and identity.catch_up_flow is not None:
        throttle, flow = catch_up, identity.catch_up_flow
    limited = throttle.fetch_arrived(flow, now_ms) or (catch_up is not None and state.engine.enforcing)
    if not limited and not state.sessions.has_shifted:
        if catch_up is None:
            owed = identity.fetched or _unlimited_response(identity)
        else:
            owed = DividedFetch(identity, 0, False, catch_up)
        if state.engine.weighs_fetched_topics:  # its response contains the bytes of each topic
            if state.fetch_owed:
                return direction.await_responses()
            state.fetch_owed = True
            owed = Fetched(identity, 0, exclusive=True)
        state.in_flight.append((correlation_id, version, owed))
        return 0
    frame_end = pos + 4 + length
    if (frame_end > end or length > _BYTES_MAX) and not direction.whole(end - pos, length, _BYTES_MAX):
        return direction.verdict.order
    if state.fetch_owed:
        return direction.await_responses()
    if version >= FLEXIBLE_SINCE and body < frame_end and not buf[body]:  # no tags, the usual case
        fields_at: int | None = body + 1
    else:
        fields_at = skip_header_tags(buf, body, frame_end, flexible=version >= FLEXIBLE_SINCE)
    fields = None if fields_at is None else fetch.read_request(buf, fields_at, frame_end, version)
    if fields is None or fields_at is None:
        raise PeerError("malformed", f"Fetch version {version} of {length} bytes ends before its fields do")
    read: fetch.ReadRequest | None = None
    if length > AT_ONCE_BYTES_MAX and (fields.session_epoch > fetch.INITIAL_EPOCH or must_forward(fields)):
        # Its session may have to be merged, or its topics removed.
        read = direction.parse(fetch.read_ahead, bytes(buf[pos:frame_end]), fields_at - pos, version)
        if read is None:
            return direction.verdict.order
    decision = ADMITTED
    if identity.mixed and flow is not identity.fetch:
        decision = identity.quota.fetch.fetch_beside(identity.fetch, now_ms)
        if decision is not ADMITTED:
            throttle = identity.quota.fetch
    if decision is ADMITTED:
        decision = throttle.fetch(flow, now_ms)
    if decision is not ADMITTED:
        frame = read or bytes(buf[pos:frame_end])
        mute_ms = state.mute(throttle, decision.throttle_ms, now_ms)
        direction.verdict.signal = True
        if must_forward(fields):
            return _end_session(direction, frame, fields_at - pos, head, fields)
        session_id = state.sessions.respond_locally(
            state.settings.broker, fields, frame, fields_at - pos, version, now_ms, state.settings.address
        )
        response = fetch.empty_response(version, correlation_id, session_id, mute_ms)
        state.respond_locally(correlation_id, version, response)
        state.stats.requests[FETCH] += 1
        state.stats.fetches_answered += 1
        return direction.replace(length + 4, b"")
    if limited:
        max_bytes = fields.max_bytes
        if catch_up is not None and flow is identity.fetch and max_bytes > UNFORESEEN_BYTES_MAX:
            max_bytes = UNFORESEEN_BYTES_MAX
        max_bytes = throttle.fetch_max_bytes(flow, max_bytes, now_ms)
        if max_bytes < fields.max_bytes or flow.wait_ms_max < fields.max_wait_ms:
            _reduce_limits(buf, fields, max_bytes, flow.wait_ms_max)
            direction.verdict.patches += 1
    exclusive = limited or state.engine.weighs_fetched_topics
    state.fetch_owed = exclusive
    if catch_up is None:
        owed = Fetched(identity, fields.session_id, exclusive)
    else:
        owed = DividedFetch(identity, fields.session_id, exclusive, catch_up)
    state.in_flight.append((correlation_id, version, owed))
    if fields.session_id and state.sessions.is_shifted(state.settings.broker, fields.session_id):
        frame = bytes(buf[pos:frame_end]) if read is None else read.now(buf[pos:frame_end])
        return _translate(direction, frame, fields_at - pos, head, fields, now_ms)
    return 0


def _reduce_limits(buf: Buffer, fields: fetch.FetchFields, max_bytes: int, wait_ms_max: int) -> None:
    """Reduce max_bytes and max_wait_ms of a forwarded Fetch to what the budget allows."""
    if max_bytes < fields.max_bytes and fields.max_bytes_at >= 0:
        # min_bytes directly precedes it; Kafka lowers it together with max_bytes (kafka-quotas.md §1.5).
        pack_into(">ii", buf, fields.max_bytes_at - 4, min(fields.min_bytes, max_bytes), max_bytes)
    if wait_ms_max < fields.max_wait_ms:
        pack_into(">i", buf, fields.max_wait_at, wait_ms_max)


def _end_session(
    direction: ChannelDirection, frame: bytes, fields_at: int, head: RequestHead, fields: fetch.FetchFields
) -> int:
    """Forward a Fetch that ends its session without its topics, so that it returns no records over the quota.

    The channel is muted as after a local response: such a Fetch may ask for records too, and is repeated at once if it
    gets none (franz-go, after its session was lost).
    """
    length, _, version, correlation_id, _ = head
    state = direction.state
    forwarded = fetch.encode_request(frame, fields_at, version, fields.session_epoch, {}, [])
    state.sessions.drop(state.settings.broker, fields.session_id)  # it ends there, and therefore here
    identity = state.identity
    assert identity is not None, "the request direction has set it"
    state.in_flight.append((correlation_id, version, Fetched(identity, fields.session_id, False)))
    if forwarded == frame:  # it names no topics, as in clients' own requests
        return 0
    state.stats.requests[FETCH] += 1
    return direction.replace(length + 4, forwarded)


def _translate(
    direction: ChannelDirection,
    frame: bytes,
    fields_at: int,
    head: RequestHead,
    fields: fetch.FetchFields,
    now_ms: int,
) -> int:
    """Forward a Fetch with the broker's epoch and with the changes of Fetches that had local responses."""
    length, _, version, _, _ = head
    state = direction.state
    forwarded = state.sessions.forward(state.settings.broker, fields, frame, fields_at, version, now_ms)
    if forwarded is None:
        return 0
    state.stats.requests[FETCH] += 1
    state.stats.session_translations += 1
    return direction.replace(length + 4, forwarded)
