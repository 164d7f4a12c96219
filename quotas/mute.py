"""How long a channel may be silent (KIP-219), so that throttling never costs a connection or a group
membership.

Some clients heartbeat on the connection they fetch on (sarama, KafkaJS): a mute as long as their session
timeout would expel them. sarama even waits itself before each request until the last throttle time is over, so one
heartbeat may meet two mutes, on top of its interval of a third (Kafka's own advice): hence a fifth. What a capped mute
leaves over is not forgotten: the debt stays in the engine. This module keeps no state and mutes nobody.
"""

from typing import Final

# JoinGroup names the session timeout. A connection that carried only other group requests gets the smallest
# default among the clients: 10 s (librdkafka before 1.6, sarama, aiokafka; Java says 45 s since 3.0).
GROUP_SESSION_TIMEOUT_MS: Final = 10_000
# A third (the heartbeat interval) and two mutes of a fifth are 0.73 of the session timeout.
GROUP_MUTE_SHARE: Final = 5


def capped(throttle_ms: int, mute_ms_max: int, group_session_timeout_ms: int | None) -> int:
    """The time to mute for: at most `mute_ms_max`, and a fifth of the group's session timeout.

    Args:
        throttle_ms: what the engine decided.
        mute_ms_max: the configured cap.
        group_session_timeout_ms: of the group this connection speaks for; `None` where it never carried a
            group request.

    >>> capped(60_000, 20_000, None), capped(60_000, 20_000, 10_000), capped(500, 20_000, 10_000)
    (20000, 2000, 500)
    """
    muted_ms = min(throttle_ms, mute_ms_max)
    if group_session_timeout_ms is not None:
        muted_ms = min(muted_ms, group_session_timeout_ms // GROUP_MUTE_SHARE)
    return max(muted_ms, 0)
