"""The walk by its bytes and numbers; `tests/property/test_protocol_walks.py` cuts the stream everywhere."""

from collections.abc import Sequence
from typing import Any

import pytest

from protocol.errors import MalformedFieldError, OversizedError, TruncatedError, UnknownVersionError
from protocol.walks.fetch import PARTITIONS_READ_MAX, FetchWalk, first_batch_bytes
from protocol.walks.walk import PART_MAX
from tests.support.frames import frame
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


def batches(size: int, count: int) -> bytes:
    """So many batches of `size` bytes; only their heads have the layout of one: base offset, bytes that follow."""
    return (bytes(8) + (size - 12).to_bytes(4, "big") + b"b" * (size - 12)) * count


def with_records(
    version: int, *topics: Sequence[bytes | None], aborted: int = 0, name: str = "t"
) -> bytearray:
    """A response with a topic for each list, with a partition for each of its records."""
    transactions = [struct(CLS, version, "AbortedTransaction", producer_id=1, first_offset=2)] * aborted
    return bytearray(
        framed(
            CLS(
                version=version,
                node_endpoints=[],
                responses=[
                    struct(
                        CLS,
                        version,
                        "FetchableTopicResponse",
                        topic=name,
                        partitions=[
                            struct(
                                CLS,
                                version,
                                "PartitionData",
                                partition_index=number,
                                records=records,
                                aborted_transactions=transactions,
                            )
                            for number, records in enumerate(topic)
                        ],
                    )
                    for topic in topics
                ],
            )
        )
    )


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("size", [61, 16_384, 300_000, 3_000_000])
def test_first_batch_is_the_first_of_a_response(version: int, size: int) -> None:
    frame = with_records(version, [batches(size, 2), batches(100, 1)])
    assert first_batch_bytes(frame, 0, 200, version) == size
    assert first_batch_bytes(bytearray(7) + frame, 7, 207, version) == size


@pytest.mark.parametrize("version", range(4, 19))
def test_first_batch_is_found_behind_partitions_and_topics_without_records(version: int) -> None:
    frame = with_records(version, [b"", None], [b"", batches(500, 3)], aborted=2)
    assert first_batch_bytes(frame, 0, len(frame), version) == 500


@pytest.mark.parametrize("version", [11, 12, 18])
def test_first_batch_of_many_partitions_is_found(version: int) -> None:
    frame = with_records(version, [batches(500, 1)] * 200, name="n" * 200)
    assert first_batch_bytes(frame, 0, len(frame), version) == 500


@pytest.mark.parametrize("version", [4, 12, 18])
def test_first_batch_behind_many_empty_partitions_is_not_looked_for(version: int) -> None:
    def behind(empty: int) -> int:
        frame = with_records(version, [b""] * empty + [batches(500, 1)])
        return first_batch_bytes(frame, 0, len(frame), version)

    assert (behind(PARTITIONS_READ_MAX - 1), behind(PARTITIONS_READ_MAX)) == (500, 0)


@pytest.mark.parametrize("more", [0, 1, 100])
def test_nothing_is_read_behind_the_last_partition_that_is_looked_at(more: int) -> None:
    class Watched(bytearray):
        last = 0

        def __getitem__(self, at: Any) -> Any:
            self.last = max(self.last, at)
            return super().__getitem__(at)

    # A client may have written anything there, such as what looks like 10,000 tags.
    tags = b"\x90\x4e" + b"\1\0" * 10_000
    empty = [b""] * PARTITIONS_READ_MAX
    frame = Watched(with_records(15, empty + [tags] * more, *[[tags]] * 3))
    assert first_batch_bytes(frame, 0, len(frame), 15) == 0
    assert frame.last < len(with_records(15, empty))


@pytest.mark.parametrize("version", range(4, 19))
def test_first_batch_that_has_not_arrived_is_unknown(version: int) -> None:
    frame = with_records(version, [b"", batches(5000, 1)])
    head = frame.index(b"b" * 100)
    assert [first_batch_bytes(frame, 0, end, version) for end in range(head)] == [0] * head
    assert first_batch_bytes(frame, 0, head, version) == 5000
    empty = with_records(version, [b"", b""])
    assert first_batch_bytes(empty, 0, len(empty), version) == 0


@pytest.mark.parametrize(("version", "throttle"), [(0, b""), (3, bytes(4))])
def test_first_batch_is_found_in_versions_that_brokers_of_today_do_not_have(
    version: int, throttle: bytes
) -> None:
    records = batches(5000, 1)
    # One topic "t" with one partition: index, error code, high watermark, length of the records.
    body = (
        throttle
        + (1).to_bytes(4)
        + b"\0\1t"
        + (1).to_bytes(4)
        + bytes(4 + 2 + 8)
        + len(records).to_bytes(4)
        + records
    )
    buf = bytearray(frame(bytes(4) + body))
    assert first_batch_bytes(buf, 0, len(buf), version) == 5000
