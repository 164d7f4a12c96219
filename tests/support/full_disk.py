"""A process whose files can not grow: what each writer of Sluice's makes of it, then whether it goes on.

    python -m tests.support.full_disk DIRECTORY     writes outcome.json there

The kernel refuses each write beyond RLIMIT_FSIZE, as a full disk does (EFBIG in place of ENOSPC).
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

from proxy.capture import writer as capture_writer
from proxy.capture.recorder import Recorder
from proxy.capture.tables import Tables
from proxy.capture.writer import Directory, Writer
from proxy.config import Address, QuotaSettings
from proxy.control.cluster import MapFile
from proxy.control.quotas import FileStore, StoreError
from proxy.control.reassign.file_journal import FileJournal
from proxy.control.reassign.journal import Entry, JournalError
from proxy.system.stats import CaptureStats, Stats
from quotas.definitions.definitions import Definitions
from tests.unit.proxy.capture.rows import row

_BYTES_MAX: Final = 40
_SECONDS_MAX: Final = 20.0
_QUOTAS: Final = '[[quota]]\nclient_id = "a"\nproducer_byte_rate = 1000\n'

Response = dict[str, object]


@contextmanager
def full() -> Iterator[None]:
    """Let no file grow meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_BYTES_MAX, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def quotas(directory: Path) -> Response:
    """Alter a quota."""
    path = directory / "quotas.toml"
    path.write_text(_QUOTAS)
    store = FileStore(QuotaSettings(file=path))
    problem = ""

    def alter() -> None:
        store.alter([([("client-id", "a")], [("producer_byte_rate", 2000.0)])], validate_only=False)

    with full():
        try:
            alter()
        except StoreError as error:
            problem = str(error)
    kept = path.read_text() == _QUOTAS and store.definitions.limit("producer_byte_rate", "", "a")[0] == 1000
    alter()
    return {"problem": problem, "kept": kept, "later": "= 2000" in path.read_text()}


def broker_map(directory: Path) -> Response:
    """Write the broker map."""
    stats = Stats()
    file = MapFile(directory, stats)
    brokers = {number: Address("broker.example", 9092) for number in range(10)}
    file.write({1: Address("a", 1)})
    with full():
        for _ in range(3):
            file.write(brokers)
    kept = file.read() == {1: Address("a", 1)}
    file.write(brokers)
    return {"counted": dict(stats.broker_map_writes), "kept": kept, "later": file.read() == brokers}


def journal(directory: Path) -> Response:
    """Append to the journal of reassignments."""
    kept = FileJournal(directory / "journal")
    one, two = Entry("t", 0, "id", (1, 2), (3, 4)), Entry("t", 1, "id", (1, 2), (3, 4))
    kept.append([one])
    problem = ""
    with full():
        try:
            kept.append([two])
        except JournalError as error:
            problem = str(error)
    before = list(FileJournal(directory / "journal").read().entries.values())
    kept.append([two])
    after = list(FileJournal(directory / "journal").read().entries.values())
    return {"problem": problem, "kept": before == [one], "later": after == [one, two]}


def capture(directory: Path) -> Response:
    """Write captured rows."""
    stats = CaptureStats()
    recorder = Recorder("p", 1.0, stats)
    kept = Directory(directory / "capture", 10**9)
    kept.prepare()
    # Of 1 byte: each batch is a file.
    writer = Writer(
        recorder, kept, Tables("p", _nameless, Definitions().limit), stats, "p", 1, 3600.0, _nameless, _ask
    )
    writer.start()

    def record(count: int) -> None:
        for number in range(count):
            recorder.add(row(number))
        recorder.full()
        deadline = time.monotonic() + _SECONDS_MAX
        while stats.rows + stats.dropped["disk"] < count and time.monotonic() < deadline:
            time.sleep(0.01)

    with full(), patch.object(capture_writer, "RETRY_SECONDS", 0.0):
        record(5)
    dropped = stats.dropped["disk"]
    stats.dropped["disk"] = 0
    record(3)
    recorder.queue.put(None)
    writer.thread.join(_SECONDS_MAX)
    return {"dropped": dropped, "rows": stats.rows, "later": stats.files == 1}


def _nameless(_: bytes) -> str | None:
    return None


def _ask(_: object) -> None: ...


def main() -> None:
    """Try them all."""
    directory = Path(sys.argv[1])
    writers: tuple[Callable[[Path], Response], ...] = (quotas, broker_map, journal, capture)
    outcome = {write.__name__: write(directory) for write in writers}
    (directory / "outcome.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
