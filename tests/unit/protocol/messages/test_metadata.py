"""The head of a Metadata response by its bytes."""

import pytest

from protocol.errors import MalformedFieldError, OversizedError, TruncatedError, UnknownVersionError
from protocol.messages.metadata import (
    TopicMetadata,
    read_request,
    read_sizes,
    read_topics,
    request_by_id,
    request_by_name,
    rewrite_head,
)


def ours(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    assert (host, port) == ("ab", 9)
    return ("sluice", 19100 + node_id) if node_id < 3 else None


# Version 1: no throttle time; brokers 1 (rack "r") and 3; controller 1; no topics.
RESPONSE_1 = bytes.fromhex(
    "00000031 00000009 00000002"
    "00000001 0002 6162 00000009 0001 72"
    "00000003 0002 6162 00000009 ffff"
    "00000001 00000000" + "00" * 0
)
# Version 9: tags in the header, throttle time, broker 1 with an unknown tag; the rest has not come.
HEAD_9 = bytes.fromhex("000003e8 00000009 00 00000005 02 00000001 03 6162 00000009 00 01 07 01 aa")


def test_brokers_are_replaced_and_hidden_ones_left_out() -> None:
    frame = len(RESPONSE_1[4:]).to_bytes(4, "big") + RESPONSE_1[4:]
    rewritten = rewrite_head(frame, 1, ours)
    assert rewritten is not None
    consumed, head = rewritten
    # The controller and the topics, eight bytes, pass as they are.
    assert consumed == len(frame) - 8
    # Broker 1 grew by 4 bytes ("sluice" for "ab"), broker 3 took 14.
    assert head == bytes.fromhex(
        f"{len(frame) - 4 + 4 - 14:08x} 00000009 00000001 00000001 0006 736c75696365 {19101:08x} 0001 72"
    )


def test_brokers_are_rewritten_when_the_head_is_there() -> None:
    rewritten = rewrite_head(HEAD_9, 9, ours)
    assert rewritten == (
        len(HEAD_9),
        bytes.fromhex(
            f"{1000 + 4:08x} 00000009 00 00000005 02 00000001 07 736c75696365 {19101:08x} 00 01 07 01 aa"
        ),
    )


def test_incomplete_broker_array_is_waited_for() -> None:
    for end in range(len(HEAD_9)):
        assert rewrite_head(HEAD_9[:end], 9, ours) == (0, b"")


def test_frame_that_ends_before_its_array_is_truncated() -> None:
    frame = (len(HEAD_9) - 5).to_bytes(4, "big") + HEAD_9[4:]
    with pytest.raises(TruncatedError):
        rewrite_head(frame, 9, ours)


def test_negative_frame_is_malformed() -> None:
    with pytest.raises(MalformedFieldError):
        rewrite_head(b"\xff\xff\xff\xff", 9, ours)


def test_question_by_name_creates_nothing() -> None:
    assert request_by_name(["ab"], 9, b"c") == bytes.fromhex(
        "00000014 0003 0004 00000009 0001 63 00000001 0002 6162 00"
    )


def test_question_by_id_creates_nothing() -> None:
    assert request_by_id([b"\x11" * 16], 9, b"") == bytes.fromhex(
        f"00000021 0003 000c 00000009 0000 00 02 {'11' * 16} 00 00 00 00 00"
    )


def test_topics_and_sizes_of_a_response() -> None:
    # Version 1: no brokers, controller 1; "a" with two partitions, "b" not known.
    partition = "0000 0000000{index} 00000001 00000001 00000001 00000000"
    topics = f"0000 0001 61 00 00000002 {partition.format(index=0)} {partition.format(index=1)}"
    body = bytes.fromhex(f"00000009 00000000 00000001 00000002 {topics} 0003 0001 62 00 00000000")
    frame = len(body).to_bytes(4, "big") + body
    assert read_topics(frame, 1) == [TopicMetadata(0, "a", bytes(16), 2), TopicMetadata(3, "b", bytes(16), 0)]
    with pytest.raises(TruncatedError):
        read_topics(frame[:-1], 1)
    with pytest.raises(TruncatedError):
        read_sizes(frame[:-1], 1, most=2)
    with pytest.raises(OversizedError):
        read_sizes(frame[:-1], 1, most=1)  # before what is wrong with the last one is seen


def test_old_request_creates_its_topics_and_a_request_for_all_creates_none() -> None:
    named, every = bytes.fromhex("00000001 0001 61"), bytes(4)
    assert read_request(named, 0, 1) == (("a",), True, -1, False)
    assert read_request(every, 0, 0) == ((), False, -1, False)


def test_newer_request_says_whether_it_creates() -> None:
    assert read_request(bytes.fromhex("00000001 0001 61 01"), 0, 4) == (("a",), True, 7, False)
    assert read_request(bytes.fromhex("ffffffff 00"), 0, 4) == ((), False, 4, False)
    with pytest.raises(TruncatedError):
        read_request(bytes.fromhex("00000001 0001 61"), 0, 4)


def test_request_that_names_topics_by_id_says_so() -> None:
    for topic_id in (bytes(16), bytes(15) + b"\1"):
        asked = read_request(b"\2" + topic_id + b"\2a\0" + b"\1\0\0", 0, 12)
        assert (asked.names, asked.by_id) == (("a",), any(topic_id))


@pytest.mark.parametrize("version", [-1, 14])
def test_version_that_is_not_known_is_refused(version: int) -> None:
    with pytest.raises(UnknownVersionError):
        read_topics(b"", version)
    with pytest.raises(UnknownVersionError):
        read_request(b"", 0, version)
