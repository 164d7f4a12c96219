"""What the captured walks note of each partition, and that they end early where they may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.walks import captured
from protocol.walks.captured import (
    UNCOUNTED,
    CapturedFetchWalk,
    CapturedProduceWalk,
    PartitionRecords,
    PlainProduce,
    read_plain_fetch,
)
from protocol.walks.walk import OTHER_TOPICS, Sizes
from tests.support.batches import batch
from tests.support.frames import fetched_from, produce_to, topic_id
from tests.unit.protocol.relay import relay

Walks = type[CapturedProduceWalk] | type[CapturedFetchWalk]
VERSIONS = [(CapturedProduceWalk, version) for version in range(14)] + [
    (CapturedFetchWalk, version) for version in range(19)
]


def whole(kind: Walks, version: int, topics: dict[str, list[int]]) -> bytes:
    return (produce_to if kind is CapturedProduceWalk else fetched_from)(version, topics)


def with_batches(frame: bytes, size: int, *batches: bytes) -> bytes:
    """The frame with its filler of one partition's `size` bytes replaced."""
    records = b"".join(batches)
    assert len(records) == size
    filler = bytes(range(1, 251)) * (size // 250 + 1)
    assert frame.count(filler[:size]) == 1
    return frame.replace(filler[:size], records)


def noted(
    kind: Walks, version: int, frame: bytes, *pieces: int, sizes: Sizes | None = None
) -> list[PartitionRecords]:
    walk = kind(version, len(frame) - 4, sizes)
    assert relay(walk, frame, pieces, None) == frame
    return walk.partitions


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
@pytest.mark.parametrize("pieces", [(), (1,) * 400])
def test_each_partition_is_noted_with_its_bytes(kind: Walks, version: int, pieces: tuple[int, ...]) -> None:
    frame = whole(kind, version, {"a": [100, 0, 300], "b": [10]})
    by_id = version >= 13
    a, b = (topic_id("a"), topic_id("b")) if by_id else (b"a", b"b")
    found = noted(kind, version, frame, *pieces)
    assert [entry[:3] for entry in found] == [(a, 0, 100), (a, 1, 0), (a, 2, 300), (b, 0, 10)]


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_sizes_of_topics_are_the_same_as_without_notes(kind: Walks, version: int) -> None:
    frame = whole(kind, version, {"a": [100, 200], "b": [10], "c": []})
    sizes: Sizes = {}
    plain: Sizes = {}
    noted(kind, version, frame, sizes=sizes)
    relay(kind.__mro__[2](version, len(frame) - 4, plain), frame, (), None)
    assert sizes == plain
    assert sizes


@pytest.mark.parametrize(("kind", "version"), [(CapturedProduceWalk, 12), (CapturedFetchWalk, 15)])
def test_records_of_all_batches_at_hand_are_counted(kind: Walks, version: int) -> None:
    frame = with_batches(whole(kind, version, {"a": [200]}), 200, batch(3, 70), batch(40, 130))
    assert [entry[3] for entry in noted(kind, version, frame)] == [43]


@pytest.mark.parametrize(("kind", "version"), [(CapturedProduceWalk, 12), (CapturedFetchWalk, 15)])
def test_batch_that_a_broker_cut_is_not_counted(kind: Walks, version: int) -> None:
    frame = with_batches(whole(kind, version, {"a": [100]}), 100, batch(3, 70), batch(40, 130)[:30])
    assert [entry[3] for entry in noted(kind, version, frame)] == [3]


def test_one_large_batch_is_counted_from_its_header() -> None:
    frame = with_batches(produce_to(12, {"a": [5000]}), 5000, batch(77, 5000))
    assert noted(CapturedProduceWalk, 12, frame, 200)[0][2:] == (5000, 77)


def test_second_batch_that_is_not_at_hand_makes_the_count_unknown() -> None:
    frame = with_batches(produce_to(12, {"a": [5000]}), 5000, batch(77, 4000), batch(1, 1000))
    assert noted(CapturedProduceWalk, 12, frame, 200)[0][2:] == (5000, UNCOUNTED)


def test_messages_of_old_magic_are_not_counted() -> None:
    frame = with_batches(produce_to(2, {"a": [100]}), 100, batch(9, 100, magic=1))
    assert noted(CapturedProduceWalk, 2, frame) == [(b"a", 0, 100, UNCOUNTED)]


@pytest.mark.parametrize("tail", [0, 30])
@pytest.mark.parametrize(("kind", "version"), [(CapturedProduceWalk, 9), (CapturedFetchWalk, 12)])
def test_more_records_than_a_row_can_hold_are_not_counted(kind: Walks, version: int, tail: int) -> None:
    most = 0x7FFFFFFF
    batches = batch(most, 70), batch(most, 130), batch(1, 61)[:tail]
    frame = with_batches(whole(kind, version, {"a": [200 + tail]}), 200 + tail, *batches)
    assert [entry[2:] for entry in noted(kind, version, frame)] == [(200 + tail, UNCOUNTED)]


@pytest.mark.parametrize(("kind", "version"), [(CapturedProduceWalk, 8), (CapturedFetchWalk, 11)])
def test_frame_with_wrong_lengths_gives_no_rows(kind: Walks, version: int) -> None:
    frame = bytearray(whole(kind, version, {"a": [100], "b": [100]}))
    at = frame.rindex((100).to_bytes(4, "big"))
    frame[at : at + 4] = (0x7FFFFFFF).to_bytes(4, "big")
    assert noted(kind, version, bytes(frame)) == []


def test_partitions_beyond_the_bound_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "PARTITIONS_MAX", 2)
    found = noted(CapturedProduceWalk, 9, produce_to(9, {"a": [1, 2], "b": [3, 4]}))
    assert found == [(b"a", 0, 1, 0), (OTHER_TOPICS, UNCOUNTED, 2 + 3 + 4, UNCOUNTED)]


