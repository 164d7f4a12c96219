"""What every walk does, shown on the smallest frames."""

import pytest

from protocol.errors import OversizedError
from protocol.primitives import uvarint_bytes
from protocol.walks.fetch import FetchWalk
from protocol.walks.walk import PART_MAX, STEPS_MAX


def test_empty_feed_passes_no_bytes() -> None:
    walk = FetchWalk(18, 17)
    assert walk.feed(bytearray(), 0, 0, None) == 0
    assert (walk.passthrough, walk.done) == (0, False)


def test_smallest_response_is_done_at_once() -> None:
    frame = bytearray.fromhex("00000011 00000009 00 00000000 0000 00000005 01 00")
    walk = FetchWalk(18, 17)
    assert walk.feed(frame, 0, len(frame), None) == len(frame)
    assert walk.done


def test_bytes_behind_the_fields_pass() -> None:
    # Unknown fields of a newer broker, behind an empty tag section.
    frame = bytearray.fromhex("00000013 00000009 00 00000000 0000 00000005 01 00 abcd")
    walk = FetchWalk(18, 19)
    assert walk.feed(frame, 0, 21, None) == 21
    assert walk.done
    assert walk.passthrough == 2


def test_part_that_never_ends_is_refused() -> None:
    # The header's tag section promises one field of 2 MiB.
    frame = bytearray.fromhex("00ffffff 00000009 01 05 80808001") + bytes(PART_MAX)
    walk = FetchWalk(18, 0xFFFFFF)
    with pytest.raises(OversizedError):
        walk.feed(frame, 0, len(frame), None)


def test_feed_rests_after_so_many_steps() -> None:
    """The smallest topics, of which 64 KiB hold thousands: each is two steps."""
    topics = STEPS_MAX
    body = b"\0\0\0\1\0" + bytes(10) + uvarint_bytes(topics + 1) + b"\x01\x01\0" * topics + b"\0"
    frame = bytearray(len(body).to_bytes(4, "big") + body)
    walk = FetchWalk(12, len(body))
    at = feeds = 0
    while not walk.done:
        count = walk.feed(frame, at, len(frame), None)
        assert count > 0
        at += count
        feeds += 1
        assert walk.paused == (not walk.done)
    assert (at, walk.passthrough) == (len(frame), 0)
    assert feeds == 3  # one step for the head and one for the tail, two a topic
