"""JoinGroup, SyncGroup, Heartbeat and the heartbeats of KIP-848, KIP-932 and KIP-1071.

Behavior: some clients (sarama, KafkaJS) heartbeat on the connection they fetch on, and a heartbeat that waits
behind a mute may cost them their membership. So a connection that carries group requests is known as one,
with the session timeout that JoinGroup names, and `quotas.mute` keeps every mute on it to a fifth of that.
Ignored: everything else in them; they pass byte for byte, whatever their version.
"""

from protocol.api import JOIN_GROUP, flexible
from protocol.messages import groups
from proxy.channel.in_flight import Buffer
from proxy.channel.side import Side, skip_header_tags

__all__ = ["request"]


def request(
    side: Side, buf: Buffer, pos: int, end: int, body: int, head: tuple[int, int, int, int, int], _now_ms: int
) -> int:
    """Remember the session timeout, and owe the answer."""
    length, key, version, correlation_id, _ = head
    timeout_ms = 0  # only JoinGroup names one; the others must not shorten it
    if key == JOIN_GROUP:
        if not side.whole(end - pos, length):
            return side.order
        frame_end = pos + 4 + length
        fields_at = skip_header_tags(buf, body, frame_end, flexible=flexible(key, version))
        if fields_at is not None:
            timeout_ms = groups.session_timeout_ms(key, buf, fields_at, frame_end, version) or 0
    side.state.named_session_timeout(timeout_ms)
    side.state.in_flight.append((correlation_id, None, version, None))
    return 0
