"""kafka_client.connection: a response to one of Sluice's own requests is no longer than what was asked for can be."""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_client import (
    ClosedError,
    Connection,
    Request,
    metadata,
    quotas,
)
from kafka_client import (
    metadata as configs,
)
from kafka_client import (
    metadata as reassignments,
)
from kafka_client.request import MIB
from protocol.api import API_NAMES, METADATA
from protocol.errors import WireError


def connected(received: bytes, *, ends: bool = True) -> Connection:
    """A connection to a broker that has sent these bytes already."""
    reader = asyncio.StreamReader()
    reader.feed_data(received)
    if ends:
        reader.feed_eof()
    return Connection(("h", 1), reader, Mock(is_closing=lambda: False))


ASKING = Request(METADATA, 0, b"", bytes, MIB)


async def requested(request: Request[Any], length: int) -> bytes:
    """Ask; the response announces so many bytes, and four come."""
    received = length.to_bytes(4, "big", signed=True) + b"\0\0\0\1"
    return await connected(received).send(request)


@pytest.mark.parametrize(
    ("request_", "most"),
    [
        (metadata.brokers(), 2 * MIB),
        (metadata.partitions(["t"]), 8 * MIB),
        (metadata.registered_brokers(), MIB),
        (configs.describe_topics(["t"], ["k"]), 8 * MIB),
        (reassignments.list_ongoing(), 8 * MIB),
        (reassignments.alter({}, 1), 4 * MIB),
        (quotas.describe(), 16 * MIB),
    ],
    ids=lambda value: API_NAMES[value.api_key] if isinstance(value, Request) else "",
)
async def test_longer_response_is_refused_at_its_length(request_: Request[Any], most: int) -> None:
    assert request_.bytes_max == most
    with pytest.raises(ClosedError):  # it was waited for
        await requested(request_, most)
    with pytest.raises(WireError, match=f"a response of {most + 1} bytes"):
        await requested(request_, most + 1)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3])
async def test_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(WireError, match=f"a response of {length} bytes to Metadata"):
        await requested(ASKING, length)


async def test_response_that_does_not_begin_in_time_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match=r"no response within 0\.01 s"):
        await connected(b"\0\0", ends=False).send(ASKING, begin_seconds=0.01)


async def test_deadline_of_the_caller_is_not_taken_for_that() -> None:
    with pytest.raises(TimeoutError) as raised:
        async with asyncio.timeout(0.01):
            await connected(b"", ends=False).send(ASKING, begin_seconds=10)
    assert str(raised.value) == ""


async def test_nothing_is_written_to_a_connection_that_was_reset() -> None:
    writer = Mock(is_closing=lambda: True)
    connection = Connection(("h", 1), asyncio.StreamReader(), writer)
    with pytest.raises(ClosedError):
        await connection.send(ASKING)
    writer.write.assert_not_called()
    assert connection.closed
