"""kafka_client.connection: a response to one of Sluice's own requests is no longer than what was asked for can be."""

import asyncio
from unittest.mock import Mock

import pytest

from kafka_client import ClosedError, Connection, Request
from kafka_client.connection import RESPONSE_BYTES_MAX, RESPONSE_BYTES_MAX_OTHERS
from protocol.api import API_VERSIONS, DESCRIBE_CLUSTER, LIST_PARTITION_REASSIGNMENTS, METADATA
from protocol.errors import WireError


def connected(received: bytes, *, ends: bool = True) -> Connection:
    """A connection to a broker that has sent these bytes already."""
    reader = asyncio.StreamReader()
    reader.feed_data(received)
    if ends:
        reader.feed_eof()
    return Connection(("h", 1), reader, Mock(is_closing=lambda: False))


def asking(api_key: int = METADATA, bytes_max: int = 0) -> Request[bytes]:
    return Request(api_key, 0, b"", bytes, bytes_max)


async def requested(api_key: int, length: int, bytes_max: int = 0) -> bytes:
    """Ask; the response announces so many bytes, and four come."""
    received = length.to_bytes(4, "big", signed=True) + b"\0\0\0\1"
    return await connected(received).send(asking(api_key, bytes_max))


@pytest.mark.parametrize(
    ("api_key", "most"),
    [
        (API_VERSIONS, 64 * 1024),
        (DESCRIBE_CLUSTER, 1024 * 1024),
        (LIST_PARTITION_REASSIGNMENTS, 8 * 1024 * 1024),
        (METADATA, 16 * 1024 * 1024),
    ],
)
async def test_longer_response_is_refused_at_its_length(api_key: int, most: int) -> None:
    assert RESPONSE_BYTES_MAX.get(api_key, RESPONSE_BYTES_MAX_OTHERS) == most
    with pytest.raises(ClosedError):  # it was waited for
        await requested(api_key, most)
    with pytest.raises(WireError, match=f"a response of {most + 1} bytes"):
        await requested(api_key, most + 1)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3])
async def test_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(WireError, match=f"a response of {length} bytes to Metadata"):
        await requested(METADATA, length)


async def test_caller_may_limit_it_more() -> None:
    assert await requested(METADATA, 4, 4) == b"\0\0\0\4\0\0\0\1"
    with pytest.raises(WireError):
        await requested(METADATA, 5, 4)


async def test_response_that_does_not_begin_in_time_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match=r"no response within 0\.01 s"):
        await connected(b"\0\0", ends=False).send(asking(), begin_seconds=0.01)


async def test_deadline_of_the_caller_is_not_taken_for_that() -> None:
    with pytest.raises(TimeoutError) as raised:
        async with asyncio.timeout(0.01):
            await connected(b"", ends=False).send(asking(), begin_seconds=10)
    assert str(raised.value) == ""


async def test_nothing_is_written_to_a_connection_that_was_reset() -> None:
    writer = Mock(is_closing=lambda: True)
    connection = Connection(("h", 1), asyncio.StreamReader(), writer)
    with pytest.raises(ClosedError):
        await connection.send(asking())
    writer.write.assert_not_called()
    assert connection.closed
