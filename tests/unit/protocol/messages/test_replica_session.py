"""Topics with their partitions, and how many of them one message may name."""

import pytest

from protocol.errors import OversizedError
from protocol.messages.replica_session import PARTITIONS_MAX, read_partitions
from protocol.primitives import Buffer, count_bytes


def nothing(_frame: Buffer, pos: int, _end: int) -> tuple[None, int]:
    return None, pos


def topics(*counts: int) -> bytes:
    """Topics "t", each with so many partitions 0, of which nothing is said."""
    each = (b"\x02t" + count_bytes(count, True) + bytes(5) * count + b"\0" for count in counts)
    return count_bytes(len(counts), True) + b"".join(each)


def test_partitions_are_given_in_order() -> None:
    frame = b"\x03\x02a\x03\0\0\0\1\0\0\0\0\2\0\0\x02b\x02\0\0\0\3\0\0"
    found = [(("a", 1), None), (("a", 2), None), (("b", 3), None)]
    assert read_partitions(frame, 0, len(frame), nothing) == (found, len(frame))


@pytest.mark.parametrize("counts", [(PARTITIONS_MAX + 1,), (PARTITIONS_MAX, 1), (1, PARTITIONS_MAX)])
def test_more_partitions_than_a_message_may_name_are_refused(counts: tuple[int, ...]) -> None:
    frame = topics(*counts)
    with pytest.raises(OversizedError):
        read_partitions(frame, 0, len(frame), nothing)


def test_most_partitions_that_a_message_may_name_are_read() -> None:
    frame = topics(PARTITIONS_MAX - 1, 1)
    found, end = read_partitions(frame, 0, len(frame), nothing)
    assert (len(found), end) == (PARTITIONS_MAX, len(frame))
