"""Clients' waits as rows for metrics, under Kafka's names of the kinds of quotas."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from proxy.explain.watch import Client
from quotas.throttles.figures import QuotaView

TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "produce": "Produce",
        "fetch": "Fetch",
        "request": "Request",
        "mutation": "ControllerMutation",
        "topic": "Topic",
        "connection": "Connection",
        "replication": "Replication",
    }
)


def wait_views(clients: Iterable[Client]) -> Iterator[QuotaView]:
    """Yield a view for each client and kind of quota that it has waited for; its bytes are the waits in ms."""
    for client in clients:
        for kind, all_ms, longest_ms in client.waits:
            yield QuotaView(
                client.user,
                client.client_id,
                TYPES[kind],
                byte_rate=0.0,
                quota=None,
                bytes_total=int(all_ms),
                throttle_ms_total=0,
                throttled_total=0,
                would_throttle_ms_total=0,
                would_throttled_total=0,
                debt_bytes=0.0,
                longest_wait_ms_total=int(longest_ms),
            )
