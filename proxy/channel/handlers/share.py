"""ShareFetch 1-2 and ShareAcknowledge 1-2 (KIP-932).

Behavior: what a ShareFetch brings is charged to the consumer quota like a Fetch, is told in its answer and
mutes the channel. Unlike a Fetch it is never answered here: its session's epoch and its acknowledgements
belong to the broker. In a gateway the NodeEndpoints behind the records are rewritten. Where topics have quotas
they are charged as a Fetch's are.
"""

from struct import pack_into, unpack_from

from protocol.api import API_NAMES, MAX_VERSION, SHARE_FETCH
from protocol.messages.share import ShareWalk
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer, Entry
from proxy.channel.side import WALK, Side
from quotas.decisions import ADMITTED

__all__ = ["acknowledge_request", "fetch_request"]

_THROTTLE_AT = 9  # length, correlation id, an empty tag section; both APIs are flexible in every version


def _request(side: Side, head: tuple[int, int, int, int, int]) -> int:
    _, key, version, correlation_id, _ = head
    state = side.state
    if not 0 <= version <= MAX_VERSION[key]:
        raise PeerError("unsupported_version", f"{API_NAMES[key]} version {version}")
    state.in_flight.append((correlation_id, _answer, version, (key, state.identity)))
    return 0


def fetch_request(
    side: Side,
    _buf: Buffer,
    _pos: int,
    _end: int,
    _body: int,
    head: tuple[int, int, int, int, int],
    _now_ms: int,
) -> int:
    """Owe a ShareFetch answer."""
    return _request(side, head)


def acknowledge_request(
    side: Side,
    _buf: Buffer,
    _pos: int,
    _end: int,
    _body: int,
    head: tuple[int, int, int, int, int],
    _now_ms: int,
) -> int:
    """Owe a ShareAcknowledge answer."""
    return _request(side, head)


def _answer(side: Side, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int) -> int:
    """Charge a ShareFetch's answer, and walk it in a gateway."""
    length = side.frame_bytes - 4
    if end - pos < _THROTTLE_AT + 4:
        return side.more(end - pos, length)
    key, identity = entry[3]
    state = side.state
    if key == SHARE_FETCH:
        throttle = identity.quota.fetch
        decision = throttle.fetched(identity.fetch, length - 1, now_ms)
        if decision is not ADMITTED:
            told_ms = state.mute(throttle, decision.throttle_ms, now_ms)
            side.signal = True
            (broker_ms,) = unpack_from(">i", buf, pos + _THROTTLE_AT)
            pack_into(">i", buf, pos + _THROTTLE_AT, max(told_ms, broker_ms))
    charges = key == SHARE_FETCH and state.engine.charges_fetched_topics
    if state.settings.address_map is None and not charges:
        return 0
    side.walk = ShareWalk(key, entry[2], length, {} if charges else None)
    return WALK
