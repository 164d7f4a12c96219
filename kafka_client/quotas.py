"""The quota API as a client (KIP-546), on Sluice and on brokers alike: for `sluice quotas` and `sluice-offline apply`.

Version 0. A broker passes an alteration on to the controller by itself, so any address of the cluster will do.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from kafka_client.connection import Connection
from kafka_client.errors import RefusedError
from kafka_client.request import Request
from protocol.api import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from protocol.messages.client_quotas import Alteration, Component, Parts
from protocol.messages.client_quotas_calls import DescribeAnswer, alter_body, describe_body, read_alter_answer

__all__ = ["QuotaClient", "describe_everything"]

DESCRIBE_SECONDS_MAX: Final = 10.0  # until a response begins: quotas are in a server's memory
# A broker passes an alteration on to the controller, and may have to look for it.
ALTER_SECONDS_MAX: Final = 30.0
_ARRIVAL_SECONDS_MAX: Final = 60.0  # from the first bytes of a response to its last
_RESPONSE_BYTES_MAX: Final = 256 * 1024**2
_ALTERATIONS_MAX: Final = 1000  # in one request: far below what any broker takes
_VERSION: Final = 0


class QuotaClient:
    """Describes and alters quotas on a connection; each method raises what `Connection.send` does.

    Attributes:
        address: host and port of the server.
    """

    def __init__(self, connection: Connection) -> None:
        self.address = connection.address
        self._connection = connection

    async def describe(
        self, components: Sequence[Component] = (), *, strict: bool = False
    ) -> list[tuple[Parts, dict[str, float]]]:
        """Return the entities that match, with their limits; all of them where nothing is asked for.

        Raises:
            RefusedError: the server refuses.
        """
        body = describe_body(components, strict=strict)
        request = Request(DESCRIBE_CLIENT_QUOTAS, _VERSION, body, _described, _RESPONSE_BYTES_MAX)
        answer = _described(await self._send(request, DESCRIBE_SECONDS_MAX))
        if answer.error_code:
            raise RefusedError(_problem(answer.error_code, answer.error_message))
        return list(answer)

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> list[tuple[Parts, str]]:
        """Alter entities; return those that were refused, with the reason."""
        refused: list[tuple[Parts, str]] = []
        for start in range(0, len(alterations), _ALTERATIONS_MAX):
            body = alter_body(alterations[start : start + _ALTERATIONS_MAX], validate_only=validate_only)
            request = Request(ALTER_CLIENT_QUOTAS, _VERSION, body, _altered, _RESPONSE_BYTES_MAX)
            results = _altered(await self._send(request, ALTER_SECONDS_MAX))
            refused += [(parts, _problem(code, message)) for parts, code, message in results if code]
        return refused

    async def _send(self, request: Request[Any], seconds: float) -> bytes:
        total_seconds = seconds + _ARRIVAL_SECONDS_MAX
        deadline = asyncio.timeout(total_seconds)
        try:
            async with deadline:
                return await self._connection.send(request, begin_seconds=seconds)
        except TimeoutError:
            if deadline.expired():
                raise TimeoutError(f"no whole response within {total_seconds:g} s") from None
            raise


def describe_everything() -> Request[DescribeAnswer]:
    """Ask for all quotas; the response gives its entities one by one, and each is read when it is taken."""
    return Request(DESCRIBE_CLIENT_QUOTAS, _VERSION, describe_body((), strict=False), _described)


def _described(frame: bytes) -> DescribeAnswer:
    return DescribeAnswer(frame, _VERSION)


def _altered(frame: bytes) -> list[tuple[Parts, int, str | None]]:
    return read_alter_answer(frame, _VERSION)


def _problem(code: int, message: str | None) -> str:
    return message or f"error {code}"
