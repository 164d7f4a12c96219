"""Sends requests to the brokers of a map, with Sluice's own login and certificates, until one broker responds.

The broker's certificate must have the name under which the broker is known, not the resolved address. A broker of 4.4
or later is asked first whether it is the one that is known at the address (KIP-1242): another cluster may have its
address by now, with topics of the same names.
"""

import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from kafka_client import ASKING_FAILS, Connection, Login, LoginError, Request
from kafka_client.metadata import identify
from proxy.channel.settings import ANY_BROKER
from proxy.config import ClusterOptions
from proxy.control.cluster.brokers import BrokerMap
from proxy.system.errors import reason, sluice_version
from proxy.system.files import read
from proxy.system.threads import parse_response

T = TypeVar("T")
Target = tuple[str, int]
Tls = Callable[[], ssl.SSLContext]
"""Returns the TLS context in force."""

_PROBLEMS_MAX: Final = 3  # the most brokers without a response that are named in an error


class BrokerClient:
    """Connects to the brokers of a broker map, for Sluice's own requests.

    Args:
        login: authenticates each connection; None where brokers require no SASL.
        tls: returns the TLS context in force; None for plaintext.

    Attributes:
        brokers: the broker map.
    """

    def __init__(self, brokers: BrokerMap, login: Login | None = None, tls: Tls | None = None) -> None:
        self.brokers = brokers
        self._login = login
        self._tls = tls

    def of(self, brokers: BrokerMap) -> "BrokerClient":
        """Return a client for the brokers of another map, with the same login and certificates."""
        return BrokerClient(brokers, self._login, self._tls)

    async def connect(self, target: Target, *, anyone: bool = False) -> Connection:
        """Connect to one of `BrokerMap.targets`.

        Args:
            anyone: whether a broker will do that is not the one known at this address.

        Raises:
            OSError: as `Connection.open`, or it is another broker.
            LoginError, WireError: as `Connection.open`.
        """
        if self._tls is None:
            connection = await Connection.open(*target, login=self._login)
        else:
            name = self.brokers.host(ANY_BROKER, target)
            connection = await Connection.open(
                *target, tls=self._tls(), server_hostname=name, login=self._login
            )
        identity = None if anyone else self.brokers.identity(target)
        if identity is None:
            return connection
        try:
            if not await ask(connection, identify(sluice_version(), *identity)):
                raise OSError(f"is not broker {identity[1]} of cluster {identity[0]} any more")
        except BaseException:
            connection.close()
            raise
        return connection

    async def ask(self, target: Target, request: Request[T], *, anyone: bool = False) -> T:
        """Connect, send one request, close the connection, and return the parsed response.

        Args:
            anyone: as of `connect`.

        Raises:
            OSError, LoginError, WireError: as `connect` and `Connection.send`.
        """
        connection = await self.connect(target, anyone=anyone)
        try:
            return await ask(connection, request)
        finally:
            connection.close()


async def ask(connection: Connection, request: Request[T]) -> T:
    """Send a request and return its parsed response; a large one is parsed in a thread.

    Raises:
        OSError, WireError: as `Connection.send`.
    """
    return await parse_response(request.read, await connection.send(request))


async def first_response(
    targets: Iterable[Target], ask: Callable[[Target], Awaitable[T]], seconds: float
) -> T:
    """Call `ask` for one broker after the other until one call succeeds, and return its result.

    Args:
        targets: the brokers' addresses.
        ask: asks the broker at an address; raises one of ASKING_FAILS if it fails.
        seconds: the deadline that `ask` sets for itself; only for the text of the error.

    Raises:
        OSError: no broker has responded; the message says why.
    """
    problems = []
    for target in targets:
        try:
            return await ask(target)
        except ASKING_FAILS as error:
            problems.append(f"{target[0]}:{target[1]}: {reason(error, seconds)}")
    raise OSError("; ".join(problems[:_PROBLEMS_MAX]) or "no broker is known")


# `[cluster] sasl_mechanism`: the configured login of Sluice's own connections.
#
# Not for clients' connections: clients authenticate with the broker themselves, through the proxy.


_PASSWORD_BYTES_MAX: Final = 64 * 1024


def login_of(options: ClusterOptions) -> Login | None:
    """Return the SASL login of `[cluster]`, which reads its password file at each use; None without a login."""
    if not options.sasl_mechanism:
        return None
    path = options.password_file
    # GSSAPI and AWS_MSK_IAM have neither a password nor a file.
    password = options.password if options.password or path is None else partial(password_of, path)
    return Login(options.sasl_mechanism, options.username, password)


def password_of(path: Path) -> str:
    """Read a password from its file.

    Raises:
        LoginError: the file contains no password.
    """
    try:
        password = read(path, _PASSWORD_BYTES_MAX).decode().rstrip("\r\n")
    except OSError as error:
        raise LoginError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise LoginError(f"{path}: is not UTF-8") from None
    if not password:
        raise LoginError(f"{path}: is empty")
    return password
