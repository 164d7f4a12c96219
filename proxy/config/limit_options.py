"""`[limits]`: the named maximum of everything a client can make grow."""

from dataclasses import dataclass, field
from typing import Final

from proxy.config import readers
from proxy.config.keys import key

DAY_SECONDS: Final = 86400


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """`[limits]`: the named maximum of everything a client can make grow."""

    connections_max: int = field(
        default=20_000, metadata=key(readers.count(1, 1_000_000), "number", unit="connections")
    )
    connections_per_address_max: int | None = field(
        default=None,
        metadata=key(
            readers.count(1, 1_000_000),
            "number",
            unit="connections",
            default="none: a share, once it is full",
        ),
    )
    frame_bytes_max: int = field(
        default=100 * 1024**2, metadata=key(readers.count(1024, 2**31 - 1), "number", unit="bytes")
    )
    response_bytes_max: int = field(
        default=1024**3, metadata=key(readers.count(1024, 2**31 - 1), "number", unit="bytes")
    )
    client_ids_max: int = field(
        default=200_000, metadata=key(readers.count(1, 10_000_000), "number", unit="client ids")
    )
    sessions_max: int = field(
        default=20_000, metadata=key(readers.count(0, 1_000_000), "number", unit="fetch sessions")
    )
    kept_bytes_max: int = field(
        default=256 * 1024**2, metadata=key(readers.count(1024**2, 1024**5), "number", unit="bytes")
    )
    kept_bytes_per_connection_max: int = field(
        default=64 * 1024**2, metadata=key(readers.count(64 * 1024, 1024**5), "number", unit="bytes")
    )
    kept_bytes_per_address_max: int = field(
        default=0, metadata=key(readers.count(0, 1024**5), "number", unit="bytes", default="0: none")
    )
    pipes_max: int = field(default=64, metadata=key(readers.count(0, 65_536), "number", unit="pipes"))
    metric_series_max: int = field(
        default=2_000, metadata=key(readers.count(0, 1_000_000), "number", unit="series")
    )
    handshakes_max: int = field(
        default=1_000, metadata=key(readers.count(1, 1_000_000), "number", unit="connections")
    )
    handshake_seconds: float = field(
        default=10.0, metadata=key(readers.seconds(0.001, DAY_SECONDS), "number", unit="seconds")
    )
    connect_seconds: float = field(
        default=10.0, metadata=key(readers.seconds(0.001, DAY_SECONDS), "number", unit="seconds")
    )
    frame_seconds: float = field(
        default=60.0, metadata=key(readers.seconds(0.001, DAY_SECONDS), "number", unit="seconds")
    )
    idle_seconds: float = field(
        default=600.0, metadata=key(readers.seconds(0.001, DAY_SECONDS), "number", unit="seconds")
    )
    drain_seconds: float = field(
        default=20.0, metadata=key(readers.seconds(0, DAY_SECONDS), "number", unit="seconds")
    )
