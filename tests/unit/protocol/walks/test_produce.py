"""The walk through Produce requests by its numbers; `tests/property/test_protocol_walks.py` cuts the stream."""

import pytest

from protocol.errors import MalformedFieldError, TruncatedError, UnknownVersionError
from protocol.walks import walk as walks
from protocol.walks.produce import ProduceWalk
from tests.support.frames import produce_to
from tests.unit.protocol.relay import relay


def measured(frame: bytes, version: int, *pieces: int) -> dict[bytes, int]:
    sizes: dict[bytes, int] = {}
    assert relay(ProduceWalk(version, len(frame) - 4, sizes), frame, pieces, None) == frame
    return sizes


def test_topic_that_comes_twice_is_summed() -> None:
    frame = produce_to(9, {"a": [10]})
    topic = frame[-(2 + 1 + 4 + 1 + 10 + 1 + 1) - 1 : -1]
    twice = frame[: -len(topic) - 2] + b"\3" + topic + topic + b"\0"
    twice = (len(twice) - 4).to_bytes(4, "big") + twice[4:]
    assert measured(twice, 9) == {b"a": 2 * len(topic)}


@pytest.mark.parametrize("version", [3, 9])
def test_topics_are_to_be_taken_before_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(walks, "TOPICS_MAX", 2)
    frame = produce_to(version, {name: [1] for name in "abcde"})
    walk = ProduceWalk(version, len(frame) - 4, {})
    taken, pos = [], 0
    while not walk.done:
        pos += walk.feed(bytearray(frame), pos, len(frame), None)
        assert walk.full is not walk.done
        taken.append(walk.take_sizes())
    # Before version 9 nothing tells a topic's end but the next one's begin.
    parts = [b"ab", b"cd", b"e"] if version >= 9 else [b"a", b"bc", b"de"]
    assert [b"".join(sizes) for sizes in taken] == parts
    one = measured(produce_to(version, {"a": [1]}), version)
    assert {size for sizes in taken for size in sizes.values()} == set(one.values())


@pytest.mark.parametrize("version", [3, 9])
def test_name_longer_than_any_is_not_kept(version: int) -> None:
    found = measured(produce_to(version, {"a": [1], "b" * 249: [1], "c" * 250: [1], "d" * 999: [1]}), version)
    assert list(found) == [b"a", b"b" * 249, walks.OTHER_TOPICS]
    assert found[walks.OTHER_TOPICS] > 250 + 999


def test_records_that_have_not_come_are_unseen() -> None:
    frame = produce_to(9, {"a": [1_000_000]})
    walk = ProduceWalk(9, len(frame) - 4, {})
    # Behind the records: no tags of the partition, of the topic, of the body.
    assert walk.feed(bytearray(frame[:200]), 0, 200, None) == 200
    assert (walk.passthrough, walk.done) == (len(frame) - 200 - 3, False)
    assert (walk.feed(bytearray(3), 0, 3, None), walk.passthrough, walk.done) == (3, 0, True)


def test_old_versions_end_in_records_that_need_no_feed() -> None:
    frame = produce_to(8, {"a": [5000]})
    sizes: dict[bytes, int] = {}
    walk = ProduceWalk(8, len(frame) - 4, sizes)
    assert walk.feed(bytearray(frame[:100]), 0, 100, None) == 100
    assert (walk.passthrough, walk.done) == (len(frame) - 100, True)
    assert sizes == {b"a": 2 + 1 + 4 + 4 + 4 + 5000}


def test_records_longer_than_the_frame_are_malformed() -> None:
    frame = bytearray(produce_to(9, {"a": [100]}))
    frame[-104] = 120  # one byte of length, 100 records, tags of partition, topic, body
    with pytest.raises(MalformedFieldError):
        measured(bytes(frame), 9)


def test_frame_that_ends_early_is_truncated() -> None:
    frame = produce_to(9, {"a": [100]})
    for end in (16, 20, 26, len(frame) - 1):
        with pytest.raises(TruncatedError):
            relay(ProduceWalk(9, end - 4, {}), frame[:end], [], None)


@pytest.mark.parametrize("version", [-1, 14])
def test_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(UnknownVersionError):
        ProduceWalk(version, 100, {})
