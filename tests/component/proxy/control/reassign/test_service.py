"""What the application gets: pages, metrics and settings, before any broker is there."""

import asyncio
import sys
from pathlib import Path

import pytest

from proxy.config import Config, ReassignmentSettings, parse
from proxy.config.options import Source
from proxy.control.cluster import BrokerClient, BrokerMap
from proxy.control.reassign import Reassignments, make_reassignments
from proxy.control.reassign.file_journal import FilePlace
from proxy.system.errors import StartError
from proxy.system.stats import Stats
from proxy.topics.topic import Access
from tests.support.executor_world import read_beside


async def page(directory: Path, settings: ReassignmentSettings) -> tuple[dict[str, object], set[str]]:
    stats = Stats()
    service = Reassignments(
        ReassignmentSettings(mode="batch"),
        FilePlace(directory),
        BrokerClient(BrokerMap((), stats)),
        asyncio.get_running_loop().create_task,
        lambda: 0,
        read_beside,
        stats,
    )
    service.configure(settings)
    tasks = [asyncio.get_running_loop().create_task(run()) for run in (service.run, service.watch)]
    found = await service.page()
    while not (found["leads"] and "sluice_reassignments" in {family.name for family in service.families()}):
        await asyncio.sleep(0.01)
        found = await service.page()
    names = {family.name for family in service.families()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found, names


def test_status_and_metrics_show_the_leading_process(tmp_path: Path) -> None:
    found, names = asyncio.run(page(tmp_path, ReassignmentSettings(mode="batch", parallel_replica_count=3)))
    assert found["holder"] == found["process"]
    assert (found["moves"], found["problem"], found["mode"]) == (0, "", "batch")
    limits = found["limits"]
    assert isinstance(limits, dict)
    assert limits["parallel_replica_count"] == 3
    assert {"sluice_reassignments", "sluice_reassignment_ends"} <= names


LISTENER = {"bootstrap_port": 19090, "first_broker_port": 19100}


def config(journal: str, mode: str = "batch") -> Config:
    tables = {
        "cluster": {"bootstrap": "127.0.0.1:1"},
        "listeners": [LISTENER],
        "reassignment": {"mode": mode, "journal": journal},
    }
    return parse(tables, Source(), Path("/"))


def made(found: Config) -> Reassignments | None:
    stats = Stats()
    client = BrokerClient(BrokerMap((), stats))
    start = asyncio.get_running_loop().create_task
    access = Access([("127.0.0.1", 1)])
    return make_reassignments(found, client, start, read_beside, stats, lambda: access, lambda: None)


async def test_passing_has_no_executor() -> None:
    assert made(config("topic", "pass")) is None


async def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(StartError, match=r'\[reassignment\] journal = "topic": aiokafka is not installed'):
        made(config("topic"))


async def test_topic_that_cannot_be_reached_is_a_problem_with_a_metric() -> None:
    found = made(config("topic"))
    assert found is not None
    found.start()
    running = asyncio.get_running_loop().create_task(found.run())
    try:
        async with asyncio.timeout(30):
            while "127.0.0.1:1" not in str((await found.page())["problem"]):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.05)
        page = await found.page()
        assert (page["leads"], page["holder"], page["moves"]) == (False, "", 0)
        rows = {family.name: dict(family.rows) for family in found.families()}
        assert rows["sluice_reassignment_topic_problem"][("unreachable",)] == 1
        assert rows["sluice_reassignment_forwarded"][("answered",)] == 0
        assert not any(rows["sluice_reassignment_topic_records"].values())
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.to_thread(found.close)


async def test_journal_on_files_reports_nothing_of_a_topic(tmp_path: Path) -> None:
    found = made(config(str(tmp_path)))
    assert found is not None
    found.start()
    assert not any("topic" in family.name for family in found.families())
    found.close()
