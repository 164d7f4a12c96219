"""The walk by its bytes and numbers; `tests/property/test_protocol_walks.py` cuts the stream everywhere."""

import pytest

from protocol.errors import MalformedFieldError, OversizedError, TruncatedError, UnknownVersionError
from protocol.walks.fetch import FetchWalk
from protocol.walks.walk import PART_MAX
from tests.unit.protocol.kafka_frames import RESPONSES, framed, struct
from tests.unit.protocol.relay import relay

CLS = RESPONSES[1]


def ours(node_id: int, _host: str, _port: int) -> tuple[str, int] | None:
    return ("127.0.0.1", 19100 + node_id)


def response(version: int, sizes: list[int], hosts: list[str], rack: str | None = None) -> bytes:
    """One topic with a partition a size, and one endpoint a host."""
    partitions = [
        struct(CLS, version, "PartitionData", partition_index=n, records=b"r" * size, aborted_transactions=[])
        for n, size in enumerate(sizes)
    ]
    nodes = [
        struct(CLS, version, "NodeEndpoint", node_id=n, host=host, port=9092, rack=rack)
        for n, host in enumerate(hosts if version >= 16 else [])
    ]
    topics = [struct(CLS, version, "FetchableTopicResponse", topic="t", partitions=partitions)]
    return framed(CLS(version=version, responses=topics, node_endpoints=nodes))


def test_records_that_have_not_come_are_unseen() -> None:
    frame = response(18, [1_000_000], [])
    walk = FetchWalk(18, len(frame) - 4)
    buf = bytearray(frame[:1000])
    # Behind the records: no tags of the partition, of the topic, of the body.
    behind = len(frame) - 1000 - 3
    assert (walk.feed(buf, 0, 1000, ours), walk.passthrough, walk.done) == (1000, behind, False)
    assert (walk.feed(bytearray(b"\0\0\0"), 0, 3, ours), walk.passthrough, walk.done) == (3, 0, True)


def test_old_versions_end_in_records_that_need_no_feed() -> None:
    frame = response(11, [5000], [])
    walk = FetchWalk(11, len(frame) - 4)
    assert walk.feed(bytearray(frame[:100]), 0, 100, ours) == 100
    assert walk.done
    assert walk.passthrough == len(frame) - 100


def test_part_that_is_cut_is_shown_again() -> None:
    frame = response(18, [0, 0], [])
    walk = FetchWalk(18, len(frame) - 4)
    # Length, correlation id, tags, throttle time, error, session, one topic, its id, two partitions.
    head = 4 + 4 + 1 + 4 + 2 + 4 + 1 + 16 + 1
    assert walk.feed(bytearray(frame[: head + 10]), 0, head + 10, ours) == head
    assert walk.passthrough == 0
    rest = bytearray(frame[head:])
    assert walk.feed(rest, 0, len(rest), ours) == len(rest)
    assert walk.done


def test_next_frame_in_the_buffer_is_left_alone() -> None:
    frame = response(18, [10], ["127.0.0.1"])
    buf = bytearray(b"??" + frame + frame)
    walk = FetchWalk(18, len(frame) - 4)
    assert walk.feed(buf, 2, len(buf), ours) == len(frame)
    assert walk.done
    assert buf[2 + len(frame) :] == frame


@pytest.mark.parametrize(
    ("host", "tail"),
    [
        # One byte shorter: the count of tags takes two bytes.
        ("10.0.0.112", "810000 15 02 00000000" + "0a" + b"127.0.0.1".hex() + "00004a9c 00 00"),
        # Two bytes shorter: tag 127 with no bytes.
        ("10.0.0.1125", "0200 15 02 00000000" + "0a" + b"127.0.0.1".hex() + "00004a9c 00 00" + "7f 00"),
    ],
)
def test_shorter_address_is_filled_up(host: str, tail: str) -> None:
    frame = response(16, [10], [host])
    sent = relay(FetchWalk(16, len(frame) - 4), frame, [], ours)
    assert sent.hex().endswith("0000" + tail.replace(" ", ""))
    assert len(sent) == len(frame)


def test_still_longer_address_is_left_out() -> None:
    frame = response(16, [10], ["a"])
    sent = relay(FetchWalk(16, len(frame) - 4), frame, [], ours)
    assert len(sent) == len(frame)
    assert b"127" not in sent
    # One field: tag 127, its length, and as many zeros as the endpoint had bytes: 1 + 4 + 2 + 4 + 1 + 1.
    assert sent[-16:] == b"\x01\x7f\x0d" + bytes(13)


def test_large_tail_is_refused() -> None:
    frame = response(16, [10], ["h" * 30_000] * 3)
    with pytest.raises(OversizedError):
        relay(FetchWalk(16, len(frame) - 4), frame, [70_000], ours)


def test_tail_within_the_limit_is_kept_until_it_is_whole() -> None:
    frame = response(16, [10], ["h" * 30_000] * 2)
    assert len(frame) < PART_MAX
    sent = relay(FetchWalk(16, len(frame) - 4), frame, [1000] * 50, ours)
    assert sent.count(b"127.0.0.1") == 2


def test_records_longer_than_the_frame_are_malformed() -> None:
    frame = bytearray(response(18, [100], []))
    frame[-104] = 120
    with pytest.raises(MalformedFieldError):
        relay(FetchWalk(18, len(frame) - 4), bytes(frame), [], ours)


def test_frame_that_ends_early_is_truncated() -> None:
    frame = response(18, [100], [])
    for end in (10, 30, 60, len(frame) - 1):
        with pytest.raises(TruncatedError):
            relay(FetchWalk(18, end - 4), frame[:end], [], ours)


@pytest.mark.parametrize("version", [-1, 19])
def test_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(UnknownVersionError):
        FetchWalk(version, 100)
