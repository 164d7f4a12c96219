"""The client side of the quota API (KIP-546), whose server is a Sluice or a broker.

A broker forwards an alteration to the controller itself, so any address of the cluster will do. A response to
DescribeClientQuotas is decoded here, one entity at a time: it may have 100,000 entities, which kafka-python would
create at once (0.8 s, 96 MiB).

Version notes: 1 is flexible, and otherwise the same. Sluice sends version 0, which every broker with the API supports.
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from struct import Struct
from typing import Any, Final

from kafka.protocol import admin

from kafka_client.connection import Connection
from kafka_client.request import MIB, RefusedError, Request, request_of
from protocol.api import DESCRIBE_CLIENT_QUOTAS, flexible
from protocol.errors import TruncatedError
from protocol.header import response_body_start
from protocol.messages.client_quotas import Alteration, Component, Parts, read_parts
from protocol.primitives import Buffer, count, int16, skip, skip_tags, string

DESCRIBE_SECONDS_MAX: Final = 10.0  # until a response begins: quotas are in a server's memory
# A broker forwards an alteration to the controller, and may have to find it first.
ALTER_SECONDS_MAX: Final = 30.0
_ARRIVAL_SECONDS_MAX: Final = 60.0  # from the first bytes of a response to its last
# The longest description: 160,000 entities for the proxy, which keeps them, and 2.6 million for operators.
_DESCRIBED_BYTES_MAX: Final = 16 * MIB
_SHOWN_BYTES_MAX: Final = 256 * MIB
_ALTERED_BYTES_MAX: Final = 16 * MIB
_ALTERATIONS_MAX: Final = 1000  # in one request: far below what any broker takes
_FLOAT64: Final = Struct(">d")

Altered = tuple[Parts, int, str | None]
"""An entity with its error code and message."""


class QuotaEntities:
    """A complete response to DescribeClientQuotas; its entities are decoded one by one during iteration.

    Attributes:
        error_code, error_message: Kafka's error for the whole request; 0 and None without an error.
    """

    def __init__(self, version: int, frame: Buffer) -> None:
        """Decode the fields before the entities.

        Raises:
            WireError: the frame is not such a response.
        """
        end = len(frame)
        self._frame = frame
        self._compact = flexible(DESCRIBE_CLIENT_QUOTAS, version)
        pos = response_body_start(frame, 0, end, DESCRIBE_CLIENT_QUOTAS, version)
        pos = skip(pos, 4, end)
        self.error_code = int16(frame, pos, end)
        self.error_message, self._pos = string(frame, pos + 2, end, self._compact)

    def __iter__(self) -> Iterator[tuple[Parts, dict[str, float]]]:
        """Yield each entity with its limits.

        Raises:
            WireError: the frame is not such a response.
        """
        frame, end, compact = self._frame, len(self._frame), self._compact
        entries, pos = count(frame, self._pos, end, compact)
        for _ in range(entries):
            parts, pos = read_parts(frame, pos, end, compact)
            values: dict[str, float] = {}
            size, pos = count(frame, pos, end, compact)
            for _ in range(size):
                key, pos = string(frame, pos, end, compact)
                if pos + 8 > end:
                    raise TruncatedError(f"a value at byte {pos} is cut off at {end}")
                values[key or ""] = _FLOAT64.unpack_from(frame, pos)[0]
                pos = skip_tags(frame, pos + 8, end) if compact else pos + 8
            if compact:
                pos = skip_tags(frame, pos, end)
            yield parts, values
        if compact:
            skip_tags(frame, pos, end)


def describe(
    components: Sequence[Component] = (),
    *,
    strict: bool = False,
    version: int = 0,
    bytes_max: int = _DESCRIBED_BYTES_MAX,
) -> Request[QuotaEntities]:
    """Return the DescribeClientQuotas request for the entities that match `components`; for all if it is empty.

    Args:
        components: entity type, match type and name, as in KIP-546.
        strict: if True, an entity matches only if it has no further part, such as a client id beside the user.
        bytes_max: the longest accepted response.
    """
    kind = admin.DescribeClientQuotasRequest.ComponentData
    asked = admin.DescribeClientQuotasRequest(
        version=version,
        components=[kind(entity_type=one, match_type=how, match=name) for one, how, name in components],
        strict=strict,
    )
    read = partial(QuotaEntities, version)
    return Request(DESCRIBE_CLIENT_QUOTAS, version, bytes(asked.encode()), read, bytes_max)


def alter(
    alterations: Sequence[Alteration], *, validate_only: bool, version: int = 0
) -> Request[list[Altered]]:
    """Return the AlterClientQuotas request that sets or removes (None) limits of entities.

    Args:
        validate_only: whether the server only checks the request, and changes nothing.
    """
    entry = admin.AlterClientQuotasRequest.EntryData
    entries = [
        entry(
            entity=[entry.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
            ops=[entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
        )
        for parts, ops in alterations
    ]
    asked = admin.AlterClientQuotasRequest(version=version, entries=entries, validate_only=validate_only)
    return request_of(asked, admin.AlterClientQuotasResponse, _altered, _ALTERED_BYTES_MAX)


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
        """Return the entities that match `components`, with their limits; all entities if it is empty.

        Args:
            strict: if True, an entity matches only if it has no further part, such as a client id beside the user.

        Raises:
            RefusedError: the server refuses.
        """
        request = describe(components, strict=strict, bytes_max=_SHOWN_BYTES_MAX)
        found = request.read(await self._send(request, DESCRIBE_SECONDS_MAX))
        if found.error_code:
            raise RefusedError(_problem(found.error_code, found.error_message))
        return list(found)

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> list[tuple[Parts, str]]:
        """Set or remove limits of entities; return the entities that the server refused, each with its reason.

        Args:
            validate_only: whether the server only checks the alterations, and changes nothing.
        """
        refused: list[tuple[Parts, str]] = []
        for start in range(0, len(alterations), _ALTERATIONS_MAX):
            request = alter(alterations[start : start + _ALTERATIONS_MAX], validate_only=validate_only)
            results = request.read(await self._send(request, ALTER_SECONDS_MAX))
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


def _altered(response: Any) -> list[Altered]:
    return [
        (
            tuple((part.entity_type or "", part.entity_name) for part in entry.entity or ()),
            entry.error_code,
            entry.error_message,
        )
        for entry in response.entries or ()
    ]


def _problem(code: int, message: str | None) -> str:
    return message or f"error {code}"
