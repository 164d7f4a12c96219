"""proxy.fleet.messages: bytes by hand, and every way in which they can be wrong."""

import asyncio
import hashlib
import hmac
from math import inf, nan

import pytest

from proxy.fleet import messages
from proxy.fleet.messages import (
    HELLO_BYTES,
    MESSAGE_BYTES_MAX,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    Answer,
    Frames,
    Hello,
    Leave,
    Lost,
    Message,
    MessageError,
    Question,
    Refusal,
    SignatureError,
    VersionError,
    sendable,
)
from quotas.sharing.lease_values import DEFAULT_KEY, KEYS_MAX, Grants, LesseeId, Report, Wish

MEMBER = LesseeId("gw-1", 5)
REPORT = Report(MEMBER, 3, 9, 2, {"user:ann": Wish(1.0, 12.0), "user:bob": None}, {DEFAULT_KEY: 0.125}, 8)
GRANTS = Grants(7, 3, 1, 9, 15_000, {DEFAULT_KEY: 0.125, "user:ann": 0.75, "user:bob": None}, True, 8)
# head; name, four numbers, lessees_max
REPORT_HEAD_BYTES = 6 + 5 + 34


def test_report_has_its_bytes() -> None:
    written = messages.write(Report(LesseeId("a", 1), 2, 3, 4, {"k": Wish(1.0, 2.0)}, {"": 0.5}, 8))
    expected = (
        b"SLFT\x02\x02" + b"\x01a" + bytes((0, 0, 0, 0, 0, 0, 0, 1)) + bytes((0, 0, 0, 0, 0, 0, 0, 2))
        + bytes((0, 0, 0, 0, 0, 0, 0, 3)) + bytes((0, 0, 0, 0, 0, 0, 0, 4)) + b"\x00\x08"
        + b"\x00\x01" + b"\x00\x01k" + b"\x3f\xf0\0\0\0\0\0\0" + b"\x40\0\0\0\0\0\0\0"
        + b"\x00\x01" + b"\x00\x00" + b"\x3f\xe0\0\0\0\0\0\0"
    )  # fmt: skip
    assert written == expected


@pytest.mark.parametrize(
    "message",
    [
        REPORT,
        GRANTS,
        Hello(b"0123456789abcdef"),
        Refusal("not_holder", "ask gw-2"),
        Lost("no session"),
        Leave(),
        Question(7, b"what"),
        Answer(2**32 - 1, b""),
        {"version": "1.0", "members_max": "8"},
    ],
)
def test_message_comes_back(message: Message) -> None:
    assert messages.read(messages.write(message)) == message


def test_hello_has_the_length_that_is_read_before_it_is_verified() -> None:
    assert len(messages.write(Hello(b"0" * messages.NONCE_BYTES))) == messages.HELLO_BYTES


def test_largest_messages_fit() -> None:
    keys = [str(number).rjust(messages.KEY_BYTES_MAX, "k") for number in range(KEYS_MAX)]
    wishes: dict[str, Wish | None] = {key: Wish(1.0, 1.0) for key in keys}
    held = {DEFAULT_KEY: 1.0, **dict.fromkeys(keys, 1.0)}
    report = Report(
        LesseeId("n" * messages.NAME_BYTES_MAX, 2**64 - 1), 1, 1, 1, wishes, held, messages.LESSEES_MAX
    )
    written = messages.write(report)
    assert len(written) <= messages.MESSAGE_BYTES_MAX
    assert messages.read(written) == report


def test_long_text_is_cut_between_two_characters() -> None:
    found = messages.read(messages.write(Lost("x" + "é" * messages.PROBLEM_BYTES_MAX)))
    assert found == Lost("x" + "é" * 249)  # 1 + 2 * 249 = 499 of 500 bytes