def test_walk_ends_with_the_last_partitions_header() -> None:
    frame = produce_to(9, {"a": [10], "b": [1_000_000]})
    walk = CapturedProduceWalk(9, len(frame) - 4)
    assert walk.feed(bytearray(frame[:200]), 0, 200, None) == 200
    assert (walk.done, walk.passthrough) == (True, len(frame) - 200)


@pytest.mark.parametrize("kind", [CapturedProduceWalk, CapturedFetchWalk])
def test_large_rest_is_summed_unless_all_is_asked_for(kind: Walks) -> None:
    frame = whole(kind, 12, {"a": [20_000, 30_000, 10_000]})
    assert [entry[1:3] for entry in noted(kind, 12, frame, 4096)] == [(0, 20_000), (1, 30_000), (2, 10_000)]
    walk = kind(12, len(frame) - 4, whole=False)
    assert relay(walk, frame, (4096,), None) == frame
    first, rest = walk.partitions
    fields = rest[2] - 30_000 - 10_000  # between the payloads, and behind them
    assert first[1:3] == (0, 20_000)
    assert (rest[0], rest[1], rest[3], 0 < fields < 100) == (OTHER_TOPICS, UNCOUNTED, UNCOUNTED, True)


def test_small_rest_is_always_walked() -> None:
    frame = produce_to(12, {"a": [20_000, 3_000]})
    walk = CapturedProduceWalk(12, len(frame) - 4, whole=False)
    relay(walk, frame, (4096,), None)
    assert [entry[1] for entry in walk.partitions] == [0, 1]


def test_rest_that_is_walked_for_topics_is_separate() -> None:
    frame = produce_to(12, {"a": [20_000, 30_000]})
    walk = CapturedProduceWalk(12, len(frame) - 4, {}, whole=False)
    relay(walk, frame, (4096,), None)
    assert [entry[1] for entry in walk.partitions] == [0, 1]


def test_response_is_walked_to_its_end_where_addresses_are_rewritten() -> None:
    frame = fetched_from(16, {"a": [1_000_000]})
    walk = CapturedFetchWalk(16, len(frame) - 4)
    walk.feed(bytearray(frame[:200]), 0, 200, lambda node, _host, _port: ("h", node))
    assert (walk.done, walk.passthrough) == (False, len(frame) - 200 - 3)
    sidecar = CapturedFetchWalk(16, len(frame) - 4)
    sidecar.feed(bytearray(frame[:200]), 0, 200, None)
    assert (sidecar.done, sidecar.passthrough) == (True, len(frame) - 200)


Read = list[tuple[bytes, int, int, int]] | None


def read(frame: bytes, version: int, limit: int | None = None) -> Read:
    padded = bytes(5) + frame + b"\xff" * 50  # what surrounds it must not matter
    end = 5 + (len(frame) if limit is None else limit)
    return read_plain_fetch(padded, 5, end, 5 + len(frame), version)


@pytest.mark.parametrize("version", range(12, 19))
@pytest.mark.parametrize(
    "topics",
    [
        {},
        {"a": [0]},
        {"a": [100]},
        {"a": [126, 127, 128], "b": [16_382, 16_383, 16_384]},
        {"a": [50_000]},
        {"a": [10, 0], "b": [0, 1], "c": [40_000]},
    ],
    ids=str,
)
def test_plain_response_gives_the_same_as_a_walk(version: int, topics: dict[str, list[int]]) -> None:
    frame = fetched_from(version, topics)
    walked = noted(CapturedFetchWalk, version, frame)
    assert read(frame, version) == walked
    for limit in range(min(len(frame), 400)):
        assert read(frame, version, limit) in (None, walked), limit


