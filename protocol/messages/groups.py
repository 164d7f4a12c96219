"""Group requests, and the session timeout in them (KIP-62, KIP-848, KIP-932).

Some clients send heartbeats on the connection that they fetch on. A mute of such a connection must end long before the
coordinator removes the member, so only this timeout is read. Only JoinGroup contains it; in newer protocols it is the
broker's setting, never below the default here unless a client has asked for less.
"""

from typing import Final

from protocol import api
from protocol.primitives import Buffer, int32, skip_string

# The session timeout of Kafka's consumers before 3.0 and of sarama; franz-go, librdkafka and newer Java use
# 45 s, KafkaJS 30 s. Used if the connection's group requests contain none.
SESSION_TIMEOUT_DEFAULT_MS: Final = 10_000

GROUP_APIS: Final = frozenset(
    {
        api.JOIN_GROUP,
        api.SYNC_GROUP,
        api.HEARTBEAT,
        api.OFFSET_COMMIT,
        api.LEAVE_GROUP,
        api.CONSUMER_GROUP_HEARTBEAT,
        api.SHARE_GROUP_HEARTBEAT,
        api.STREAMS_GROUP_HEARTBEAT,
    }
)


def session_timeout_ms(buf: Buffer, body_pos: int, end: int, version: int) -> int:
    """Return the session timeout of a JoinGroup request in ms; the default if it is 0 or less.

    Raises:
        TruncatedError: the bytes before `end` do not contain it; it directly follows the group's name.
    """
    timeout = int32(buf, skip_string(buf, body_pos, end, api.flexible(api.JOIN_GROUP, version)), end)
    return timeout if timeout > 0 else SESSION_TIMEOUT_DEFAULT_MS
