"""ShareFetch 1-2 and ShareAcknowledge 1-2 (KIP-932).

Behavior: the bytes of a ShareFetch are charged to the consumer quota like a Fetch's; the throttle time is in its
response, and the channel is muted. max_bytes is reduced to the budget, and one Fetch or ShareFetch is under way at a
time. Unlike a Fetch, a ShareFetch never has a local response: its session epoch and acknowledgements belong to the
broker. Over the quota it waits at its header for its slot, at most as long as the longest mute; then it is forwarded
with max_records 0: the broker responds at once and acquires no records, and the session continues.

Acknowledgements must not wait: records that are not acknowledged within their lock (30 s) are delivered again, which
costs more than the wait saves. So a ShareFetch that acknowledges, renews, or ends its session, and every
ShareAcknowledge, is forwarded at once, even during a mute; over the quota, during a mute, or after a ShareFetch that is
under way, with max_records 0. False acknowledgements are then no way around the quota: they return no records. Only a
mute for a quota that does not count bytes (`ChannelState.mutes_acknowledgements`) holds acknowledgements too.

In a gateway the NodeEndpoints after the records are rewritten. Topic quotas are charged as for a Fetch. Ignored: the
acknowledged records. Version 0 (4.0's preview) has no max_records and is not supported.

Non-obvious:

- Sluice never responds to a ShareFetch itself; it may limit it to no records. With max_records 0 a broker acquires
  no record, responds at once, and does everything else that the request says; so acknowledgements pass mutes, and
  made-up ones bring no records.
- A response without room for records is charged with all of its bytes, one with records as Kafka does, without the
  frame's length and the header's tags: tens of thousands of small ones a second would add up to a tenth of a quota.
- A muted connection of a share consumer is still read. Only the header of the next request shows whether it is an
  acknowledgement; all other requests then wait with their header read.
"""

from dataclasses import dataclass
from typing import Final

from protocol.api import SHARE_ACKNOWLEDGE, SHARE_FETCH
from protocol.header import REQUEST_HEAD, RequestHead
from protocol.walks import share
from protocol.walks.share import ShareFetchFields, ShareWalk
from proxy.channel.direction import (
    Buffer,
    ChannelDirection,
    ChannelState,
    Entry,
    Identity,
    Owed,
    check_version,
    skip_header_tags,
)
from proxy.channel.errors import REQUEST_BYTES_MAX, PeerError
from proxy.channel.verdict import MORE, PASS, WALK
from quotas.limiters.limiter import ADMITTED, MS_UNBOUNDED

_THROTTLE_AT: Final = (
    9  # length, correlation id, an empty tag section; both APIs are flexible in every version
)
_VERSION_MIN: Final = 1


@dataclass(slots=True, eq=False)
class _ShareResponse(Owed):
    """The broker's response to a ShareFetch or ShareAcknowledge, which is charged if it contains records.

    Args:
        may_acquire: whether it may contain records for a limited client.
        without_room: whether it has no room for records, since their number in the request was set to 0.
    """

    _key: int
    _identity: Identity
    _may_acquire: bool
    _without_room: bool

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Charge a ShareFetch response; begin a walk if addresses are rewritten or topics have quotas."""
        length = direction.frame_bytes - 4
        if end - pos < _THROTTLE_AT + 4:
            return direction.order_more(end - pos, length)
        key, identity, may_acquire = self._key, self._identity, self._may_acquire
        state = direction.state
        if may_acquire:
            state.fetch_owed = False
        if key == SHARE_FETCH:
            throttle = identity.quota.fetch
            if may_acquire:
                decision = throttle.fetched(identity.fetch, length - 1, now_ms)
            else:
                size = direction.frame_bytes if self._without_room else length - 1
                decision = throttle.delivered(identity.fetch, size, now_ms)
            if decision is not ADMITTED:
                mute_ms = state.mute(throttle, decision.throttle_ms, now_ms)
                direction.verdict.signal = True
                direction.report_mute(buf, pos + _THROTTLE_AT, mute_ms, now_ms)
        charges = key == SHARE_FETCH and state.engine.charges_fetched_topics
        if state.settings.address_map is None and not charges:
            return 0
        direction.walk = ShareWalk(key, entry[1], length, {} if charges else None)
        return WALK


def fetch_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Handle a ShareFetch: forward it with reduced limits, forward it without requesting records, or hold it.

    Returns 0 to forward the request, or an `Order`.
    """
    check_version(head, _VERSION_MIN)
    state: ChannelState = direction.state
    state.uses_share_fetch = True
    identity = state.identity
    assert identity is not None, "the request direction has set it"
    throttle = identity.quota.fetch
    identity.fetch.shares = True
    limited = throttle.fetch_arrived(identity.fetch, now_ms) or state.engine.weighs_fetched_topics
    if not limited and state.mute_until_ms <= now_ms:
        return _owe(state, head, may_acquire=False)
    length = head[0]
    if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[SHARE_FETCH]):
        return direction.verdict.order
    fields = _fields(buf, body, pos + 4 + length, head)
    if state.mute_until_ms > now_ms:
        _request_no_records(direction, buf, fields)
        return _owe(state, head, may_acquire=False, without_room=True)
    if state.fetch_owed:
        if not fields.acknowledges:
            return direction.await_responses()
        _request_no_records(direction, buf, fields)
        return _owe(state, head, may_acquire=False, without_room=True)
    decision = throttle.fetch(identity.fetch, now_ms)
    if decision is not ADMITTED:
        longest_ms = state.share_held_until_ms or now_ms + state.mute_limits.bounded(MS_UNBOUNDED, now_ms)
        if longest_ms > now_ms and not fields.acknowledges:
            state.share_held_until_ms = longest_ms
            return direction.wait(min(longest_ms, now_ms + decision.throttle_ms), held=True)
        _request_no_records(direction, buf, fields)
        return _owe(state, head, may_acquire=False, without_room=True)
    max_bytes = throttle.fetch_max_bytes(identity.fetch, fields.max_bytes, now_ms)
    max_wait_ms = min(fields.max_wait_ms, identity.fetch.wait_ms_max)
    if max_bytes < fields.max_bytes or max_wait_ms < fields.max_wait_ms:
        share.limit(buf, fields, max_bytes, max_wait_ms)
        direction.verdict.patches += 1
    return _owe(state, head, may_acquire=True)


