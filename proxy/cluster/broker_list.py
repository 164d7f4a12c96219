"""What one broker says of all brokers: Metadata version 1 with an empty list of topics, on a connection of its own.

Every broker since 0.10 answers it with the brokers alone, each at the address that it advertises to the listener that
was asked.
"""

from typing import Final, NamedTuple

from kafka_client import Login
from protocol.api import METADATA
from protocol.messages import metadata
from proxy.cluster.brokers import BrokerMap
from proxy.cluster.connect import Target, Tls, connect
from proxy.worker import decoded

__all__ = ["Broker", "list_brokers"]

_VERSION: Final = 1
_BYTES_MAX: Final = 2 * 1024 * 1024  # 10,000 brokers with names of 150 characters
_NO_TOPICS: Final = bytes(4)


class Broker(NamedTuple):
    """A broker as the one that was asked knows it; nothing of it is checked."""

    broker: int
    host: str
    port: int


async def list_brokers(
    brokers: BrokerMap, target: Target, login: Login | None, tls: Tls | None
) -> list[Broker]:
    """Ask one broker for all brokers.

    Args:
        brokers: knows the name of the one that is asked.

    Raises:
        OSError: it can not be reached.
        LoginError: it does not know Sluice.
        WireError: what came back is no Metadata answer.
    """
    connection = await connect(brokers, target, login, tls)
    try:
        frame = await connection.request(METADATA, _VERSION, _NO_TOPICS, bytes_max=_BYTES_MAX)
    finally:
        connection.close()
    return await decoded(_read, frame)


def _read(frame: bytes) -> list[Broker]:
    found: list[Broker] = []

    def note(broker: int, host: str, port: int) -> tuple[str, int]:
        found.append(Broker(broker, host, port))
        return host, port

    metadata.rewrite_head(frame, _VERSION, note)
    return found
