"""The access of a log to its cluster: addresses, TLS and login, and single requests on Sluice's own connections.

Topics are looked up and created with `kafka_client`, which limits responses and knows topic ids; records are read and
written with aiokafka, which gets the same addresses, certificates and login. A password is read for each client that is
made, so that a changed file needs no restart.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kafka_client import ASKING_FAILS, Connection, Login, Request
from proxy.errors import reason

T = TypeVar("T")

_SECONDS_MAX: Final = 5.0  # of one request to one broker
_PROBLEMS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Sasl:
    """A login in aiokafka's terms. `password` reads the password or token, and raises LoginError."""

    mechanism: str
    username: str
    password: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Access:
    """The access to one cluster.

    Args:
        bootstrap: some of its brokers.
        login: authenticates Sluice's own connections; None without SASL.
        sasl: the same login for aiokafka.
        tls: returns the TLS context in force; None for plaintext.
    """

    bootstrap: Sequence[tuple[str, int]]
    login: Login | None = None
    sasl: Sasl | None = None
    tls: Callable[[], ssl.SSLContext] | None = None

    async def ask(self, request: Request[T], satisfied: Callable[[T], bool] = lambda _: True) -> T:
        """Send a request to one broker after another until `satisfied` accepts a response; return the last response.

        Raises:
            OSError: no broker has responded; the message says why.
        """
        problems: list[str] = []
        last: T | None = None
        for host, port in self.bootstrap:
            try:
                async with asyncio.timeout(_SECONDS_MAX):
                    last = await self._send(host, port, request)
            except ASKING_FAILS as error:
                problems.append(f"{host}:{port}: {reason(error, _SECONDS_MAX)}")
                continue
            if satisfied(last):
                return last
        if last is not None:
            return last
        raise OSError("; ".join(problems[:_PROBLEMS_MAX]) or "no broker is known")

    async def _send(self, host: str, port: int, request: Request[T]) -> T:
        tls = None if self.tls is None else self.tls()
        connection = await Connection.open(host, port, tls=tls, login=self.login)
        try:
            return request.read(await connection.send(request))
        finally:
            connection.close()
