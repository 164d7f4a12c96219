"""The figures of one client and one kind of quota, for metrics and admin pages."""

from typing import Final, NamedTuple

from quotas.limiters.lending import ALL_BROKERS

__all__ = ["GATEWAY", "QuotaView"]

GATEWAY: Final = ALL_BROKERS  # with scope `cluster`


class QuotaView(NamedTuple):
    """One client and kind of quota at one broker; counters since the start of the process.

    Args:
        type: Kafka's name: Produce, Fetch, ControllerMutation, Request; in waits also Topic, Connection, Replication.
        byte_rate: over the quota's windows; percent for Request.
        quota: the limit; None for unlimited.
        tokens: the tokens for partition mutations; None for unlimited.
        broker: the broker at which it is counted; GATEWAY for all brokers together.
        backlog_bytes: the bytes that all clients of the budget would have left to send with enforcement, if they kept
            their rate; 0 while quotas are enforced.
        longest_wait_ms_total: in waits, the time in ms of the connection that has waited longest.
    """

    user: str
    client_id: str
    type: str
    byte_rate: float
    quota: float | None
    bytes_total: int
    throttle_ms_total: int
    throttled_total: int
    would_throttle_ms_total: int
    would_throttled_total: int
    debt_bytes: float
    tokens: float | None = None
    broker: int = GATEWAY
    backlog_bytes: float = 0.0
    longest_wait_ms_total: int = 0
