"""The room that all connections share, in bytes; connections themselves are in `test_driver`."""

from dataclasses import dataclass
from typing import cast

import pytest

from offline.replay import driver
from offline.replay.driver import FRAMES_MAX, Connection, EncodeAhead, SendBudget
from offline.replay.frames import Encoder, Frame
from offline.replay.schedule import Recorded, plan
from offline.replay.target import Placement
from protocol.api import HEARTBEAT
from tests.unit.offline.replay.rows import recorded


@dataclass
class Holding:
    """A lane that has so much left to send."""

    unsent_bytes: int = 0


def room(monkeypatch: pytest.MonkeyPatch, *connections: Holding) -> SendBudget:
    monkeypatch.setattr(driver, "UNSENT_BYTES_MAX", 100)
    return SendBudget(cast("tuple[Connection, ...]", connections))


def test_room_is_of_all_connections_together(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Holding(), Holding()
    shared = room(monkeypatch, one, two)
    assert shared.take(60, 0)
    one.unsent_bytes = 60
    assert shared.take(40, 0)
    two.unsent_bytes = 40
    assert not shared.take(1, 0)


def test_sent_bytes_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Holding(), Holding()
    shared = room(monkeypatch, one, two)
    for _ in range(50):  # of 60 bytes each, which are gone at once
        assert shared.take(60, 0)
    one.unsent_bytes, two.unsent_bytes = 50, 20
    assert not shared.take(60, 0)
    assert not shared.take(10, 9_999)  # connections are not asked again so soon
    assert shared.take(30, 10_000)
    one.unsent_bytes += 30
    assert not shared.take(1, 10_000)


class Timed(Encoder):
    """Takes 300 us a frame."""

    def __init__(self) -> None:
        super().__init__(Placement({}, {}, {}), -1, 1)
        self.now_us = 0

    def encode(self, row: Recorded, correlation_id: int) -> Frame | None:
        self.now_us += 300
        return super().encode(row, correlation_id)


def made(count: int) -> tuple[EncodeAhead, Timed]:
    encoder = Timed()
    rows = [recorded(seq=seq, api_key=HEARTBEAT, partitions=()) for seq in range(count)]
    return EncodeAhead(plan(rows, 1.0).sends, encoder, lambda: encoder.now_us), encoder


def test_a_turn_is_short_and_another_follows() -> None:
    ahead, encoder = made(10)
    assert ahead.make(0, 1_000_000)
    assert (len(ahead), encoder.now_us) == (4, 1200)  # after 900 us there was time for one more
    assert ahead.make(0, 1_000_000)
    assert not ahead.make(0, 1_000_000)
    assert len(ahead) == 10


def test_nothing_is_made_when_something_is_due_soon() -> None:
    ahead, encoder = made(10)
    assert not ahead.make(0, 1999)
    assert not ahead.make(0, 2500)  # of 1 ms there, the spare 2 are all after two frames
    assert (len(ahead), encoder.now_us) == (2, 600)


def test_no_more_than_a_bound_is_ahead() -> None:
    ahead, _ = made(FRAMES_MAX + 10)
    while ahead.make(0, 1 << 40):
        pass
    assert len(ahead) == FRAMES_MAX


def test_frames_are_taken_in_order_whether_made_or_not() -> None:
    ahead, _ = made(6)
    ahead.make(0, 1_000_000)
    frames = [ahead.take(place) for place in range(6)]
    assert [frame.data[8:12] for frame in frames if frame is not None] == [
        place.to_bytes(4, "big") for place in range(6)
    ]
