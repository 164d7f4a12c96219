"""The client of the quota API for `apply` (KIP-546): that of `kafka_client` as blocking calls, with or without TLS.

SASL is not supported. For a server that requires it, errors refer to `sluice quotas apply FILE --command-config`, which
does the same.
"""

import asyncio
import ssl
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from kafka_client import ClosedError, Connection, QuotaClient, RefusedError
from offline.errors import ApplyError
from protocol.errors import WireError
from protocol.messages.client_quotas import Alteration, Parts

__all__ = ["QuotaApi"]

T = TypeVar("T")

_CONNECT_SECONDS_MAX: Final = 30.0
_CLIENT_ID: Final = b"sluice-offline"
_HINT: Final = "a server that asks for SASL, which `sluice quotas apply FILE --command-config ...` speaks"


class QuotaApi:
    """One connection to a server of the quota API."""

    def __init__(self, server: str, ca_file: str = "") -> None:
        self._server = server
        self._ca_file = ca_file
        self._runner = asyncio.Runner()
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        host, colon, port = self._server.rpartition(":")
        if not colon or not port.isdigit():
            raise ApplyError(f"--bootstrap-server {self._server} is not HOST:PORT")
        try:
            self._connection = self._runner.run(self._connect(host.strip("[]"), int(port)))
        except OSError as error:
            self._runner.close()
            raise ApplyError(f"{self._server} cannot be reached: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._runner.run(_closed(self._connection))
        self._runner.close()

    def describe(self) -> list[tuple[Parts, dict[str, float]]]:
        """Return every entity with its limits."""
        return self._run("DescribeClientQuotas", self._client.describe())

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool) -> list[tuple[Parts, str]]:
        """Alter entities; return those that were refused, with the reason."""
        return self._run("AlterClientQuotas", self._client.alter(alterations, validate_only=validate_only))

    @property
    def _client(self) -> QuotaClient:
        assert self._connection is not None, "it is used within `with`"
        return QuotaClient(self._connection)

    async def _connect(self, host: str, port: int) -> Connection:
        tls = ssl.create_default_context(cafile=self._ca_file) if self._ca_file else None
        async with asyncio.timeout(_CONNECT_SECONDS_MAX):
            return await Connection.open(host, port, tls=tls, client_id=_CLIENT_ID)

    def _run(self, api: str, asked: Coroutine[None, None, T]) -> T:
        try:
            return self._runner.run(asked)
        except RefusedError as error:
            raise ApplyError(str(error)) from error
        except WireError as error:
            raise ApplyError(f"{self._server} does not respond to {api}: {error}; perhaps {_HINT}") from error
        except ClosedError as error:
            raise ApplyError(
                f"{self._server} closed the connection; it may expect TLS (--ca-file), or be {_HINT}"
            ) from error
        except OSError as error:
            raise ApplyError(f"{self._server} does not respond: {error}; perhaps {_HINT}") from error


async def _closed(connection: Connection) -> None:
    connection.close()
    await asyncio.sleep(0)  # the socket is closed in the next turn of the loop
