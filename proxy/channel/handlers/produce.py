"""Produce, versions 0-13 (KIP-13, KIP-219).

Behavior: the frame's length is charged when its header is seen, before the payload is read. Kafka charges at the
answer; charging earlier mutes the channel right behind the request that was too much, whatever the client has
pipelined. Over the quota the request still passes, its answer carries what is left of the throttle time, and the
channel is muted. Policy `schedule` may hold the request first, and refuse it when no slot comes within the longest
hold: the channel is closed, the request and all behind it unread (docs/refusals.md), and the client sends it again.
What the header announces is charged while it comes (`quotas.limiters.announced`), and has no weight before the first
bytes are here. acks=0 has no answer and is muted all the same. Where topics have quotas the request is walked through
while it passes, and its topics are charged at its end (`topic_charges`). Ignored: records, errors in the answer (Kafka
charges failed requests too).

Version notes: 9+ is flexible; 10+ may carry NodeEndpoints (KIP-951) in the answer, so a gateway rewrites the
answer; 1+ has throttle_time_ms; 0-2 are only advertised for librdkafka (KAFKA-18659).
"""

from struct import Struct
from typing import Final

from protocol.api import MAX_VERSION, PRODUCE
from protocol.header import RequestHead
from protocol.messages import produce
from proxy.channel.bounds import RESPONSE_BYTES_MAX
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer, Entry, Owed
from proxy.channel.side import WALK, Side, skip_header_tags
from proxy.channel.state import ChannelState
from quotas.decisions import ADMITTED

__all__ = ["request"]

_VERSION_MAX: Final = MAX_VERSION[PRODUCE]
_FLEXIBLE_SINCE: Final = 9
_NODE_ENDPOINTS_SINCE: Final = 10
# No header tags and no transactional id, as nearly always: two zeros, then acks.
_NO_TAGS_NO_TRANSACTION: Final = Struct(">Hh").unpack_from
# What may stand before acks: a header's tags and a transactional id of at most 32,767 bytes, as Kafka's strings are.
_FIELDS_BYTES_MAX: Final = 128 * 1024

# A header that announces more has no weight before so much of its frame is here: announcing costs the client something.
_WEIGHED_BYTES: Final = 4 * 1024

# How an answer without tags and without a broker's own throttle time ends: throttle_time_ms, number of tags. With
# NodeEndpoints these bytes would be the last one's port, rack and tags, and no broker listens at port 0.
_NOTHING_TO_REWRITE: Final = bytes(5)


class _Produced(Owed):
    """A response that may tell a throttle time, or in a gateway addresses.

    Args:
        until_ms: when the mute ends that the request has begun; 0 where it has begun none.
    """

    __slots__ = ("_until_ms",)

    def __init__(self, until_ms: int) -> None:
        self._until_ms = until_ms

    def muted(self, until_ms: int) -> Owed:
        """The same where it tells this mute too."""
        return _Produced(max(until_ms, self._until_ms))

    def respond(self, side: Side, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int) -> int:
        """Put what is left of the throttle time, and the clients' addresses, into the response."""
        frame_end = pos + side.frame_bytes
        if frame_end > end:
            side.whole(end - pos, side.frame_bytes - 4, RESPONSE_BYTES_MAX[PRODUCE])
            return side.verdict.order
        if not self._until_ms and buf.endswith(_NOTHING_TO_REWRITE, pos, frame_end):
            return 0
        frame = bytes(buf[pos:frame_end])
        read = side.parse(produce.read_response, frame, entry[1], side.state.settings.address_map)
        if read is None:
            return side.verdict.order
        answer, throttle_at = read
        # The mute may have been ended early since, by a raised quota.
        throttle_ms = max(0, min(self._until_ms, side.state.mute_until_ms) - now_ms)
        if throttle_at >= 0:
            answer = produce.with_throttle_time(answer, throttle_at, throttle_ms)
        return 0 if answer is frame else side.replace(side.frame_bytes, answer)


_NOT_MUTED: Final = _Produced(0)


def request(  # noqa: C901, PLR0912 - a call a frame costs 5 %
    side: Side, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Charge the request, and owe its answer unless acks=0."""
    length, _, version, correlation_id, _ = head
    zeros = acks = -2
    if _FLEXIBLE_SINCE <= version <= _VERSION_MAX and end >= body + 4 <= pos + 4 + length:
        zeros, acks = _NO_TAGS_NO_TRANSACTION(buf, body)
    if zeros:
        found = _acks(buf, pos, end, body, head)
        if found is None:
            return side.more(end - pos, length)
        acks = found
    state: ChannelState = side.state
    identity = state.identity
    assert identity is not None, "the request side identifies before it asks"
    if not acks:
        state.acks_zero = True  # said before a hold: a client that closes then still wants this one delivered
    throttle = identity.quota.produce
    turn = identity.produce
    missing = pos + 4 + length - end
    if missing > 0 and end - pos < _WEIGHED_BYTES and throttle.limits(now_ms):
        return side.more_of(min(length + 4, _WEIGHED_BYTES))
    turn.missing = missing
    decision = throttle.produce(turn, length, now_ms)
    mute_until_ms = 0
    if decision is not ADMITTED:
        if decision.hold_until_ms > now_ms:
            return side.wait(decision.hold_until_ms, held=True)
        if decision.refused:
            return side.refuse("acks" if acks else "acks0")
        mute_until_ms = now_ms + state.mute(throttle, decision.throttle_ms, now_ms)
    if missing > 0 and throttle.announce(turn, missing, now_ms):
        side.charge_ahead(turn)
        side.walk_answered = bool(acks)
    if state.charges.charges_produced_topics:
        side.walk_answered = bool(acks)
        side.walk = state.walks.produce(buf, pos, end, body, head)
        if side.walk is not None:
            return _walked(state, head, acks, mute_until_ms)
    if not acks:
        return 0
    if mute_until_ms or (version >= _NODE_ENDPOINTS_SINCE and state.settings.address_map is not None):
        owed = _Produced(mute_until_ms) if mute_until_ms else _NOT_MUTED
        state.in_flight.append((correlation_id, version, owed))
    else:
        state.in_flight.append((correlation_id, version, None))
    return 0


def _walked(state: ChannelState, head: RequestHead, acks: int, mute_until_ms: int) -> int:
    """Owe the answer to a request that is walked for its topics' sake; what they cost is told in it too."""
    if acks:
        state.in_flight.append((head[3], head[2], _Produced(mute_until_ms)))
    return WALK


def _acks(buf: Buffer, pos: int, end: int, body: int, head: RequestHead) -> int | None:
    """The acks of any request; None when `end` comes before them."""
    length, _, version, _, _ = head
    if not 0 <= version <= _VERSION_MAX:
        raise PeerError("unsupported_version", f"Produce version {version}")
    fields_end = min(end, pos + 4 + length)
    fields_at = skip_header_tags(buf, body, fields_end, flexible=version >= _FLEXIBLE_SINCE)
    acks = None if fields_at is None else produce.acks(buf, fields_at, fields_end, version)
    if acks is None and end - pos > _FIELDS_BYTES_MAX:
        raise PeerError("malformed", f"no acks in the first {end - pos} bytes of a Produce")
    return acks
