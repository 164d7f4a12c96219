"""A disk that is full under each file that Sluice writes: an error, a counter, the old content, and later the new."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import processes


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a process came to whose files could not grow for a while."""
    directory = tmp_path_factory.mktemp("full")
    log = directory / "log"
    child = processes.start([sys.executable, "-m", "tests.support.full_disk", str(directory)], log=log)
    assert child.wait(60) == 0, log.read_text()
    return json.loads((directory / "outcome.json").read_text())


def test_quotas_that_can_not_be_written_are_as_they_were(outcome: Any) -> None:
    found = outcome["quotas"]
    assert (found["kept"], found["later"]) == (True, True)
    assert "quotas.toml cannot be written: File too large" in found["problem"]


def test_broker_map_that_can_not_be_written_is_counted_and_the_old_one_stays(outcome: Any) -> None:
    assert outcome["broker_map"] == {"counted": {"ok": 2, "failed": 3}, "kept": True, "later": True}


def test_journal_that_can_not_be_written_has_none_of_it(outcome: Any) -> None:
    found = outcome["journal"]
    assert (found["kept"], found["later"]) == (True, True)
    assert "journal: cannot be written: File too large" in found["problem"]


def test_capture_that_can_not_be_written_drops_rows_and_goes_on(outcome: Any) -> None:
    assert outcome["capture"] == {"dropped": 5, "rows": 3, "later": True}


def test_journal_whose_directory_is_a_file_is_an_error(tmp_path: Path) -> None:
    from proxy.control.reassign.file_journal import FileJournal
    from proxy.control.reassign.journal import JournalError

    (tmp_path / "journal").write_text("a file where the directory should be")
    with pytest.raises(JournalError, match="cannot be written: File exists"):
        FileJournal(tmp_path / "journal").append([])
