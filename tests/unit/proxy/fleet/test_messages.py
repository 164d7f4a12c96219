"""proxy.fleet.messages: what is written is read, and every way in which a message or a frame can be wrong."""

import asyncio
import hashlib
import hmac
from math import inf, nan

import pytest
from msgspec import msgpack

from proxy.fleet import messages
from proxy.fleet.messages import (
    HELLO_BYTES,
    SIGNATURE_BYTES,
    Frames,
    MemberView,
    MessageError,
    SignatureError,
    Told,
    View,
)
from quotas.sharing.lease_values import DEFAULT_KEY, KEYS_MAX, WEIGHT_MAX, Grants, LesseeId, Report, Wish

MEMBER = LesseeId("gw-1", 5)
REPORT = Report(MEMBER, 3, 9, 2, {"user:ann": Wish(1.0, 12.0), "user:bob": None}, {DEFAULT_KEY: 0.125}, 8)
GRANTS = Grants(7, 3, 1, 9, 15_000, {DEFAULT_KEY: 0.125, "user:ann": 0.75, "user:bob": None}, True, 8)
OF_A = MemberView(LesseeId("a", 1), 100, 5, {"version": "1.0"})
VIEW = View(True, (OF_A, MemberView(LesseeId("b", 2), 100, 5, {})), (("user:ann", (0.25, 0.5)),))


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


def test_facts_and_problems_are_cut_to_their_bounds() -> None:
    facts = {f"{number}" + "é" * 255: "é" * 255 for number in range(messages.FACTS_MAX + 1)}
    for message in (messages.told(facts), messages.refusal("c" * 100, "é" * 500)):
        assert messages.read(messages.write(message)) == message
    assert messages.refusal("", "x" + "é" * 500).problem == "x" + "é" * 249  # 1 + 2 * 249 = 499 of 500 bytes


def changed(message: messages.Message, **fields: object) -> bytes:
    """The bytes of a message with other values in some fields."""
    found = msgpack.decode(messages.write(message))
    return msgpack.encode({**found, **fields})


MANY = dict.fromkeys(map(str, range(KEYS_MAX + 2)), 0.5)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"", "Input data was truncated"),
        (b"GET / HTTP/1.1", "Expected `object`, got `int`"),
        (msgpack.encode({"type": "other"}), "Invalid value 'other' - at `$.type`"),
        (messages.write(REPORT)[:-1], "Input data was truncated"),
        (messages.write(REPORT) + b"x", "MessagePack data is malformed: trailing characters"),
        (b"\x91" * 100_000, "Expected `object`, got `array`"),
        (changed(messages.Lost(""), more=1), "Object contains unknown field `more`"),
        (changed(messages.Lost(""), problem="x" * 501), "Expected `str` of length <= 500 - at `$.problem`"),
        (changed(messages.Lost(""), problem=b"\xff"), "Expected `str`, got `bytes` - at `$.problem`"),
        (changed(messages.Question(1, b""), number=2**32), "Expected `int` <= 4294967295 - at `$.number`"),
        (changed(Told({}), facts={str(n): "" for n in range(18)}), "Expected `object` of length <= 17"),
        (changed(Told({}), facts={"é" * 128: ""}), "a text of 256 bytes, at most 255 allowed"),
        (changed(REPORT, lessee=["n" * 65, 1]), "a text of 65 bytes, at most 64 allowed"),
        (changed(REPORT, lessee=["", 1]), "not a printable name"),
        (changed(REPORT, lessee=["a\n", 1]), "not a printable name"),
        (changed(REPORT, lessee=["a", -1]), "Expected `int` >= 0 - at `$.lessee[1]`"),
        (changed(REPORT, number=0), "Expected `int` >= 1 - at `$.number`"),
        (changed(REPORT, lessees_max=0), "Expected `int` >= 1 - at `$.lessees_max`"),
        (changed(REPORT, wishes=MANY), "Expected `object` of length <= 10000 - at `$.wishes`"),
        (changed(REPORT, held=MANY), "Expected `object` of length <= 10001 - at `$.held`"),
        (changed(REPORT, held={"k" * 2049: 0.5}), "Expected `str` of length <= 2048 - at `key` in `$.held`"),
        (changed(REPORT, held={"é" * 1025: 0.5}), "a text of 2050 bytes, at most 2048 allowed"),
        (changed(GRANTS, session=0), "Expected `int` >= 1 - at `$.session`"),
        (changed(GRANTS, version=0), "Expected `int` >= 1 - at `$.version`"),
        (changed(GRANTS, lease_ms=3_600_001), "Expected `int` <= 3600000 - at `$.lease_ms`"),
        (changed(GRANTS, lessees_max=257), "Expected `int` <= 256 - at `$.lessees_max`"),
        (changed(GRANTS, complete=2), "Expected `bool`, got `int` - at `$.complete`"),
        (changed(GRANTS, shares=MANY), "Expected `object` of length <= 10001 - at `$.shares`"),
        (changed(GRANTS, shares={}), "grants without a default share"),
        (changed(GRANTS, shares={DEFAULT_KEY: None}), "grants without a default share"),
        (changed(GRANTS, shares={DEFAULT_KEY: None}, complete=False), "grants without a default share"),
        (changed(VIEW, members=[OF_A] * 513), "Expected `array` of length <= 512 - at `$.members`"),
        (changed(VIEW, shares=[["k", [0.5]]]), "1 shares of 2 members"),
        (changed(VIEW, shares=[["k", [0.5, 0.5]]] * 65), "Expected `array` of length <= 64 - at `$.shares`"),
    ],
)
def test_malformed_message_says_what_is_wrong(message: bytes, problem: str) -> None:
    with pytest.raises(MessageError) as error:
        messages.read(message)
    assert str(error.value).startswith(problem)


