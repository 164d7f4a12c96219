"""The options of the quota engine (docs/configuration.md, section `[quotas]`), validated here.

Reading them from a file is `proxy.config`; what they do is in `rate`, `schedule` and `engine`.
"""

from dataclasses import dataclass
from typing import Final, Literal

Policy = Literal["schedule", "kip13"]
Mode = Literal["enforce", "observe"]
Scope = Literal["broker", "cluster"]
NewConnections = Literal["held", "as-kafka"]
UnknownUsers = Literal["none", "default", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The rules by which quotas are enforced; limits themselves are `definitions.Definitions`.

    The defaults here are Kafka's (policy, scope), so that the arithmetic without options is KIP-13's. Those of a
    configuration are `proxy.config.QuotaSettings`, which sets every one of these.

    Attributes:
        policy: `kip13` is Kafka's sampled windows; `schedule` paces the clients that share a quota, in fair order.
        mode: `enforce`, or `observe`: every decision is made and counted, and none is enforced.
        scope: `broker` counts each broker by itself (KIP-13), `cluster` all brokers behind this process as one.
        window_samples: samples of the window (kip13); Kafka's quota.window.num.
        window_seconds: length of one sample; Kafka's quota.window.size.seconds.
        burst_seconds: how many seconds of its rate an idle client may send at once (schedule).
        hold_seconds_max: how long a Produce may wait at its header (schedule); 0 = never held.
        mute_seconds_max: the longest mute; a longer one is cut, and the debt stays.
        new_connections: `held` makes the first Produce of a connection wait while its client is over the quota (kip13);
            `as-kafka` lets it pass.
        client_ids_max: the largest number of clients that are counted separately; further ones share one quota,
            `<other>`.
        client_bytes_max: the most memory of clients and their limiters, in bytes; the same applies beyond it.
        partition_mutations_rate: partition mutations/s of all clients together (KIP-599); None = unlimited.
        partition_mutations_burst: how many of them may come at once; None = the rate times all windows.
        charge_validate_only: whether requests with validate_only count as mutations, as in KRaft.
        charge_auto_created: whether topics that are auto-created because of a Metadata request count as mutations.
        unknown_users: the quotas of clients whose user cannot be read from their SASL tokens: no user's quota, the
            default user's for all of them together, or none, since their connections are closed.
    """

    policy: Policy = "kip13"
    mode: Mode = "enforce"
    scope: Scope = "broker"
    window_samples: int = 11
    window_seconds: float = 1.0
    burst_seconds: float = 1.0
    hold_seconds_max: float = 15.0
    mute_seconds_max: float = 20.0
    new_connections: NewConnections = "held"
    client_ids_max: int = 200_000
    client_bytes_max: int = 1 << 30
    partition_mutations_rate: float | None = None
    partition_mutations_burst: float | None = None
    charge_validate_only: bool = True
    charge_auto_created: bool = True
    unknown_users: UnknownUsers = "none"

    def __post_init__(self) -> None:
        assert self.window_samples >= 2, (
            "a window needs two samples: Kafka's arithmetic divides by the full ones"
        )
        assert self.window_seconds > 0, "a sample has a length"
        assert self.burst_seconds >= 0, "a burst is a time"
        assert self.hold_seconds_max >= 0, "a hold is a time"
        assert self.mute_seconds_max > 0, "without mutes there is no throttling"
        assert self.client_ids_max > 0, "at least one client can be told apart"
        assert self.client_bytes_max > 0, "names take memory"
        assert self.partition_mutations_rate is None or self.partition_mutations_rate > 0, (
            "a bucket that is never refilled limits for ever"
        )
        assert self.partition_mutations_burst is None or self.partition_mutations_burst >= 0, (
            "a burst is a number of partitions"
        )


# ----------------------------------------------------------------------------------------------------
# The longest mute of a channel (KIP-219), so that throttling never costs a connection or a group membership.
#
# Some clients send heartbeats on the connection that they fetch on (sarama, KafkaJS): a mute as long as their session
# timeout would remove them from the group. sarama also waits before each request until the last throttle time is over,
# so one heartbeat may meet two mutes in addition to its interval of a third (Kafka's own advice): hence a fifth. The
# rest of a capped mute stays as debt in the engine.

# JoinGroup has the session timeout. A connection with other group requests only gets the smallest default of all
# clients: 10 s (librdkafka before 1.6, sarama, aiokafka; 45 s in Java since 3.0).
GROUP_SESSION_TIMEOUT_MS: Final = 10_000
# A third (the heartbeat interval) and two mutes of a fifth are 0.73 of the session timeout.
GROUP_MUTE_SHARE: Final = 5


def capped(throttle_ms: int, mute_ms_max: int, group_session_timeout_ms: int | None) -> int:
    """Return how long a channel is muted, in ms: at most `mute_ms_max`, and a fifth of the group's session timeout.

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
