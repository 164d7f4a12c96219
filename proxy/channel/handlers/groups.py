"""JoinGroup, SyncGroup, Heartbeat and the heartbeats of KIP-848, KIP-932 and KIP-1071.

Behavior: some clients (sarama, KafkaJS) send heartbeats on the connection that they fetch on; a heartbeat delayed by a
mute may cost them their group membership. So a connection with group requests is marked, with the session timeout of
JoinGroup, and `quotas.options` limits every mute on it to a fifth of the timeout. Ignored: all other fields; the
requests are forwarded byte for byte in any version; a JoinGroup of a version that Sluice does not know counts as one
without a session timeout.
"""

from protocol.api import JOIN_GROUP, MAX_VERSION, flexible
from protocol.errors import TruncatedError
from protocol.header import RequestHead
from protocol.messages import groups
from proxy.channel.direction import Buffer, ChannelDirection, skip_header_tags


def request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int
) -> int:
    """Handle a group request: note the session timeout of a JoinGroup, which limits mutes, and forward it.

    Returns 0 to forward the request, or an `Order`.
    """
    length, key, version, correlation_id, _ = head
    timeout_ms = 0  # only JoinGroup contains one; the other requests must not shorten it
    if key == JOIN_GROUP and version > MAX_VERSION[key]:
        timeout_ms = groups.SESSION_TIMEOUT_DEFAULT_MS
    elif key == JOIN_GROUP:
        found_ms = _session_timeout_ms(buf, body, min(end, pos + 4 + length), version)
        if found_ms is None and end - pos < length + 4:
            return direction.order_more(end - pos, length)
        timeout_ms = groups.SESSION_TIMEOUT_DEFAULT_MS if found_ms is None else found_ms
    direction.state.note_session_timeout(timeout_ms)
    direction.state.in_flight.append((correlation_id, version, None))
    return 0


def _session_timeout_ms(buf: Buffer, body: int, end: int, version: int) -> int | None:
    """Return the session timeout of a JoinGroup, or None if it has not arrived; the fields after it pass through."""
    fields_at = skip_header_tags(buf, body, end, flexible=flexible(JOIN_GROUP, version))
    if fields_at is None:
        return None
    try:
        return groups.session_timeout_ms(buf, fields_at, end, version)
    except TruncatedError:
        return None
