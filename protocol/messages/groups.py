"""Group requests, and the session timeout in them (KIP-62, KIP-848, KIP-932).

Some clients send heartbeats on the connection that they fetch on. A mute of such a connection must end long before the
coordinator removes the member, so only this timeout is read. Only JoinGroup contains it; in newer protocols it is the
broker's setting, never below the default here unless a client has asked for less.
"""

from typing import Final

from protocol.api import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    SHARE_GROUP_HEARTBEAT,
    STREAMS_GROUP_HEARTBEAT,
    SYNC_GROUP,
    flexible,
)
from protocol.primitives import Buffer, int32, skip_string

# The session timeout of Kafka's consumers before 3.0 and of sarama; franz-go, librdkafka and newer Java use
# 45 s, KafkaJS 30 s. Used if the connection's group requests contain none.
SESSION_TIMEOUT_DEFAULT_MS: Final = 10_000

GROUP_APIS: Final = frozenset(
    {
        JOIN_GROUP,
        SYNC_GROUP,
        HEARTBEAT,
        OFFSET_COMMIT,
        LEAVE_GROUP,
        CONSUMER_GROUP_HEARTBEAT,
        SHARE_GROUP_HEARTBEAT,
        STREAMS_GROUP_HEARTBEAT,
    }
)


def session_timeout_ms(api_key: int, buf: Buffer, body_pos: int, end: int, version: int) -> int | None:
    """Return the session timeout that bounds mutes on this connection from now on; None if it is no group request.

    A JoinGroup without a timeout above 0 has the default. The timeout directly follows the group's name.

    Raises:
        TruncatedError: a JoinGroup is cut off before it.
    """
    if api_key not in GROUP_APIS:
        return None
    if api_key != JOIN_GROUP:
        return SESSION_TIMEOUT_DEFAULT_MS
    timeout = int32(buf, skip_string(buf, body_pos, end, flexible(JOIN_GROUP, version)), end)
    return timeout if timeout > 0 else SESSION_TIMEOUT_DEFAULT_MS
