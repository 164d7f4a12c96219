"""JoinGroup, SyncGroup, Heartbeat and the heartbeats of KIP-848, KIP-932 and KIP-1071.

Behavior: some clients (sarama, KafkaJS) heartbeat on the connection they fetch on, and a heartbeat that waits
behind a mute may cost them their membership. So a connection that carries group requests is known as one,
with the session timeout that JoinGroup names, and `quotas.throttles.mute` keeps every mute on it to a fifth of that.
Ignored: everything else in them; they pass byte for byte, whatever their version.
"""

from protocol.api import JOIN_GROUP, flexible
from protocol.errors import TruncatedError
from protocol.header import RequestHead
from protocol.messages import groups
from proxy.channel.in_flight import Buffer
from proxy.channel.side import Side, skip_header_tags

__all__ = ["request"]


def request(side: Side, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int) -> int:
    """Remember the session timeout, and owe the answer."""
    length, key, version, correlation_id, _ = head
    timeout_ms = 0  # only JoinGroup names one; the others must not shorten it
    if key == JOIN_GROUP:
        named = _named(buf, body, min(end, pos + 4 + length), version)
        if named is None and end - pos < length + 4:
            return side.more(end - pos, length)
        timeout_ms = groups.SESSION_TIMEOUT_DEFAULT_MS if named is None else named
    side.state.name_session_timeout(timeout_ms)
    side.state.in_flight.append((correlation_id, version, None))
    return 0


def _named(buf: Buffer, body: int, end: int, version: int) -> int | None:
    """The session timeout of a JoinGroup; None where it is not here yet. All that follows it passes unseen."""
    fields_at = skip_header_tags(buf, body, end, flexible=flexible(JOIN_GROUP, version))
    if fields_at is None:
        return None
    try:
        return groups.session_timeout_ms(JOIN_GROUP, buf, fields_at, end, version)
    except TruncatedError:
        return None