def acknowledge_request(
    direction: ChannelDirection,
    _buf: Buffer,
    _pos: int,
    _end: int,
    _body: int,
    head: RequestHead,
    _now_ms: int,
) -> int:
    """Handle a ShareAcknowledge: forward it; its response is not charged.

    Returns 0: the request is forwarded.
    """
    check_version(head, _VERSION_MIN)
    direction.state.uses_share_fetch = True
    return _owe(direction.state, head, may_acquire=False)


def waits_muted(direction: ChannelDirection, buf: Buffer, pos: int, end: int) -> bool:
    """Whether the next request of a muted channel must wait; requests that acknowledge records (KIP-932) may pass.

    If it must, the order is set: WAIT until the mute ends, or MORE (PASS without any bytes) until its API is known.
    """
    have = end - pos
    if have < REQUEST_HEAD.size:
        direction.verdict.need = REQUEST_HEAD.size
        direction.verdict.order = MORE if have else PASS
        return True
    state: ChannelState = direction.state
    head: RequestHead = REQUEST_HEAD.unpack_from(buf, pos)
    length, key, version, _, client_id_length = head
    if (
        not state.mutes_acknowledgements
        and version >= _VERSION_MIN
        and length <= state.settings.frame_bytes_max
    ):
        if key == SHARE_ACKNOWLEDGE:
            return False
        if key == SHARE_FETCH:
            if not direction.whole(have, length, REQUEST_BYTES_MAX[SHARE_FETCH]):
                return True
            body = pos + REQUEST_HEAD.size + max(client_id_length, 0)
            if _fields(buf, body, pos + 4 + length, head).acknowledges:
                return False
    direction.wait(state.mute_until_ms, held=False)
    return True


def _fields(buf: Buffer, body: int, frame_end: int, head: RequestHead) -> ShareFetchFields:
    """Return the fields of a complete ShareFetch."""
    fields_at = skip_header_tags(buf, body, frame_end)
    if fields_at is None:
        raise PeerError("malformed", f"ShareFetch version {head[2]} of {head[0]} bytes ends in its header")
    return share.read_fetch(buf, fields_at, frame_end, head[2])


def _request_no_records(direction: ChannelDirection, buf: Buffer, fields: ShareFetchFields) -> None:
    """Patch a ShareFetch so that its response contains no records."""
    share.request_no_records(buf, fields)
    direction.verdict.patches += 1


def _owe(state: ChannelState, head: RequestHead, *, may_acquire: bool, without_room: bool = False) -> int:
    """Owe the response; with `may_acquire` it may contain records for a limited client: one such request at a time."""
    _, key, version, correlation_id, _ = head
    identity = state.identity
    assert identity is not None, "the request direction has set it"
    state.in_flight.append(
        (correlation_id, version, _ShareResponse(key, identity, may_acquire, without_room))
    )
    state.share_held_until_ms = 0
    state.fetch_owed |= may_acquire
    return 0
