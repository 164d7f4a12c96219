"""Answers to Sluice's own questions are no longer than what was asked for can be."""

import asyncio
from unittest.mock import Mock

import pytest

from protocol.api import API_VERSIONS, DESCRIBE_CLUSTER, LIST_PARTITION_REASSIGNMENTS, METADATA
from protocol.errors import WireError
from proxy.cluster.asking import ANSWER_BYTES_MAX, ask


async def answered(api_key: int, length: int, bytes_max: int | None = None) -> bytes:
    """Ask, and be told that so many bytes will come; only four do."""
    reader = asyncio.StreamReader()
    reader.feed_data(length.to_bytes(4, "big", signed=True) + b"\0\0\0\1")
    reader.feed_eof()
    writer = Mock(is_closing=lambda: False)
    return await ask(reader, writer, api_key, 0, b"", bytes_max)


@pytest.mark.parametrize(
    ("api_key", "most"),
    [
        (API_VERSIONS, 64 * 1024),
        (DESCRIBE_CLUSTER, 1024 * 1024),
        (LIST_PARTITION_REASSIGNMENTS, 8 * 1024 * 1024),
        (METADATA, 16 * 1024 * 1024),
    ],
)
async def test_longer_answer_is_refused_at_its_length(api_key: int, most: int) -> None:
    assert ANSWER_BYTES_MAX.get(api_key, 16 * 1024 * 1024) == most
    with pytest.raises(asyncio.IncompleteReadError):  # it is waited for
        await answered(api_key, most)
    with pytest.raises(WireError, match=f"a response of {most + 1} bytes"):
        await answered(api_key, most + 1)


async def test_caller_may_bound_it_more() -> None:
    assert await answered(METADATA, 4, 4) == b"\0\0\0\4\0\0\0\1"
    with pytest.raises(WireError):
        await answered(METADATA, 5, 4)
