"""Produce, versions 0-13 (KIP-13, KIP-219).

Behavior: the frame's length is charged when its header is seen, before the payload is read. Kafka charges at
the answer; charging earlier mutes the channel right behind the request that was too much, whatever the client
has pipelined. Over the quota the request still passes (Kafka never refuses a Produce), its answer carries
what is left of the throttle time, and the channel is muted. Policy `schedule` may hold the request first.
acks=0 has no answer and is muted all the same. Ignored: topics, records, errors in the answer (Kafka charges
failed requests too).

Version notes: 9+ is flexible; 10+ may carry NodeEndpoints (KIP-951) in the answer, so a gateway rewrites the
answer; 1+ has throttle_time_ms; 0-2 are only advertised for librdkafka (KAFKA-18659).
"""

from struct import Struct
from typing import Final

from protocol.api import MAX_VERSION, PRODUCE
from protocol.messages import produce
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer, Entry
from proxy.channel.side import Side, skip_header_tags
from quotas.decisions import ADMITTED

__all__ = ["request"]

_FLEXIBLE_SINCE: Final = 9
_INT16: Final = Struct(">h").unpack_from
_NODE_ENDPOINTS_SINCE: Final = 10
# What may stand before acks: a header's tags and a transactional id of at most 32,767 bytes, as Kafka's strings are.
_FIELDS_BYTES_MAX: Final = 128 * 1024

# How an answer without tags and without a broker's own throttle time ends: throttle_time_ms, number of tags. With
# NodeEndpoints these bytes would be the last one's port, rack and tags, and no broker listens at port 0.
_NOTHING_TO_REWRITE: Final = bytes(5)


def request(
    side: Side, buf: Buffer, pos: int, end: int, body: int, head: tuple[int, int, int, int, int], now_ms: int
) -> int:
    """Charge the request, and owe its answer unless acks=0."""
    length, _, version, correlation_id, _ = head
    if version > MAX_VERSION[PRODUCE] or version < 0:
        raise PeerError("unsupported_version", f"Produce version {version}")
    acks = _acks(buf, body, min(end, pos + 4 + length), version)
    if acks is None:
        if end - pos > _FIELDS_BYTES_MAX:
            raise PeerError("malformed", f"no acks in the first {end - pos} bytes of a Produce")
        return side.more(end - pos, length)
    state = side.state
    identity = state.identity
    assert identity is not None, "the request side identifies before it asks"
    if acks == 0:
        state.acks_zero = True  # said before a hold: a client that closes then still wants this one delivered
    throttle = identity.quota.produce
    decision = throttle.produce(identity.produce, length, now_ms)
    mute_until_ms = 0
    if decision is not ADMITTED:
        if decision.hold_until_ms > now_ms:
            return side.wait(decision.hold_until_ms, held=True)
        mute_until_ms = now_ms + state.mute(throttle, decision.throttle_ms, now_ms)
    if acks == 0:
        return 0
    if mute_until_ms or (version >= _NODE_ENDPOINTS_SINCE and state.settings.address_map is not None):
        state.in_flight.append((correlation_id, _answer, version, mute_until_ms))
    else:
        state.in_flight.append((correlation_id, None, version, None))
    return 0


def _acks(buf: Buffer, body: int, end: int, version: int) -> int | None:
    """The acks of a request whose client id ends at `body`; None when `end` comes before them."""
    if version >= _FLEXIBLE_SINCE and body + 4 <= end and not buf[body] and not buf[body + 1]:
        acks: int = _INT16(buf, body + 2)[0]  # no header tags and no transactional id, as nearly always
        return acks
    fields_at = skip_header_tags(buf, body, end, flexible=version >= _FLEXIBLE_SINCE)
    return None if fields_at is None else produce.acks(buf, fields_at, end, version)


def _answer(side: Side, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int) -> int:
    """Put what is left of the throttle time, and the clients' addresses, into the answer."""
    frame_end = pos + side.frame_bytes
    if frame_end > end:
        side.whole(end - pos, side.frame_bytes - 4)
        return side.order
    if not entry[3] and bytes(buf[frame_end - 5 : frame_end]) == _NOTHING_TO_REWRITE:
        return 0
    frame = bytes(buf[pos:frame_end])
    throttle_ms = max(0, entry[3] - now_ms)
    answer = produce.rewrite_response(frame, entry[2], side.state.settings.address_map, throttle_ms)
    return 0 if answer is frame else side.replace(side.frame_bytes, answer)