def test_records_are_counted_over_several_batches() -> None:
    frame = with_batches(fetched_from(12, {"a": [300]}), 300, batch(3, 100), batch(40, 200))
    assert read(frame, 12) == [(b"a", 0, 300, 43)] == noted(CapturedFetchWalk, 12, frame)


def test_records_that_have_not_arrived_are_of_unknown_number() -> None:
    frame = fetched_from(12, {"a": [9, 50_000]})
    found = read(frame, 12, 1000)
    assert found is not None
    assert [entry[2] for entry in found] == [9, 50_000]
    assert found[1][3] == -1


def test_other_responses_are_left_to_the_walk() -> None:
    plain = fetched_from(12, {"a": [100]})
    aborted, tagged, header_tags = bytearray(plain), bytearray(plain), bytearray(plain)
    aborted[23 + 30] = 2
    tagged[-1] = 1
    header_tags[8] = 1
    many = fetched_from(12, {"a": [1] * 33}), fetched_from(12, {f"t{n}": [1] for n in range(33)})
    large = fetched_from(12, {"a": [3_000_000]})
    long_name = fetched_from(12, {"a" * 200: [1]})
    for frame in (aborted, tagged, header_tags, *many, large, long_name):
        assert read(bytes(frame), 12) is None
    assert read(fetched_from(11, {"a": [100]}), 11) is None


@given(
    st.integers(12, 18),
    st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 300), max_size=4), max_size=3),
    st.data(),
)
def test_changed_bytes_never_give_what_a_walk_does_not(
    version: int, topics: dict[str, list[int]], data: st.DataObject
) -> None:
    frame = bytearray(fetched_from(version, topics))
    for _ in range(data.draw(st.integers(0, 2))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    found = read(bytes(frame), version)
    if found is not None:
        assert found == noted(CapturedFetchWalk, version, bytes(frame))


def with_one_batch(version: int, size: int, records: int) -> bytes:
    return with_batches(produce_to(version, {"a": [size]}), size, batch(records, size))


BODY = 14 + len("a")


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("size", [61, 125, 126, 127, 128, 16_381, 16_382, 16_383, 50_000, 3_000_000])
def test_plain_produce_gives_the_same_as_a_walk(version: int, size: int) -> None:
    frame = with_one_batch(version, size, 7)
    walked = noted(CapturedProduceWalk, version, frame)
    plain = PlainProduce()
    for _ in range(2):
        found = plain.read(frame, BODY, len(frame), len(frame), version)
        assert found == (walked if size < 2_000_000 else None)  # whose size takes four bytes
    for limit in range(BODY, min(len(frame), 300)):
        found = PlainProduce().read(frame, BODY, limit, len(frame), version)
        assert found is None or found == walked


def test_plain_produce_with_another_beginning_gives_the_same_as_a_walk() -> None:
    plain = PlainProduce()
    for version, acks in ((12, 1), (12, 1), (12, 0), (9, 1), (13, 1), (12, 1)):
        size = 100 + version + acks
        frame = with_batches(produce_to(version, {"a": [size]}, acks=acks), size, batch(3, size))
        walked = noted(CapturedProduceWalk, version, frame)
        assert plain.read(frame, BODY, len(frame), len(frame), version) == walked
    assert plain.read(produce_to(12, {"b": [100, 100]}), BODY, 300, 300, 12) is None


def test_other_produce_is_left_to_the_walk() -> None:
    transactional = bytearray(with_one_batch(9, 100, 7))
    transactional[16] = 2
    old_magic = with_batches(produce_to(12, {"a": [100]}), 100, batch(9, 100, magic=1))
    two_batches = with_batches(produce_to(12, {"a": [200]}), 200, batch(3, 70), batch(40, 130))
    tagged = with_one_batch(12, 100, 7)[:-1] + bytes((1, 0, 1, 9))
    frames = {8: [with_one_batch(8, 100, 7)], 9: [bytes(transactional)]}
    frames[12] = [
        old_magic,
        two_batches,
        tagged,
        produce_to(12, {"a": [100]}),
        produce_to(12, {"a": [100, 5]}),
    ]
    frames[12] += [produce_to(12, {}), produce_to(12, {"a": []}), produce_to(12, {"a": [70], "b": [70]})]
    for version, those in frames.items():
        for frame in those:
            assert PlainProduce().read(frame, BODY, len(frame), len(frame), version) is None, frame
