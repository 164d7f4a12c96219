"""proxy.control.quotas.topic_store: what was written is read; what is damaged is not used."""

from pathlib import Path

import pytest

from proxy.control.quotas.topic_store import Place, Snapshot, SnapshotError
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity

PLACE = Place("quotas", "00ff", 12)
QUOTAS = {
    Entity("ann"): {"producer_byte_rate": 5.0, "request_percentage": 12.5},
    Entity(DEFAULT, "\u2028\n"): {"consumer_byte_rate": 6.0},
    Entity(ip="::1"): {"connection_creation_rate": 7.0},
}


def written(directory: Path) -> Snapshot:
    snapshot = Snapshot(directory, iter)
    snapshot.write(PLACE, Definitions(QUOTAS).entries())
    return snapshot


def test_what_was_written_is_read(tmp_path: Path) -> None:
    found = written(tmp_path).read("quotas")
    assert found is not None
    place, definitions = found
    assert (place, dict(definitions.entries())) == (PLACE, QUOTAS)


def test_no_quotas_are_quotas_too(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path, iter)
    snapshot.write(PLACE, ())
    found = snapshot.read("quotas")
    assert found is not None
    assert len(found[1]) == 0


def test_no_file_is_no_snapshot(tmp_path: Path) -> None:
    assert Snapshot(tmp_path / "none", iter).read("quotas") is None


def test_snapshot_of_a_topic_with_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="it is of topic quotas, not others"):
        written(tmp_path).read("others")


def test_every_cut_and_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    snapshot = written(tmp_path)
    text = snapshot.path.read_bytes()
    for size in range(len(text) - 1):
        snapshot.path.write_bytes(text[:size])
        with pytest.raises(SnapshotError):
            snapshot.read("quotas")
    for place in range(len(text)):
        changed = bytearray(text)
        changed[place] ^= 1
        snapshot.path.write_bytes(changed)
        try:
            found = snapshot.read("quotas")
        except SnapshotError:
            continue
        assert found is not None
        assert dict(found[1].entries()) == QUOTAS  # white space at the end of the last line


def test_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path, iter)
    snapshot.path.mkdir()
    with pytest.raises(SnapshotError):
        snapshot.read("quotas")