@pytest.mark.parametrize("share", [nan, -0.5, 1.01, inf, -inf, "0.5", True])
def test_share_that_cannot_be_is_malformed(share: object) -> None:
    for message in (
        changed(REPORT, held={"k": share}),
        changed(REPORT, wishes={"k": [share, 1.0]}),
        changed(GRANTS, shares={DEFAULT_KEY: 0.1, "k": share}),
        changed(VIEW, shares=[["k", [0.5, share]]]),
    ):
        with pytest.raises(MessageError, match="Expected `float"):
            messages.read(message)


@pytest.mark.parametrize("weight", [nan, -1.0, inf, 1.1e9])
def test_weight_that_cannot_be_is_malformed(weight: float) -> None:
    with pytest.raises(MessageError, match=r"Expected `float` .=.* - at `\$\.wishes\[\.\.\.\]\[1\]`"):
        messages.read(changed(REPORT, wishes={"k": [1.0, weight]}))


def test_map_that_promises_many_entries_is_refused_before_they_are_read() -> None:
    promised = b"\x82\xa4type\xa4told\xa5facts\xdf\xff\xff\xff\xff"
    with pytest.raises(MessageError, match="of length <= 17"):
        messages.read(promised)


def reader(data: bytes) -> asyncio.StreamReader:
    found = asyncio.StreamReader()
    found.feed_data(data)
    found.feed_eof()
    return found


SECRET = b"secret"


async def greeted(secret: bytes = SECRET, member_secret: bytes | None = None) -> tuple[Frames, Frames]:
    """The holder's and the member's side after their hellos."""
    holder, member = (
        Frames(secret, holder=True),
        Frames(secret if member_secret is None else member_secret, holder=False),
    )
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
    holder, member = await greeted(member_secret=secret)
    with pytest.raises(SignatureError, match=r"fleet\.secret_file must be the same"):
        await holder.receive(reader(member.proof()))
    await refused(member, holder.no_proof())
    assert not holder.proven
    assert not member.proven


async def test_nothing_signed_is_sent_to_a_process_that_has_proven_nothing() -> None:
    """What depends on the secret lets its owner be guessed: of two secrets all frames must be alike."""
    hellos = [Frames(secret, holder=True) for secret in (b"one", b"two")]
    nonce = hellos[0].hello()[-messages.NONCE_BYTES :]
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
    for hello, problem in (
        (b"GET / HTTP/1.1\r\n", "not Sluice's fleet protocol"),
        (b"SLFT\3\2", "a hello comes"),
    ):
        with pytest.raises(MessageError, match=problem):
            Frames(SECRET, holder=True).greet(bytes(SIGNATURE_BYTES) + hello)


async def test_hello_has_its_bytes_in_every_version() -> None:
    """A process of another version reads them, and says which version this one has."""
    hello = Frames(SECRET, holder=False).hello()[4 + SIGNATURE_BYTES :]
    assert hello[:6] == b"SLFT\x03\x01"
    assert len(hello) == HELLO_BYTES == 6 + messages.NONCE_BYTES


async def test_hello_of_another_version_is_called_so_whatever_it_signs() -> None:
    frame = bytearray(Frames(b"other", holder=False).hello())
    frame[4 + SIGNATURE_BYTES + 4] = 2
    with pytest.raises(
        messages.VersionError, match="version 2 of the fleet protocol; this process has 3, and all"
    ):
        await Frames(SECRET, holder=True).receive(reader(bytes(frame)))


async def refused(by: Frames, frame: bytes) -> None:
    with pytest.raises(SignatureError):
        await by.receive(reader(frame))


async def test_frame_can_not_be_repeated() -> None:
    holder, member = await proven()
    frame = holder.write(b"grants")
    await member.receive(reader(frame))
    await refused(member, frame)


async def test_frame_can_not_be_left_out() -> None:
    holder, member = await proven()
    holder.write(b"lost")
    await refused(member, holder.write(b"next"))


async def test_frame_can_not_be_sent_back() -> None:
    for _, member in (await greeted(), await proven()):
        await refused(member, member.write(b"report") if member.proven else member.proof())


async def test_recorded_connection_can_not_be_repeated() -> None:
    holder, member = Frames(SECRET, holder=True), Frames(SECRET, holder=False)
    await member.receive(reader(holder.hello()))
    frames = member.hello() + member.proof() + member.write(b"report")
    replayed = reader(frames)
    holder = Frames(SECRET, holder=True)
    await holder.receive(replayed)
    with pytest.raises(SignatureError):
        await holder.receive(replayed)


async def test_changed_message_is_refused_without_a_secret_too() -> None:
    holder, member = await proven(b"")
    await refused(member, holder.write(b"hello")[:-1] + b"0")


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
    assert holder.bytes_max == member.bytes_max == SIGNATURE_BYTES + messages.MESSAGE_BYTES_MAX


def test_what_can_not_be_sent_is_left_out_or_bounded() -> None:
    wishes: dict[str, Wish | None] = {
        "x" * 3000: Wish(1, 1),
        "é" * 1025: Wish(1, 1),  # 2050 bytes
        "\ud800": Wish(1, 1),
        "nan": Wish(nan, 1),
        "heavy": Wish(2.0, inf),
        "ended": None,
    }
    report = messages.sendable(REPORT._replace(wishes=wishes))
    assert report.wishes == {"heavy": Wish(1.0, WEIGHT_MAX), "ended": None}
    assert messages.read(messages.write(report)) == report


def test_no_more_keys_than_the_holder_takes_are_sent() -> None:
    wishes: dict[str, Wish | None] = {str(number): Wish(1, 1) for number in range(KEYS_MAX + 5)}
    assert len(messages.sendable(REPORT._replace(wishes=wishes)).wishes) == KEYS_MAX
