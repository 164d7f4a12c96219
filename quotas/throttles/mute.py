"""The longest mute of a channel (KIP-219), so that throttling never costs a connection or a group membership.

Some clients send heartbeats on the connection that they fetch on (sarama, KafkaJS): a mute as long as their session
timeout would remove them from the group. sarama also waits before each request until the last throttle time is over, so
one heartbeat may meet two mutes in addition to its interval of a third (Kafka's own advice): hence a fifth. The rest of
a capped mute stays as debt in the engine. This module has no state.
"""

from typing import Final

# JoinGroup has the session timeout. A connection with other group requests only gets the smallest default of all
# clients: 10 s (librdkafka before 1.6, sarama, aiokafka; 45 s in Java since 3.0).
GROUP_SESSION_TIMEOUT_MS: Final = 10_000
# A third (the heartbeat interval) and two mutes of a fifth are 0.73 of the session timeout.
GROUP_MUTE_SHARE: Final = 5


def capped(throttle_ms: int, mute_ms_max: int, group_session_timeout_ms: int | None) -> int:
    """Return the mute in ms: at most `mute_ms_max`, and at most a fifth of the group's session timeout.

    Args:
        throttle_ms: the engine's decision.
        mute_ms_max: the configured cap.
        group_session_timeout_ms: the session timeout of the connection's group; `None` without a group request.

    >>> capped(60_000, 20_000, None), capped(60_000, 20_000, 10_000), capped(500, 20_000, 10_000)
    (20000, 2000, 500)
    """
    muted_ms = min(throttle_ms, mute_ms_max)
    if group_session_timeout_ms is not None:
        muted_ms = min(muted_ms, group_session_timeout_ms // GROUP_MUTE_SHARE)
    return max(muted_ms, 0)
