"""The room that all connections share, in bytes; connections themselves are in `test_driver`."""

from dataclasses import dataclass
from typing import cast

import pytest

from offline.replay import driver
from offline.replay.driver import Connection, SendBudget


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
