"""What the application gets: pages, metrics and settings, before any broker is there."""

import asyncio
from pathlib import Path

from proxy.config import ReassignmentSettings
from proxy.control.cluster import BrokerClient, BrokerMap
from proxy.control.reassign import Reassignments
from proxy.control.reassign.file_journal import FilePlace
from proxy.system.stats import Stats
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
