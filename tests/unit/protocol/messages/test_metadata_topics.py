"""Topics in Metadata requests and answers, by their bytes (KIP-599)."""

import pytest

from protocol.errors import OversizedError, TruncatedError, UnknownVersionError
from protocol.messages.metadata import (
    TopicMetadata,
    read_request,
    read_sizes,
    read_topics,
    request_by_id,
    request_by_name,
)


def test_question_by_name_creates_nothing() -> None:
    assert request_by_name(["ab"], 9, b"c") == bytes.fromhex(
        "00000014 0003 0004 00000009 0001 63 00000001 0002 6162 00"
    )


def test_question_by_id_creates_nothing() -> None:
    assert request_by_id([b"\x11" * 16], 9, b"") == bytes.fromhex(
        f"00000021 0003 000c 00000009 0000 00 02 {'11' * 16} 00 00 00 00 00"
    )


def test_topics_and_sizes_of_an_answer() -> None:
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
    assert read_request(named, 0, 1) == (("a",), True, -1)
    assert read_request(every, 0, 0) == ((), False, -1)


def test_newer_request_says_whether_it_creates() -> None:
    assert read_request(bytes.fromhex("00000001 0001 61 01"), 0, 4) == (("a",), True, 7)
    assert read_request(bytes.fromhex("ffffffff 00"), 0, 4) == ((), False, 4)
    with pytest.raises(TruncatedError):
        read_request(bytes.fromhex("00000001 0001 61"), 0, 4)


@pytest.mark.parametrize("version", [-1, 14])
def test_version_that_is_not_known_is_refused(version: int) -> None:
    with pytest.raises(UnknownVersionError):
        read_topics(b"", version)
    with pytest.raises(UnknownVersionError):
        read_request(b"", 0, version)
