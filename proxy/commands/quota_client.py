"""A small client of the quota API (KIP-546), for `sluice quotas`: it works on Sluice and on brokers alike.

One connection, one request at a time, version 0. A broker passes an alteration on to the controller by itself, so any
address of the cluster will do; the first one that can be reached is asked. Names of hosts are resolved by the system.
"""

import asyncio
import struct
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from protocol.errors import WireError
from protocol.messages.client_quotas import Alteration, Component, Parts
from protocol.messages.client_quotas_calls import (
    DescribeAnswer,
    alter_request,
    describe_request,
    read_alter_answer,
)
from proxy.cluster.login import ASKING_FAILS
from proxy.commands.command_config import Security
from proxy.config import Address
from proxy.errors import ServerError, reason

__all__ = ["QuotaClient"]

_CONNECT_SECONDS_MAX: Final = 5.0  # of each server, with TLS and login
_DESCRIBE_SECONDS_MAX: Final = 10.0  # until a response begins: quotas are in a server's memory
_ALTER_SECONDS_MAX: Final = (
    30.0  # a broker passes an alteration on to the controller, and may have to look for it
)
_ARRIVAL_SECONDS_MAX: Final = 60.0  # from the first bytes of a response to its last
_ANSWER_BYTES_MAX: Final = 256 * 1024**2
_ALTERATIONS_MAX: Final = 1000  # in one request: far below what any broker takes
_CLIENT_ID: Final = "sluice-quotas"


class QuotaClient:
    """One connection to whoever answers the quota API.

    Args:
        servers: asked in turn until one is reached.
        security: how the connection is made.
    """

    def __init__(self, servers: Sequence[Address], security: Security) -> None:
        self._servers = servers
        self._security = security
        self._server = ""
        self._correlation_id = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        problems = []
        for server in self._servers:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                    self._streams, self._server = await self._connect(server), str(server)
            except ASKING_FAILS as error:
                problems.append(f"{server}: {reason(error, _CONNECT_SECONDS_MAX)}")
            else:
                return self
        raise ServerError("; ".join(problems))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._streams is not None:
            self._streams[1].close()

    async def describe(
        self, components: Sequence[Component] = (), *, strict: bool = False
    ) -> list[tuple[Parts, dict[str, float]]]:
        """Give the entities that match, with their limits; all of them where nothing is asked for.

        Raises:
            ServerError: it was refused.
        """
        self._correlation_id += 1
        frame = describe_request(
            components, strict=strict, correlation_id=self._correlation_id, client_id=_CLIENT_ID
        )
        try:
            answer = DescribeAnswer(await self._ask(frame, _DESCRIBE_SECONDS_MAX), 0)
            if answer.error_code:
                raise ServerError(_problem(answer.error_code, answer.error_message))
            return list(answer)
        except WireError as error:
            raise ServerError(f"no response to DescribeClientQuotas: {error}") from error

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> list[tuple[Parts, str]]:
        """Alter entities; give those that were refused, with the reason."""
        refused: list[tuple[Parts, str]] = []
        for start in range(0, len(alterations), _ALTERATIONS_MAX):
            self._correlation_id += 1
            frame = alter_request(
                alterations[start : start + _ALTERATIONS_MAX],
                validate_only=validate_only,
                correlation_id=self._correlation_id,
                client_id=_CLIENT_ID,
            )
            try:
                results = read_alter_answer(await self._ask(frame, _ALTER_SECONDS_MAX), 0)
            except WireError as error:
                raise ServerError(f"no response to AlterClientQuotas: {error}") from error
            refused += _refused(results)
        return refused

    async def _connect(self, server: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        streams = await asyncio.open_connection(server.host, server.port, ssl=self._security.tls)
        if self._security.login is not None:
            await self._security.login(*streams)
        return streams

    async def _ask(self, frame: bytes, seconds: float) -> bytes:
        assert self._streams is not None, "it is used within `async with`"
        reader, writer = self._streams
        try:
            async with asyncio.timeout(seconds):
                writer.write(frame)
                prefix = await reader.readexactly(4)
            (length,) = struct.unpack(">i", prefix)
            if not 0 < length <= _ANSWER_BYTES_MAX:
                raise WireError(f"{length} bytes announced: not a Kafka server, or one that expects TLS")
            seconds = _ARRIVAL_SECONDS_MAX
            async with asyncio.timeout(seconds):
                return prefix + await reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise ServerError(
                "the server closed the connection without a response: it may expect TLS or SASL"
            ) from error
        except TimeoutError as error:
            raise ServerError(f"{self._server}: {reason(error, seconds)}") from error
        except OSError as error:
            raise ServerError(f"{self._server}: no response: {reason(error)}") from error


def _refused(results: Iterable[tuple[Parts, int, str | None]]) -> list[tuple[Parts, str]]:
    return [(parts, _problem(code, message)) for parts, code, message in results if code]


def _problem(code: int, message: str | None) -> str:
    return message or f"error {code}"
