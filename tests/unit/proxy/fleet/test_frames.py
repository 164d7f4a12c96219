"""proxy.fleet.frames, on streams without sockets."""

import asyncio
from pathlib import Path

import pytest

from proxy.fleet.codec import MESSAGE_BYTES_MAX, MessageError, VersionError
from proxy.fleet.frames import FIRST_BYTES_MAX, SIGNATURE_BYTES, Frames, SignatureError, read_secret


def reader(data: bytes) -> asyncio.StreamReader:
    found = asyncio.StreamReader()
    found.feed_data(data)
    found.feed_eof()
    return found


async def greeted(secret: bytes = b"secret") -> tuple[Frames, Frames]:
    """The holder's and the member's side after their hellos."""
    holder, member = Frames(secret, holder=True), Frames(secret, holder=False)
    await holder.receive(reader(member.hello()))
    await member.receive(reader(holder.hello()))
    assert holder.greeted
    return holder, member


async def test_messages_come_back_in_both_directions() -> None:
    holder, member = await greeted()
    for message in (b"one", b"two"):
        assert await member.receive(reader(holder.write(message))) == message
        assert await holder.receive(reader(member.write(message))) == message


@pytest.mark.parametrize("secret", [b"", b"Secret"])
async def test_hello_with_another_secret_is_refused(secret: bytes) -> None:
    holder, member = Frames(b"secret", holder=True), Frames(secret, holder=False)
    with pytest.raises(SignatureError, match=r"fleet\.secret_file must be the same"):
        await holder.receive(reader(member.hello()))
    assert not holder.greeted


async def test_hello_of_another_version_is_called_so_whatever_it_signs() -> None:
    frame = bytearray(Frames(b"other", holder=False).hello())
    frame[4 + SIGNATURE_BYTES + 4] = 2
    with pytest.raises(VersionError):
        await Frames(b"secret", holder=True).receive(reader(bytes(frame)))


async def test_frame_can_not_be_repeated() -> None:
    holder, member = await greeted()
    frame = holder.write(b"grants")
    await member.receive(reader(frame))
    with pytest.raises(SignatureError):
        await member.receive(reader(frame))


async def test_frame_can_not_be_left_out() -> None:
    holder, member = await greeted()
    holder.write(b"lost")
    with pytest.raises(SignatureError):
        await member.receive(reader(holder.write(b"next")))


async def test_frame_can_not_be_sent_back() -> None:
    _, member = await greeted()
    with pytest.raises(SignatureError):
        await member.receive(reader(member.write(b"report")))


async def test_recorded_connection_can_not_be_repeated() -> None:
    _, member = await greeted()
    frames = member.hello() + member.write(b"report")
    replayed = reader(frames)
    holder = Frames(b"secret", holder=True)
    await holder.receive(replayed)
    with pytest.raises(SignatureError):
        await holder.receive(replayed)


async def test_changed_message_is_refused_without_a_secret_too() -> None:
    holder, member = await greeted(b"")
    with pytest.raises(SignatureError):
        await member.receive(reader(holder.write(b"hello")[:-1] + b"0"))


async def test_length_is_bounded_by_what_has_been_proven() -> None:
    holder, member = Frames(b"secret", holder=True), Frames(b"secret", holder=False)
    for length in (0, SIGNATURE_BYTES, SIGNATURE_BYTES + 23, 2**32 - 1):
        with pytest.raises(MessageError, match=f"a frame of {length} bytes"):
            await holder.receive(reader(length.to_bytes(4)))
    await holder.receive(reader(member.hello()))
    await member.receive(reader(holder.hello()))
    assert holder.bytes_max == SIGNATURE_BYTES + FIRST_BYTES_MAX
    await holder.receive(reader(member.write(b"facts")))
    assert holder.bytes_max == member.bytes_max == SIGNATURE_BYTES + MESSAGE_BYTES_MAX


async def test_empty_secret_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("\n")
    with pytest.raises(OSError, match="is empty"):
        await read_secret(path)
    path.write_text("word\n")
    assert await read_secret(path) == b"word"
    assert await read_secret(None) == b""
