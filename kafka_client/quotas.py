"""The quota API as a client (KIP-546), on Sluice and on brokers alike: for `sluice quotas` and `sluice-offline apply`.

Version 0. A broker passes an alteration on to the controller by itself, so any address of the cluster will do.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from kafka_client.connection import Connection
from kafka_client.errors import RefusedError
from protocol.api import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from protocol.messages.client_quotas import Alteration, Component, Parts
from protocol.messages.client_quotas_calls import DescribeAnswer, alter_body, describe_body, read_alter_answer

__all__ = ["QuotaClient"]

DESCRIBE_SECONDS_MAX: Final = 10.0  # until a response begins: quotas are in a server's memory
# A broker passes an alteration on to the controller, and may have to look for it.
ALTER_SECONDS_MAX: Final = 30.0
_ARRIVAL_SECONDS_MAX: Final = 60.0  # from the first bytes of a response to its last
_RESPONSE_BYTES_MAX: Final = 256 * 1024**2
_ALTERATIONS_MAX: Final = 1000  # in one request: far below what any broker takes
_VERSION: Final = 0


class QuotaClient:
    """Describes and alters quotas on a connection; each method raises what `Connection.request` does.

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
        frame = await self._request(DESCRIBE_CLIENT_QUOTAS, body, DESCRIBE_SECONDS_MAX)
        answer = DescribeAnswer(frame, _VERSION)
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
            frame = await self._request(ALTER_CLIENT_QUOTAS, body, ALTER_SECONDS_MAX)
            results = read_alter_answer(frame, _VERSION)
            refused += [(parts, _problem(code, message)) for parts, code, message in results if code]
        return refused

    async def _request(self, api_key: int, body: bytes, seconds: float) -> bytes:
        total_seconds = seconds + _ARRIVAL_SECONDS_MAX
        deadline = asyncio.timeout(total_seconds)
        try:
            async with deadline:
                return await self._connection.request(
                    api_key, _VERSION, body, bytes_max=_RESPONSE_BYTES_MAX, begin_seconds=seconds
                )
        except TimeoutError:
            if deadline.expired():
                raise TimeoutError(f"no whole response within {total_seconds:g} s") from None
            raise


def _problem(code: int, message: str | None) -> str:
    return message or f"error {code}"
