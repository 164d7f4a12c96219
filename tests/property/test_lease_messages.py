"""The lease protocol: what is written can be read, and arbitrary bytes raise one error and no other."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from proxy.leases import messages
from proxy.leases.messages import MessageError, RefusalError
from quotas.sharing.terms import Grant, LeaseAnswer, LeaseRequest, LeaseTerms, Wish

TERMS = LeaseTerms(("a", "b"), 5000)
U64 = st.integers(0, 2**64 - 1)
BROKER = st.integers(0, 2**31 - 1)
BYTES = st.floats(0, 1e300)
REQUESTS = st.builds(
    LeaseRequest,
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=64),
    U64,
    U64,
    U64,
    st.lists(st.builds(Wish, BROKER, st.one_of(BYTES, st.just(float("inf"))), BYTES), max_size=20).map(tuple),
)
ANSWERS = st.builds(
    LeaseAnswer,
    U64,
    U64,
    U64,
    st.booleans(),
    st.lists(
        st.builds(Grant, BROKER, BYTES, st.floats(0, 1, exclude_min=True), st.integers(0, 2**32 - 1)),
        max_size=20,
    ).map(tuple),
)


@given(REQUESTS)
def test_every_request_comes_back(request: LeaseRequest) -> None:
    assert messages.read_request(messages.write_request(request, TERMS)) == (request, messages.digest(TERMS))


@given(ANSWERS)
def test_every_answer_comes_back(answer: LeaseAnswer) -> None:
    assert messages.read_answer(messages.write_answer(answer)) == answer


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda rest: b"SLLE\x01" + rest)))
def test_any_bytes_are_a_message_or_malformed(message: bytes) -> None:
    with suppress(MessageError):
        messages.read_request(message)
    with suppress(MessageError, RefusalError):
        messages.read_answer(message)


@given(REQUESTS, st.data())
def test_a_changed_byte_raises_nothing_else(request: LeaseRequest, data: st.DataObject) -> None:
    written = bytearray(messages.write_request(request, TERMS))
    written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(MessageError):
        messages.read_request(bytes(written))
