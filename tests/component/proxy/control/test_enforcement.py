"""The switch of all enforcement: applied, told, kept over a restart, and what a damaged file does."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from proxy.control.enforcement import Enforcement, EnforcementFile
from proxy.events import Event
from proxy.events.kinds import By
from proxy.system.stats import Stats

OPS = By("ops", "10.0.0.4")


class Rig:
    """One start of the process."""

    def __init__(self, directory: Path | None) -> None:
        self.applied: list[bool] = []
        self.events: list[Event] = []
        self.stats = Stats()
        file = None if directory is None else EnforcementFile(directory)
        self.enforcement = Enforcement(file, self.applied.append, self.stats, self.events.append)


def run(directory: Path | None, act: Callable[[Enforcement], Awaitable[object]]) -> Rig:
    async def started() -> Rig:
        rig = Rig(directory)
        await rig.enforcement.load()
        await act(rig.enforcement)
        return rig

    return asyncio.run(started())


async def off(enforcement: Enforcement) -> None:
    assert await enforcement.switch(enforcing=False, by=OPS, why="on fire")


async def nothing(_: Enforcement) -> None: ...


def test_off_is_kept_over_a_restart_and_said_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = run(tmp_path / "state", off)
    assert (first.applied, first.enforcement.problem) == ([False], "")
    assert first.stats.enforcement_state == {"written": 1}
    assert [event.text for event in first.events] == [
        "Enforcement was switched off by ops from 10.0.0.4: on fire."
    ]
    caplog.clear()
    again = run(tmp_path / "state", nothing)
    assert again.applied == [False]
    assert again.stats.enforcement_off
    assert again.enforcement.switched == first.enforcement.switched
    assert "on fire" in again.enforcement.notice()
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.WARNING, "enforcement is still switched off")
    ]


def test_on_again_is_kept_too(tmp_path: Path) -> None:
    run(tmp_path, off)

    async def on(enforcement: Enforcement) -> None:
        assert await enforcement.switch(enforcing=True, by=OPS, why="")
        assert not await enforcement.switch(enforcing=True, by=OPS, why="")

    second = run(tmp_path, on)
    assert second.applied == [False, True]
    assert len(second.events) == 1
    third = run(tmp_path, nothing)
    assert (third.applied, third.enforcement.on, third.enforcement.notice()) == ([], True, "")


def test_signal_switches_and_keeps_it(tmp_path: Path) -> None:
    async def signalled(enforcement: Enforcement) -> None:
        enforcement.toggle()
        await enforcement.keep()

    assert "SIGUSR1" in run(tmp_path, signalled).enforcement.notice()
    assert not run(tmp_path, nothing).enforcement.on
    assert run(tmp_path, signalled).enforcement.on


def test_without_a_directory_it_is_said_that_it_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    rig = run(None, off)
    assert rig.applied == [False]
    assert rig.enforcement.problem == "[state] directory is not configured"
    assert "whether enforcement is switched off is not kept over a restart" in caplog.messages


def test_switch_holds_where_the_disk_refuses_it(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the directory's place")
    rig = run(tmp_path / "state", off)
    assert rig.applied == [False]
    assert rig.enforcement.problem
    assert rig.stats.enforcement_state["not_written"] == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "[" * 100_000, "\xff", "9" * 5000),
        '{"enforcing": "false", "at": 1}',
        '{"enforcing": false}',
        '{"enforcing": false, "at": 1e999}',
        json.dumps({"enforcing": False, "at": 1, "reason": "a" * 100_000}),
    ],
)
def test_damaged_file_means_enforcing_and_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = EnforcementFile(tmp_path).path
    path.write_bytes(text.encode("latin-1"))
    rig = run(tmp_path, nothing)
    assert (rig.applied, rig.enforcement.on) == ([], True)
    assert rig.stats.enforcement_state == {"unreadable": 1}
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert run(tmp_path, off).enforcement.problem == ""  # and it can be switched all the same


def test_directory_in_the_files_place_means_enforcing(tmp_path: Path) -> None:
    EnforcementFile(tmp_path).path.mkdir()
    rig = run(tmp_path, nothing)
    assert rig.enforcement.on
    assert rig.stats.enforcement_state == {"unreadable": 1}
