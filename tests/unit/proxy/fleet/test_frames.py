"""proxy.fleet.messages, on streams without sockets."""

import asyncio
import hashlib
import hmac

import pytest

from proxy.fleet.messages import (
    HELLO_BYTES,
    MESSAGE_BYTES_MAX,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    Frames,
    MessageError,
    SignatureError,
    VersionError,
)


def reader(data: bytes) -> asyncio.StreamReader:
    found = asyncio.StreamReader()
    found.feed_data(data)
    found.feed_eof()
    return found


SECRET = b"secret"


async def greeted(secret: bytes = SECRET) -> tuple[Frames, Frames]:
    """The holder's and the member's side after their hellos."""
    holder, member = Frames(secret, holder=True), Frames(secret, holder=False)
    await holder.receive(reader(member.hello()))
    await member.receive(reader(holder.hello()))
    assert holder.greeted
    return holder, member


async def proven(secret: bytes = SECRET) -> tuple[Frames, Frames]:
    """Both sides after their proofs."""
    holder, member = await greeted(secret)
    assert await holder.receive(reader(member.proof())) == b""
    assert await member.receive(reader(holder.proof())) == b""
    assert holder.proven
    assert member.proven
    return holder, member


async def test_messages_come_back_in_both_directions() -> None:
    holder, member = await proven()
    for message in (b"one", b"two"):
        assert await member.receive(reader(holder.write(message))) == message
        assert await holder.receive(reader(member.write(message))) == message


@pytest.mark.parametrize("secret", [b"", b"Secret"])
async def test_proof_with_another_secret_is_refused_on_both_sides(secret: bytes) -> None:
    holder, member = Frames(SECRET, holder=True), Frames(secret, holder=False)
    await holder.receive(reader(member.hello()))
    await member.receive(reader(holder.hello()))
    with pytest.raises(SignatureError, match=r"fleet\.secret_file must be the same"):
        await holder.receive(reader(member.proof()))
    assert not holder.proven
    with pytest.raises(SignatureError):
        await member.receive(reader(holder.no_proof()))
    assert not member.proven


async def test_nothing_signed_is_sent_to_a_process_that_has_proven_nothing() -> None:
    """What depends on the secret lets its owner be guessed: of two secrets all frames must be alike."""
    hellos = [Frames(secret, holder=True) for secret in (b"one", b"two")]
    nonce = hellos[0].hello()[-NONCE_BYTES:]
    signature = hmac.digest(b"", hellos[0].hello()[4 + SIGNATURE_BYTES :], hashlib.sha256)
    assert hellos[0].hello()[4 : 4 + SIGNATURE_BYTES] == signature
    assert len({len(one.hello()) for one in hellos}) == 1
    holder = hellos[0]
    await holder.receive(reader(Frames(b"guess", holder=False).hello()))
    assert holder.no_proof() == holder.hello(), "it has the nonce that was sent, and a checksum"
    assert holder.no_proof().endswith(nonce)
    for send in (holder.proof, lambda: holder.write(b"grants")):
        with pytest.raises(AssertionError):
            send()


async def test_a_changed_hello_is_none() -> None:
    frame = bytearray(Frames(SECRET, holder=False).hello())
    frame[-1] ^= 1
    with pytest.raises(MessageError, match="a hello comes first"):
        await Frames(SECRET, holder=True).receive(reader(bytes(frame)))


async def test_hello_of_another_version_is_called_so_whatever_it_signs() -> None:
    frame = bytearray(Frames(b"other", holder=False).hello())
    frame[4 + SIGNATURE_BYTES + 4] = 1
    with pytest.raises(VersionError):
        await Frames(SECRET, holder=True).receive(reader(bytes(frame)))


async def test_frame_can_not_be_repeated() -> None:
    holder, member = await proven()
    frame = holder.write(b"grants")
    await member.receive(reader(frame))
    with pytest.raises(SignatureError):
        await member.receive(reader(frame))


async def test_frame_can_not_be_left_out() -> None:
    holder, member = await proven()
    holder.write(b"lost")
    with pytest.raises(SignatureError):
        await member.receive(reader(holder.write(b"next")))


async def test_frame_can_not_be_sent_back() -> None:
    _, member = await proven()
    with pytest.raises(SignatureError):
        await member.receive(reader(member.write(b"report")))


async def test_recorded_connection_can_not_be_repeated() -> None:
    holder, member = Frames(SECRET, holder=True), Frames(SECRET, holder=False)
    await member.receive(reader(holder.hello()))
    frames = member.hello() + member.proof() + member.write(b"report")
    replayed = reader(frames)
    holder = Frames(SECRET, holder=True)
    await holder.receive(replayed)
    with pytest.raises(SignatureError):
        await holder.receive(replayed)


async def test_proof_can_not_be_sent_back() -> None:
    _, member = await greeted()
    with pytest.raises(SignatureError):
        await member.receive(reader(member.proof()))


async def test_changed_message_is_refused_without_a_secret_too() -> None:
    holder, member = await proven(b"")
    with pytest.raises(SignatureError):
        await member.receive(reader(holder.write(b"hello")[:-1] + b"0"))


async def test_length_is_bounded_by_what_has_been_proven() -> None:
    holder, member = Frames(SECRET, holder=True), Frames(SECRET, holder=False)
    for length in (0, SIGNATURE_BYTES, SIGNATURE_BYTES + 23, 2**32 - 1):
        with pytest.raises(MessageError, match=f"a frame of {length} bytes"):
            await holder.receive(reader(length.to_bytes(4)))
    await holder.receive(reader(member.hello()))
    await member.receive(reader(holder.hello()))
    assert holder.bytes_max == member.bytes_max == SIGNATURE_BYTES + HELLO_BYTES
    await holder.receive(reader(member.proof()))
    await member.receive(reader(holder.proof()))
    assert holder.bytes_max == member.bytes_max == SIGNATURE_BYTES + MESSAGE_BYTES_MAX
