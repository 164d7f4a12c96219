"""What the engine shows of one client and one kind of quota: for metrics and for people."""

from typing import Final, NamedTuple

__all__ = ["GATEWAY", "QuotaView"]

GATEWAY: Final = -1  # the broker of every client, where one budget spans all brokers


class QuotaView(NamedTuple):
    """One client and kind of quota at one broker; counters since the start of the process.

    Args:
        type: Kafka's names: Produce, Fetch, ControllerMutation, Request.
        byte_rate: over the quota's windows; percent for Request.
        quota: None where nothing limits it.
        tokens: of partition mutations; None where nothing limits them.
        broker: where it is counted; GATEWAY where that is at all brokers together.
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
