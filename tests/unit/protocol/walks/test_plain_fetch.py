"""A plain Fetch response is read as a walk reads it; other responses are left to the walk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.walks.captured import CapturedFetchWalk, read_plain_fetch
from tests.support.batches import batch
from tests.support.frames import fetched_from
from tests.unit.protocol.walks.test_captured import noted, with_batches

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
