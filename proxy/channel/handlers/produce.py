"""Produce, versions 0-13 (KIP-13, KIP-219).

Behavior: the frame's length is charged when its header arrives, before the payload is read. Kafka charges with the
response; the earlier charge mutes the channel directly after the request that exceeded the quota, however many requests
the client has pipelined. Over the quota the request is still forwarded, its response contains the rest of the throttle
time, and the channel is muted. Policy `schedule` may hold the request first, and refuse it if no slot is free within
the longest hold: the channel is closed with this request and all later ones unread (docs/refusals.md), and the client
sends it again. The announced bytes are charged as they arrive (`quotas.limiters.announced`) and have no weight before
the first of them. acks=0 has no response but also mutes. If topics have quotas, the request is walked while it is
forwarded, and its topics are charged at its end (`charge_produced`). Ignored: records, and errors in the response
(Kafka charges failed requests too).

Version notes: 9+ is flexible; 10+ may have NodeEndpoints (KIP-951) in the response, which a gateway rewrites; 1+ has
throttle_time_ms; 0-2 are only advertised for librdkafka (KAFKA-18659).

Non-obvious:

- A Produce is charged when its header is seen; Kafka charges it with the response. So the mute begins directly after
  the request that exceeds the quota, even if the client has pipelined five more: at most one request passes above the
  quota, as in a broker that reads one request at a time.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from protocol.api import MAX_VERSION, PRODUCE
from protocol.header import RequestHead
from protocol.messages import produce
from proxy.channel.direction import Buffer, ChannelDirection, ChannelState, Entry, Owed, skip_header_tags
from proxy.channel.errors import RESPONSE_BYTES_MAX, PeerError
from proxy.channel.verdict import WALK
from quotas.limiters.limiter import ADMITTED

_VERSION_MAX: Final = MAX_VERSION[PRODUCE]
_FLEXIBLE_SINCE: Final = 9
_NODE_ENDPOINTS_SINCE: Final = 10
# No header tags and no transactional id, the usual case: two zeros, then acks.
_NO_TAGS_NO_TRANSACTION: Final = Struct(">Hh").unpack_from
# The longest fields before acks: a header's tags and a transactional id of at most 32,767 bytes, Kafka's string limit.
_FIELDS_BYTES_MAX: Final = 128 * 1024

# A larger request of a limited client is charged only when this much of it has arrived, so that an announced length
# has a cost.
_ARRIVED_BYTES_MIN: Final = 4 * 1024

# The end of a response without tags and without a broker's own throttle time: throttle_time_ms, number of tags. With
# NodeEndpoints these bytes would be the last node's port, rack and tags, and no broker listens at port 0.
_NOTHING_TO_REWRITE: Final = bytes(5)


@dataclass(slots=True, eq=False)
class _Produced(Owed):
    """A response that may contain a throttle time or, in a gateway, addresses.

    Args:
        until_ms: the end of the mute that the request began; 0 if it began none.
    """

    _until_ms: int

    def muted(self, until_ms: int) -> Owed:
        """Return an `Owed` that also writes a mute until `until_ms` into the response, as its throttle time."""
        return _Produced(max(until_ms, self._until_ms))

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Put the remaining time of the mute, and the addresses for clients, into the response."""
        frame_end = pos + direction.frame_bytes
        if frame_end > end:
            direction.whole(end - pos, direction.frame_bytes - 4, RESPONSE_BYTES_MAX[PRODUCE])
            return direction.verdict.order
        rewrites = not buf.endswith(_NOTHING_TO_REWRITE, pos, frame_end)
        if not (rewrites or self._until_ms):
            return 0
        state = direction.state
        # A raised quota may have ended the mute early.
        throttle_ms = max(0, min(self._until_ms, state.mute_until_ms) - now_ms)
        address_map = state.settings.address_map
        reports = throttle_ms and state.reports(throttle_ms, now_ms)
        # A response that is being read in the thread is taken from there, or it would be kept until the next one.
        if not ((rewrites and address_map) or reports or direction.kept_bytes):
            state.stats.throttle_times_untold += (
                throttle_ms > 0 and entry[1] > 0
            )  # version 0 has no field for it
            return 0
        frame = bytes(buf[pos:frame_end])
        read = direction.parse(produce.read_response, frame, entry[1], address_map)
        if read is None:
            return direction.verdict.order
        response, throttle_at = read
        if throttle_ms and throttle_at >= 0:
            throttle_ms = state.reported_ms(throttle_ms, now_ms)
            response = produce.with_throttle_time(response, throttle_at, throttle_ms)
        return 0 if response is frame else direction.replace(direction.frame_bytes, response)


