"""What walks measure: each topic's part of a request or response, as kafka-python encodes it, however it is cut."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api import FETCH, PRODUCE
from protocol.errors import WireError
from protocol.walks.fetch import FetchWalk
from protocol.walks.produce import ProduceWalk
from protocol.walks.walk import Sizes, Walk
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, framed, hide_odd, messages
from tests.unit.protocol.relay import relay

FEW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
PIECES = st.lists(st.integers(1, 60), max_size=80)
Begin = Callable[[int, int, Sizes], Walk]


def judged(message: Any, topics: str, by_id: bool) -> Sizes:
    """What each topic adds to the frame that kafka-python writes."""
    found: Sizes = {}
    every = getattr(message, topics) or []
    setattr(message, topics, [])
    empty = len(framed(message))
    for topic in every:
        name = topic.name if topics == "topic_data" else topic.topic
        key = topic.topic_id.bytes if by_id else (name or "").encode()
        setattr(message, topics, [topic])
        found[key] = found.get(key, 0) + len(framed(message)) - empty
    setattr(message, topics, every)
    return found


def measured(begin: Begin, version: int, frame: bytes, pieces: list[int]) -> Sizes:
    sizes: Sizes = {}
    relay(begin(version, len(frame) - 4, sizes), frame, pieces, hide_odd)
    return sizes


@pytest.mark.parametrize("version", range(14))
@FEW
@given(data=st.data(), pieces=PIECES)
def test_produce_requests_are_measured(version: int, data: st.DataObject, pieces: list[int]) -> None:
    message = data.draw(messages(REQUESTS[PRODUCE], version))
    frame = framed(message)
    wanted = judged(message, "topic_data", version >= 13)
    assert measured(ProduceWalk, version, frame, []) == wanted
    assert measured(ProduceWalk, version, frame, pieces) == wanted


@pytest.mark.parametrize("version", range(19))
@FEW
@given(data=st.data(), pieces=PIECES)
def test_fetch_responses_are_measured(version: int, data: st.DataObject, pieces: list[int]) -> None:
    message = data.draw(messages(RESPONSES[FETCH], version))
    frame = framed(message)
    wanted = judged(message, "responses", version >= 13)
    assert measured(FetchWalk, version, frame, []) == wanted
    assert measured(FetchWalk, version, frame, pieces) == wanted


@pytest.mark.parametrize("version", [0, 3, 8, 9, 13])
@FEW
@given(data=st.data(), pieces=PIECES)
def test_damaged_requests_give_wire_errors_and_nothing_else(
    version: int, data: st.DataObject, pieces: list[int]
) -> None:
    frame = bytearray(framed(data.draw(messages(REQUESTS[PRODUCE], version))))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(4, len(frame)))])
    for damaged in (bytes(frame), cut):
        sizes: Sizes = {}
        try:
            sent = relay(ProduceWalk(version, len(damaged) - 4, sizes), damaged, pieces, None)
        except WireError:
            continue
        assert sent == damaged
        assert sum(sizes.values()) <= len(damaged)
