"""proxy.leases.messages: bytes by hand, and every way in which they can be wrong."""

from math import inf

import pytest

from proxy.leases import messages
from proxy.leases.messages import MessageError, RefusalError
from quotas.sharing.terms import FOLLOWERS_MAX, Grant, LeaseAnswer, LeaseRequest, LeaseTerms, Wish

TERMS = LeaseTerms(("a", "b"), 5000)
REQUEST = LeaseRequest("a", 1, 2, 3, (Wish(7, inf, 0.0), Wish(8, 4e6, 1e6)))
ANSWER = LeaseAnswer(1, 2, 9, False, (Grant(7, 4e6, 0.5, 4890),))
# magic, version, kind; name; run, number, taken, digest; count: 6 + 2 + 28 + 2, and 20 bytes a follower
REQUEST_BYTES = 6 + 2 + 28 + 2 + 2 * 20


def test_request_has_its_bytes() -> None:
    written = messages.write_request(LeaseRequest("a", 1, 2, 3, (Wish(7, 1.0, 2.0),)), TERMS)
    expected = (
        b"SLLE\x01\x01" + b"\x01a" + bytes((0, 0, 0, 0, 0, 0, 0, 1)) + bytes((0, 0, 0, 0, 0, 0, 0, 2))
        + bytes((0, 0, 0, 0, 0, 0, 0, 3)) + messages.digest(TERMS).to_bytes(4) + b"\x00\x01"
        + b"\x00\x00\x00\x07" + b"\x3f\xf0\0\0\0\0\0\0" + b"\x40\0\0\0\0\0\0\0"
    )  # fmt: skip
    assert written == expected


def test_request_comes_back() -> None:
    written = messages.write_request(REQUEST, TERMS)
    assert len(written) == REQUEST_BYTES
    assert messages.read_request(written) == (REQUEST, messages.digest(TERMS))


def test_answer_comes_back() -> None:
    assert messages.read_answer(messages.write_answer(ANSWER)) == ANSWER


def test_refusal_is_raised_with_its_words() -> None:
    with pytest.raises(RefusalError, match="no such name"):
        messages.read_answer(messages.write_refusal("no such name" + "x" * 10_000))


def test_largest_messages_fit() -> None:
    wishes = tuple(Wish(follower, 1.0, 1.0) for follower in range(FOLLOWERS_MAX))
    grants = tuple(Grant(follower, 1.0, 1.0, 2**32 - 1) for follower in range(FOLLOWERS_MAX))
    name = "n" * messages.NAME_BYTES_MAX
    longest = messages.write_request(LeaseRequest(name, 2**64 - 1, 2**64 - 1, 0, wishes), TERMS)
    assert len(longest) <= messages.MESSAGE_BYTES_MAX
    assert len(messages.write_answer(LeaseAnswer(1, 2, 3, True, grants))) <= messages.MESSAGE_BYTES_MAX
    assert messages.read_request(longest)[0].wishes == wishes


def test_terms_differ_by_names_and_time_and_not_by_order() -> None:
    assert messages.digest(TERMS) == messages.digest(LeaseTerms(("b", "a"), 5000))
    assert messages.digest(TERMS) != messages.digest(LeaseTerms(("a", "b"), 5001))
    assert messages.digest(TERMS) != messages.digest(LeaseTerms(("a", "c"), 5000))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"", "byte 0: 0 bytes are not a message"),
        (b"GET / HTTP/1.1\r\n", "byte 0: this is not Sluice's lease protocol"),
        (b"SLLE\x02\x01", "byte 4: version 2; only 1 is supported"),
        (messages.write_answer(ANSWER), "byte 5: a message of kind 2, expected 1"),
        (b"SLLE\x01\x01\x41", "byte 6: no name, or a name longer than 64 bytes"),
        (messages.write_request(REQUEST, TERMS)[:20], "byte 8: 30 bytes expected, 12 left"),
        (
            messages.write_request(REQUEST, TERMS)[:-1],
            "byte 38: 2 followers announced, 39 bytes left",
        ),
        (
            messages.write_request(REQUEST, TERMS) + b"x",
            "byte 38: 2 followers announced, 41 bytes left",
        ),
    ],
)
def test_request_that_is_none_says_where(message: bytes, problem: str) -> None:
    with pytest.raises(MessageError) as error:
        messages.read_request(message)
    assert str(error.value) == problem


@pytest.mark.parametrize(
    "wish",
    [
        Wish(-1, 1.0, 1.0),
        Wish(1, float("nan"), 1.0),
        Wish(1, -1.0, 1.0),
        Wish(1, 1.0, inf),
        Wish(1, 1.0, -0.5),
    ],
)
def test_wish_that_can_not_be_is_malformed(wish: Wish) -> None:
    with pytest.raises(MessageError, match="follower"):
        messages.read_request(messages.write_request(LeaseRequest("a", 1, 1, 0, (wish,)), TERMS))


@pytest.mark.parametrize(
    "grant",
    [
        Grant(-1, 1.0, 0.5, 1),
        Grant(1, inf, 0.5, 1),
        Grant(1, 1.0, 0.0, 1),
        Grant(1, 1.0, 1.01, 1),
        Grant(1, 1.0, float("nan"), 1),
    ],
)
def test_grant_that_can_not_be_is_malformed(grant: Grant) -> None:
    with pytest.raises(MessageError, match="follower"):
        messages.read_answer(messages.write_answer(LeaseAnswer(1, 1, 1, False, (grant,))))