NOT_MUTED: Final = _Produced(0)


def request(  # noqa: C901, PLR0912 - a call a frame costs 5 %
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Handle a Produce: charge and forward it, hold it, or refuse it. With acks=0 no response is owed.

    Returns 0 to forward the request, or an `Order`.
    """
    length, _, version, correlation_id, _ = head
    zeros = acks = -2
    if _FLEXIBLE_SINCE <= version <= _VERSION_MAX and end >= body + 4 <= pos + 4 + length:
        zeros, acks = _NO_TAGS_NO_TRANSACTION(buf, body)
    if zeros:
        found = _acks(buf, pos, end, body, head)
        if found is None:
            return direction.order_more(end - pos, length)
        acks = found
    state: ChannelState = direction.state
    identity = state.identity
    assert identity is not None, "the request direction has set it"
    if not acks:
        direction.verdict.acks_zero = True  # set before a hold: delivered even if the client closes during it
    throttle = identity.quota.produce
    flow = identity.produce
    missing = pos + 4 + length - end
    if missing > 0 and end - pos < _ARRIVED_BYTES_MIN and throttle.limits(now_ms):
        return direction.order_more_until(min(length + 4, _ARRIVED_BYTES_MIN))
    flow.missing = missing
    decision = throttle.produce(flow, length, now_ms)
    mute_until_ms = 0
    if decision is not ADMITTED:
        if decision.hold_until_ms > now_ms:
            return direction.wait(decision.hold_until_ms, held=True)
        if decision.refused:
            return direction.refuse("acks" if acks else "acks0")
        mute_until_ms = now_ms + state.mute(throttle, decision.throttle_ms, now_ms)
    if missing > 0 and throttle.announce(flow, missing, now_ms):
        direction.charge_ahead(flow)
        direction.response_owed = bool(acks)
    if state.walks_all or state.engine.charges_produced_topics:
        direction.response_owed = bool(acks)
        direction.walk = state.walks.produce_walk(buf, pos, end, body, head)
        if direction.walk is not None:
            return _walked(state, head, acks, mute_until_ms)
    if not acks:
        return 0
    if mute_until_ms or (version >= _NODE_ENDPOINTS_SINCE and state.settings.address_map is not None):
        owed = _Produced(mute_until_ms) if mute_until_ms else NOT_MUTED
        state.in_flight.append((correlation_id, version, owed))
    else:
        state.in_flight.append((correlation_id, version, None))
    return 0


def _walked(state: ChannelState, head: RequestHead, acks: int, mute_until_ms: int) -> int:
    """Owe the response to a request that is walked for topic quotas; it also contains the topics' throttle time."""
    if acks:
        state.in_flight.append((head[3], head[2], _Produced(mute_until_ms)))
    return WALK


def _acks(buf: Buffer, pos: int, end: int, body: int, head: RequestHead) -> int | None:
    """Return the acks of any request; None if `end` precedes them."""
    length, _, version, _, _ = head
    if not 0 <= version <= _VERSION_MAX:
        raise PeerError("unsupported_version", f"Produce version {version}")
    fields_end = min(end, pos + 4 + length)
    fields_at = skip_header_tags(buf, body, fields_end, flexible=version >= _FLEXIBLE_SINCE)
    acks = None if fields_at is None else produce.acks(buf, fields_at, fields_end, version)
    if acks is None and end - pos > _FIELDS_BYTES_MAX:
        raise PeerError("malformed", f"no acks in the first {end - pos} bytes of a Produce")
    return acks
