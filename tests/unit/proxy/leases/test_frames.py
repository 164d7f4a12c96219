"""proxy.leases.frames, on streams without sockets."""

import asyncio
from pathlib import Path

import pytest

from proxy.leases.frames import FRAME_BYTES_MAX, read_frame, read_secret, write_frame
from proxy.leases.messages import MessageError


def reader(data: bytes) -> asyncio.StreamReader:
    found = asyncio.StreamReader()
    found.feed_data(data)
    found.feed_eof()
    return found


async def test_message_comes_back_with_the_same_secret() -> None:
    frame = write_frame(b"hello", b"secret")
    assert len(frame) == 4 + 32 + 5
    assert await read_frame(reader(frame), b"secret") == b"hello"


@pytest.mark.parametrize("secret", [b"", b"Secret"])
async def test_message_signed_with_another_secret_is_refused(secret: bytes) -> None:
    with pytest.raises(MessageError, match="wrong signature"):
        await read_frame(reader(write_frame(b"hello", b"secret")), secret)


async def test_changed_message_is_refused_without_a_secret_too() -> None:
    frame = write_frame(b"hello", b"")
    with pytest.raises(MessageError, match="wrong signature"):
        await read_frame(reader(frame[:-1] + b"0"), b"")


@pytest.mark.parametrize("length", [0, 32, FRAME_BYTES_MAX + 1, 2**32 - 1])
async def test_length_is_judged_before_anything_is_read(length: int) -> None:
    with pytest.raises(MessageError, match=f"a message of {length} bytes"):
        await read_frame(reader(length.to_bytes(4)), b"")


async def test_secret_is_read_without_its_newline(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("word\n")
    assert await read_secret(path) == b"word"
    assert await read_secret(None) == b""


async def test_empty_secret_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("\n")
    with pytest.raises(OSError, match="is empty"):
        await read_secret(path)
