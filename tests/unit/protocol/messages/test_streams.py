"""The topology that a member of a streams group joins with, and the topics that a broker creates for it."""

import pytest

from protocol.api import STREAMS_GROUP_HEARTBEAT
from protocol.errors import OversizedError, TruncatedError
from protocol.layouts import named_in_request
from protocol.messages.streams import NAMES_MAX, Subtopology, names_of, new_partitions, read_topology
from tests.support.streams_frames import Part, heartbeat_body, topology

COUNTING = Part(sources=["words"], sinks=["app-r"])
COUNTED = Part(repartition={"app-r": 0}, changelogs=["app-c"])


def read(*parts: Part) -> tuple[Subtopology, ...]:
    return read_topology(heartbeat_body("g", "m", 0, topology(*parts)), 0)


def created(known: dict[str, int], *parts: Part) -> dict[str, int]:
    return new_partitions(read(*parts), known)


def test_topology_is_read() -> None:
    first = Part(["a", "b"], ["s"], {"r": 3, "q": 0}, ["c", "d"], ["e.*"])
    assert read(first, COUNTED) == (
        (("a", "b"), ("s",), {"r": 3, "q": 0}, ("c", "d")),
        ((), (), {"app-r": 0}, ("app-c",)),
    )
    assert names_of(read(first, first, COUNTED)) == ["a", "b", "s", "r", "q", "c", "d", "app-r", "app-c"]


def test_layout_is_kafkas() -> None:
    """The table of layouts, which is compared with Kafka's definitions, finds the same end."""
    body = heartbeat_body("g", "m", 0, topology(COUNTING, COUNTED))
    assert named_in_request(body, 0, STREAMS_GROUP_HEARTBEAT, 1, frozenset()) == []


def test_heartbeat_has_no_topology() -> None:
    assert read_topology(heartbeat_body("g", "m", 4, b"\xff"), 0) == ()


def test_topology_that_is_cut_off_is_malformed() -> None:
    body = heartbeat_body("g", "m", 0, topology(COUNTING, COUNTED))
    ends = range(len(body) - 12)  # behind it
    for end in ends:
        with pytest.raises(TruncatedError):
            read_topology(body[:end], 0)


@pytest.mark.parametrize("spread", [1, 100])
def test_topology_of_too_many_names_is_refused(spread: int) -> None:
    each = NAMES_MAX // spread
    parts = [Part(sources=[f"{part}-{name}" for name in range(each)]) for part in range(spread)]
    assert len(names_of(read(*parts))) == NAMES_MAX
    for more in (Part(sources=["x"]), Part(sinks=["x"]), Part(repartition={"x": 1}), Part(changelogs=["x"])):
        with pytest.raises(OversizedError):
            read(*parts, more)


def test_topology_of_too_many_subtopologies_is_refused() -> None:
    parts = [Part()] * NAMES_MAX
    assert len(read(*parts)) == NAMES_MAX
    with pytest.raises(OversizedError):
        read(*parts, Part())


def test_internal_topics_have_the_partitions_of_what_is_read() -> None:
    assert created({"words": 6}, COUNTING, COUNTED) == {"app-r": 6, "app-c": 6}
    assert created({"words": 6}, COUNTED, COUNTING) == {"app-r": 6, "app-c": 6}, "in any order"


def test_stated_number_of_partitions_is_taken() -> None:
    wide = Part(repartition={"app-r": 12}, changelogs=["app-c"])
    assert created({"words": 6}, COUNTING, wide) == {"app-r": 12, "app-c": 12}


def test_greatest_of_several_stated_numbers_is_taken() -> None:
    narrow, wide = Part(repartition={"app-r": 1}), Part(repartition={"app-r": 100}, changelogs=["app-c"])
    for parts in ((narrow, wide), (wide, narrow)):
        assert created({}, *parts) == {"app-r": 100, "app-c": 100}


def test_topics_that_exist_cost_nothing() -> None:
    assert created({"words": 6, "app-r": 4}, COUNTING, COUNTED) == {"app-c": 4}
    assert created({"words": 6, "app-r": 6, "app-c": 6}, COUNTING, COUNTED) == {}


def test_changelog_is_as_wide_as_the_widest_source() -> None:
    assert created({"a": 2, "b": 9}, Part(sources=["a", "b"], changelogs=["c", "d"])) == {"c": 9, "d": 9}


def test_missing_sources_count_one_partition() -> None:
    assert created({}, COUNTING, COUNTED) == {"app-r": 1, "app-c": 1}
    assert created({}, Part(expressions=[".*"], changelogs=["c"])) == {"c": 1}


@pytest.mark.parametrize("length", [3, 30])
def test_partitions_pass_along_a_chain(length: int) -> None:
    """Against the order in which it is read; a long one is given up, and gets the most there is."""
    chain = [Part(sinks=["r0"], sources=["words"])]
    chain += [Part(repartition={f"r{at}": 0}, sinks=[f"r{at + 1}"]) for at in range(length)]
    assert set(created({"words": 7}, *reversed(chain)).values()) == {7}


def test_impossible_numbers_are_no_credit() -> None:
    assert created({"words": 3}, Part(sources=["words"], repartition={"r": -5}, changelogs=["c"])) == {
        "r": 3,
        "c": 3,
    }
