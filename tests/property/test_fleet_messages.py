"""The fleet protocol: what is written can be read, and arbitrary bytes raise one error and no other."""

import asyncio
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from proxy.fleet import messages as codec
from proxy.fleet.messages import Frames, Message, MessageError
from quotas.sharing.lease_values import DEFAULT_KEY, LOAN_MS, Grants, LesseeId, Report, Wish

U64 = st.integers(0, 2**64 - 1)
COUNTED = st.integers(1, 2**64 - 1)
SHARE = st.floats(0, 1)
KEY = st.text(max_size=codec.KEY_BYTES_MAX // 4).filter(lambda key: key.isascii() or len(key) < 500)
NAME = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=64)
LESSEE = st.builds(LesseeId, NAME, U64)
WISH = st.builds(Wish, SHARE, st.floats(0, 1e9))
LESSEES_MAX = st.integers(1, 256)
FACTS = st.dictionaries(
    st.text(max_size=codec.FACT_BYTES_MAX // 4), st.text(max_size=codec.FACT_BYTES_MAX // 4), max_size=16
)
REPORTS = st.builds(
    Report,
    LESSEE,
    U64,
    COUNTED,
    U64,
    st.dictionaries(KEY, st.none() | WISH, max_size=10),
    st.dictionaries(KEY, SHARE, max_size=10),
    LESSEES_MAX,
)
GRANTS = st.builds(
    Grants,
    U64,
    COUNTED,
    COUNTED,
    U64,
    st.integers(0, 3_600_000),
    st.builds(
        lambda shares, default: {**shares, DEFAULT_KEY: default},
        st.dictionaries(KEY, st.none() | SHARE, max_size=10),
        SHARE,
    ),
    st.booleans(),
    LESSEES_MAX,
    loans_ms=st.just(LOAN_MS),  # of members, and no field of the message
)
TEXT = st.text(st.characters(codec="ascii"), max_size=32)
MEMBERS = st.lists(
    st.builds(codec.MemberView, LESSEE, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), FACTS),
    max_size=4,
)


@st.composite
def views(draw: st.DrawFn) -> codec.View:
    members = tuple(draw(MEMBERS))
    shares = draw(st.lists(st.tuples(KEY, st.tuples(*(SHARE for _ in members))), max_size=5))
    return codec.View(draw(st.booleans()), members, tuple(shares))


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    REPORTS,
    GRANTS,
    st.just(codec.Leave()),
    st.builds(codec.Refusal, TEXT, TEXT),
    st.builds(codec.Lost, TEXT),
    st.builds(codec.Told, FACTS),
    views(),
    st.builds(codec.Question, st.integers(0, 2**32 - 1), st.binary(max_size=50)),
    st.builds(codec.Response, st.integers(0, 2**32 - 1), st.binary(max_size=50)),
)


@given(MESSAGES)
def test_every_message_comes_back(message: Message) -> None:
    assert codec.read(codec.write(message)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(message: bytes) -> None:
    with suppress(MessageError):
        codec.read(message)


@given(MESSAGES, st.data())
def test_changed_byte_raises_nothing_else(message: Message, data: st.DataObject) -> None:
    written = bytearray(codec.write(message))
    written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(MessageError):
        codec.read(bytes(written))


@given(st.lists(MESSAGES, max_size=4), st.lists(st.integers(1, 200), max_size=20))
def test_frames_do_not_depend_on_how_they_are_cut(messages: list[Message], cuts: list[int]) -> None:
    async def received() -> list[Message]:
        holder, member = Frames(b"secret", holder=True), Frames(b"secret", holder=False)
        member.greet(holder.hello()[4:])
        holder.greet(member.hello()[4:])
        holder.open(member.proof()[4:])
        data = holder.proof() + b"".join(holder.write(codec.write(message)) for message in messages)
        reader = asyncio.StreamReader()

        async def feed() -> None:
            at = 0
            for cut in cuts:
                reader.feed_data(data[at : at + cut]) if at < len(data) else None
                at += cut
                await asyncio.sleep(0)
            if at < len(data):
                reader.feed_data(data[at:])

        feeding = asyncio.create_task(feed())
        await member.receive(reader)
        found = [codec.read(await member.receive(reader)) for _ in messages]
        await feeding
        return found

    assert asyncio.run(received()) == messages
