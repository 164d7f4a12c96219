"""Connections to the brokers of a map, and one question to the first of them that answers it.

The broker's certificate must bear the name under which the broker is known, not the address that it was resolved to.
"""

import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from kafka_client import ASKING_FAILS, Connection, Login, Request
from proxy.channel.settings import ANY_BROKER
from proxy.cluster.brokers import BrokerMap
from proxy.errors import reason
from proxy.worker import decoded

__all__ = ["Target", "Tls", "ask", "ask_once", "connect", "first_answer"]

T = TypeVar("T")
Target = tuple[str, int]
Tls = Callable[[], ssl.SSLContext]
"""Gives the TLS context in force."""

_PROBLEMS_MAX: Final = 3  # that are told of brokers which did not answer


async def connect(brokers: BrokerMap, target: Target, login: Login | None, tls: Tls | None) -> Connection:
    """Connect to one of `BrokerMap.targets`.

    Raises:
        OSError, LoginError, WireError: as `Connection.open`.
    """
    if tls is None:
        name, context = target[0], None
    else:
        name, context = brokers.host(ANY_BROKER, target), tls()
    return await Connection.open(*target, tls=context, server_hostname=name, login=login)


async def first_answer(targets: Iterable[Target], ask: Callable[[Target], Awaitable[T]], seconds: float) -> T:
    """Ask one broker after the other; return the answer of the first that gives one.

    Args:
        ask: fails with one of ASKING_FAILS.
        seconds: the deadline that `ask` sets; for the problem's text.

    Raises:
        OSError: no broker has answered; it says why.
    """
    problems = []
    for target in targets:
        try:
            return await ask(target)
        except ASKING_FAILS as error:
            problems.append(f"{target[0]}:{target[1]}: {reason(error, seconds)}")
    raise OSError("; ".join(problems[:_PROBLEMS_MAX]) or "no broker is known")


async def ask(connection: Connection, request: Request[T]) -> T:
    """Send a request and return what is read of its response, in a thread where that takes long.

    Raises:
        OSError, WireError: as `Connection.send`.
    """
    return await decoded(request.read, await connection.send(request))


async def ask_once(
    brokers: BrokerMap, target: Target, login: Login | None, tls: Tls | None, request: Request[T]
) -> T:
    """Ask on a connection for this request alone.

    Raises:
        OSError, LoginError, WireError: as `Connection.open` and `Connection.send`.
    """
    connection = await connect(brokers, target, login, tls)
    try:
        return await ask(connection, request)
    finally:
        connection.close()
