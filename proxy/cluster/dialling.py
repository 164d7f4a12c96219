"""Sluice's own connections to brokers: plaintext or TLS, one way for all who ask the cluster something.

The broker's certificate must bear the name under which the broker is known, not the address that it was resolved to.
What is said on the connection, a login first of all, is its caller's business.
"""

import asyncio
import ssl
from collections.abc import Callable

from proxy.channel.settings import ANY_BROKER
from proxy.cluster.brokers import BrokerMap

__all__ = ["Tls", "dial"]

Tls = Callable[[], ssl.SSLContext]
"""Gives the TLS context in force."""


async def dial(
    brokers: BrokerMap, host: str, port: int, tls: Tls | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to one of `BrokerMap.targets`.

    Raises:
        OSError: it can not be reached, or its certificate is not believed.
    """
    if tls is None:
        return await asyncio.open_connection(host, port)
    name = brokers.host(ANY_BROKER, (host, port))
    return await asyncio.open_connection(host, port, ssl=tls(), server_hostname=name)