def test_another_version_is_refused_with_a_sentence() -> None:
    with pytest.raises(VersionError, match="version 1 of the fleet protocol; this process has 2, and all"):
        messages.read(b"SLFT\x01\x01" + b"0" * 16)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"", "byte 0: 0 bytes are not a message"),
        (b"GET / HTTP/1.1\r\n", "byte 0: this is not Sluice's fleet protocol"),
        (b"SLFT\x02\x63", "byte 5: a message of kind 99"),
        (b"SLFT\x02\x02\x41", "byte 6: a text of 65 bytes, at most 64 allowed"),
        (b"SLFT\x02\x02\x00", "byte 6: not a printable name"),
        (b"SLFT\x02\x02\x02a\n", "byte 6: not a printable name"),
        (b"SLFT\x02\x02\x01\xff", "byte 6: a text that is not UTF-8"),
        (messages.write(REPORT)[:20], "byte 11: 34 bytes expected, 9 left"),
        (messages.write(REPORT)[:-1], f"byte {len(messages.write(REPORT)) - 8}: 8 bytes expected, 7 left"),
        (messages.write(REPORT) + b"x", f"byte {len(messages.write(REPORT))}: 1 bytes too many"),
        (
            messages.write(REPORT)[:REPORT_HEAD_BYTES] + b"\xff\xff",
            f"byte {REPORT_HEAD_BYTES}: 65535 entries, at most 10000 allowed",
        ),
    ],
)
def test_message_that_is_none_says_where(message: bytes, problem: str) -> None:
    with pytest.raises(MessageError) as error:
        messages.read(message)
    assert str(error.value) == problem


@pytest.mark.parametrize(
    "wish",
    [Wish(nan, 1), Wish(-0.5, 1), Wish(1.01, 1), Wish(inf, 1), Wish(1, nan), Wish(1, -1), Wish(1, inf)],
)
def test_wish_that_cannot_be_is_malformed(wish: Wish) -> None:
    with pytest.raises(MessageError, match="is wanted"):
        messages.read(messages.write(REPORT._replace(wishes={"k": wish})))


@pytest.mark.parametrize("share", [nan, -0.5, 1.01, inf])
def test_share_that_cannot_be_is_malformed(share: float) -> None:
    with pytest.raises(MessageError, match="is not a share"):
        messages.read(messages.write(REPORT._replace(held={"k": share})))
    with pytest.raises(MessageError, match="is not a share"):
        messages.read(messages.write(GRANTS._replace(shares={DEFAULT_KEY: 0.1, "k": share})))


def test_default_share_can_not_be_taken_away_or_left_out() -> None:
    with pytest.raises(MessageError, match="is not a share"):
        messages.read(messages.write(GRANTS._replace(shares={DEFAULT_KEY: None})))
    with pytest.raises(MessageError, match="without a default share"):
        messages.read(messages.write(GRANTS._replace(shares={})))


@pytest.mark.parametrize(
    "grants",
    [
        GRANTS._replace(session=0),
        GRANTS._replace(version=0),
        GRANTS._replace(lease_ms=3_600_001),
        GRANTS._replace(lessees_max=0),
        GRANTS._replace(lessees_max=257),
    ],
)
def test_grants_that_cannot_be_are_malformed(grants: Grants) -> None:
    with pytest.raises(MessageError, match="byte 6: grants"):
        messages.read(messages.write(grants))


@pytest.mark.parametrize("report", [REPORT._replace(number=0), REPORT._replace(lessees_max=0)])
def test_report_that_can_not_be_is_malformed(report: Report) -> None:
    with pytest.raises(MessageError, match="byte 11: report"):
        messages.read(messages.write(report))


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


REPORT_SENDABLE = Report(LesseeId("a", 1), 0, 1, 0, {}, {DEFAULT_KEY: 0.1}, 8)


def test_what_can_not_be_sent_is_left_out_or_bounded() -> None:
    wishes: dict[str, Wish | None] = {
        "x" * 3000: Wish(1, 1),
        "é" * 1025: Wish(1, 1),  # 2050 bytes
        "\ud800": Wish(1, 1),
        "nan": Wish(nan, 1),
        "heavy": Wish(2.0, inf),
        "ended": None,
    }
    report = sendable(REPORT_SENDABLE._replace(wishes=wishes))
    assert report.wishes == {"heavy": Wish(1.0, messages.WEIGHT_MAX), "ended": None}
    assert messages.read(messages.write(report)) == report


def test_no_more_keys_than_the_holder_takes_are_sent() -> None:
    wishes: dict[str, Wish | None] = {str(number): Wish(1, 1) for number in range(KEYS_MAX + 5)}
    assert len(sendable(REPORT_SENDABLE._replace(wishes=wishes)).wishes) == KEYS_MAX
