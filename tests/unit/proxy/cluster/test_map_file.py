"""The broker map on disk: replaced whole, and damage costs one log line."""

import logging
from pathlib import Path

import pytest

from proxy.config import Address
from proxy.control.cluster import MapFile
from proxy.system.stats import Stats

MAP = {1: Address("10.0.0.1", 9092), 12: Address("broker-12.example", 9093)}


def test_map_is_read_as_it_was_written(tmp_path: Path) -> None:
    MapFile(tmp_path, Stats()).write(MAP)
    assert MapFile(tmp_path, Stats()).read() == MAP


def test_directory_is_made(tmp_path: Path) -> None:
    MapFile(tmp_path / "state" / "sluice", Stats()).write(MAP)
    assert MapFile(tmp_path / "state" / "sluice", Stats()).read() == MAP


def test_map_never_written_is_empty(tmp_path: Path) -> None:
    assert MapFile(tmp_path, Stats()).read() == {}


def test_nothing_but_the_map_is_left(tmp_path: Path) -> None:
    MapFile(tmp_path, Stats()).write(MAP)
    assert [path.name for path in tmp_path.iterdir()] == ["brokers.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": ["h", 1]}', '{"1": ["h"]}', '{"1": 5}', "\xff"])
def test_damaged_map_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "brokers.json").write_text(text, encoding="latin-1")
    assert MapFile(tmp_path, Stats()).read() == {}


def test_damaged_map_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "brokers.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        MapFile(tmp_path, Stats()).read()
    assert [record.getMessage() for record in caplog.records] == ["broker map not read"]


def test_map_that_can_not_be_written_is_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    stats = Stats()
    file = MapFile(tmp_path / "state", stats)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not file.write(MAP)
    assert [record.getMessage() for record in caplog.records] == ["broker map not written"]
    assert stats.broker_map_writes == {"failed": 3}
