"""The head of a Metadata response by its bytes."""

import pytest

from protocol.errors import MalformedFieldError, OversizedError, TruncatedError, UnknownVersionError
from protocol.messages.metadata import TopicMetadata, read_request, read_sizes, read_topics, rewrite_head


def ours(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    assert (host, port) == ("ab", 9)
    return ("sluice", 19100 + node_id) if node_id < 3 else None


# Version 9: tags in the header, throttle time, broker 1 with an unknown tag; the rest has not come.
HEAD_9 = bytes.fromhex("000003e8 00000009 00 00000005 02 00000001 03 6162 00000009 00 01 07 01 aa")


def test_frame_that_ends_before_its_array_is_truncated() -> None:
    frame = (len(HEAD_9) - 5).to_bytes(4, "big") + HEAD_9[4:]
    with pytest.raises(TruncatedError):
        rewrite_head(frame, 9, ours)


def test_negative_frame_is_malformed() -> None:
    with pytest.raises(MalformedFieldError):
        rewrite_head(b"\xff\xff\xff\xff", 9, ours)


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
