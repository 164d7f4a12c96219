"""Seven families while workers are killed: their connections end, again and again, and no record is lost or doubled.

All families run side by side in one window, slowed down by quotas, so that each is in the middle of its records when
a worker is killed. A client may report that a connection has ended; it must not give up a record.
"""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.interop.conftest import available, present
from tests.interop.families import Family
from tests.interop.runs import Crowd, Run, options
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.workers import is_ready, until_of, worker_ids

PARTITIONS: Final = 6
RECORDS: Final = 600
RECORD_BYTES: Final = 1000
# 600 kB in about ten seconds, the burst of one aside.
BYTES_PER_SECOND: Final = 60_000
INDEX_SUM: Final = RECORDS * (RECORDS - 1) // 2
KILLS_MIN: Final = 3
SERVED_SECONDS: Final = 1.0
FLOWS_SECONDS_MAX: Final = 60.0
RUN_SECONDS_MAX: Final = 120.0


@dataclass(frozen=True, slots=True)
class Window:
    """The runs of all families, and how many workers were killed meanwhile."""

    producing: dict[str, Run]
    consuming: dict[str, Run]
    kills: int


def kill_one(sluice: SluiceProcess, number: int) -> None:
    """Kill a worker, and wait until another one serves in its place."""
    exits = sluice.metric("sluice_worker_exits_total")
    os.kill(worker_ids(sluice)[number], signal.SIGKILL)
    until_of(lambda: sluice.metric("sluice_worker_exits_total") > exits, sluice)
    until_of(lambda: is_ready(sluice), sluice)


@pytest.fixture(scope="module")
def window(kafka: Cluster, create_topic: CreateTopic, interop_directory: Path) -> Iterator[Window]:
    """Run all families, and kill workers until each has produced everything."""
    directory = interop_directory / "workers"
    directory.mkdir()
    limited = {"producer_byte_rate": BYTES_PER_SECOND, "consumer_byte_rate": BYTES_PER_SECOND}
    settings = SluiceSettings(
        kafka.bootstrap(),
        quotas={"policy": "schedule", "scope": "cluster"},
        client_quotas={"<default>": limited},
        sections={"process": {"workers": 2}},
    )
    producing, consuming = {}, {}
    with SluiceProcess.configured(settings, directory) as sluice, Crowd(directory) as crowd:
        for family in present():
            topic = create_topic(partitions=PARTITIONS, replication=3)
            words = options(sluice.bootstrap, f"killed-{family.name}", topic, partitions=PARTITIONS)
            words += ["--records", str(RECORDS)]
            more = ["--size", str(RECORD_BYTES), "--outstanding", "20", "--idempotence", "on"]
            producing[family.name] = crowd.start(family, "produce", *words, *more)
            consuming[family.name] = crowd.start(family, "consume", *words, "--seconds", str(RUN_SECONDS_MAX))
        # From the first to the last record: what has not begun meets a worker that is killed as a client at its start.
        crowd.until(lambda: all(run.events("progress") for run in consuming.values()), FLOWS_SECONDS_MAX)
        kills = 0
        while kills < KILLS_MIN or not all(run.events("produced") for run in producing.values()):
            kill_one(sluice, 1 + kills % 2)
            kills += 1
            time.sleep(SERVED_SECONDS)
            if kills > RUN_SECONDS_MAX:
                break
        yield Window(producing, consuming, kills)


def test_no_family_loses_or_doubles_a_record_when_workers_are_killed(family: Family, window: Window) -> None:
    available(family)
    produced = window.producing[family.name].wait(RUN_SECONDS_MAX)
    assert not produced.events("failed"), produced.describe()
    assert produced.last("produced").number("records") == RECORDS, produced.describe()
    consumed = window.consuming[family.name].wait(RUN_SECONDS_MAX)
    line = consumed.last("consumed")
    assert (line.number("records"), line.number("index_sum")) == (RECORDS, INDEX_SUM), consumed.describe()
    assert window.kills >= KILLS_MIN
