"""The journal as the loop sees it: what clients are shown of each move."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.messages.reassignments import Ongoing, Stepping
from proxy.channel import ShownMove
from proxy.control.reassign.file_journal import FileJournal
from proxy.control.reassign.journal import AsyncJournal, DamagedError, Entry, PendingRequest, Record
from quotas.reassignment.step import PartitionState, Step

KEY = ("t", 0)
STEP = Step("t", 0, (3, 1), (3,), (2,), 3, (1, 2), 1)
ENTRY = Entry("t", 0, "id", (1, 2), (3, 4), step=STEP)
MOVING = PartitionState((3, 1, 2), (1, 2), 1, (3,), (2,), 1)
HALF = PartitionState((3, 1), (1, 3), 3, (), (), 1)


def shown(directory: Path, entry: Entry, now: PartitionState | None) -> ShownMove:
    async def run() -> ShownMove:
        journal = AsyncJournal(FileJournal(directory), "me")
        journal.partitions = {} if now is None else {KEY: now}
        await journal.append([entry])
        return journal.shown.moves[KEY]

    return asyncio.run(run())


def test_move_is_shown_as_kafka_lists_one(tmp_path: Path) -> None:
    assert shown(tmp_path, ENTRY, MOVING) == (Ongoing((3, 4, 1, 2), (3, 4), (1, 2)), Stepping((1, 2), (3, 1)))


@pytest.mark.parametrize("now", [HALF, None])
def test_step_is_shown_only_while_it_is_under_way(tmp_path: Path, now: PartitionState | None) -> None:
    assert shown(tmp_path, ENTRY, now).step is None


def test_request_that_is_not_judged_is_shown_too(tmp_path: Path) -> None:
    entry = Entry("t", 0, "id", (1, 2), asked=PendingRequest((3, 4), False, STEP, "p/1"))
    assert shown(tmp_path, entry, MOVING).ongoing == Ongoing((3, 4, 1, 2), (3, 4), (1, 2))


def test_cancelled_move_shows_what_is_undone(tmp_path: Path) -> None:
    back = replace(ENTRY, target=(1, 2), cancelled=True)
    assert shown(tmp_path, back, HALF).ongoing == Ongoing((1, 2, 3), (2,), (3,))


def test_others_moves_are_shown_when_they_are_read(tmp_path: Path) -> None:
    async def run() -> None:
        one, other = AsyncJournal(FileJournal(tmp_path), "one"), AsyncJournal(FileJournal(tmp_path), "other")
        records: list[Record] = [ENTRY]
        await one.append(records)
        assert not other.shown.moves
        await other.read()
        assert set(other.shown.moves) == {KEY}

    asyncio.run(run())


def test_damage_is_a_problem_until_it_is_set_aside(tmp_path: Path) -> None:
    async def run() -> None:
        journal = AsyncJournal(FileJournal(tmp_path), "me")
        await journal.append([ENTRY])
        path = tmp_path / "journal"
        path.write_bytes(path.read_bytes() + b"garbage\n")
        with pytest.raises(DamagedError):
            await journal.read()
        assert "line 2" in journal.problem
        await journal.recover()
        assert journal.problem == ""
        assert journal.state.entries[KEY].unsure

    asyncio.run(run())
