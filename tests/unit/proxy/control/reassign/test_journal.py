"""The journal as the loop sees it: what clients are shown of each move."""

import asyncio
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from protocol.messages.reassignments import Ongoing, Stepping
from proxy.channel import ShownMove
from proxy.control.reassign.file_journal import FileJournal
from proxy.control.reassign.journal import (
    AsyncJournal,
    DamagedError,
    Ended,
    Entry,
    LineError,
    PendingRequest,
    Record,
    Term,
    read_line,
    write_line,
)
from quotas.reassignment.step import PartitionState, Step

STEP = Step("t", 0, (3, 1), (3,), (2,), 3, (1, 2), 1)


KEY = ("t", 0)

ENTRY = Entry("t", 0, "id", (1, 2), (3, 4), step=STEP)
ASKED_FOR = Entry("t", 0, "id", (1, 2), asked=PendingRequest((3, 4), False, STEP, "p/1"))
MOVING = PartitionState((3, 1, 2), (1, 2), 1, (3,), (2,), 1)
HALF = PartitionState((3, 1), (1, 3), 3, (), (), 1)


def shown(directory: Path, entry: Entry, now: PartitionState | None) -> ShownMove:
    async def run() -> ShownMove:
        journal = AsyncJournal(FileJournal(directory), "me")
        journal.partitions = {} if now is None else {KEY: now}
        await journal.append([entry])
        return journal.shown.moves[KEY]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("entry", "now", "ongoing", "step"),
    [
        (ENTRY, MOVING, Ongoing((3, 4, 1, 2), (3, 4), (1, 2)), Stepping((1, 2), (3, 1))),
        (ASKED_FOR, MOVING, Ongoing((3, 4, 1, 2), (3, 4), (1, 2)), Stepping((1, 2), (3, 1))),
        # A step is shown only while it is under way, a cancelled move as what is undone.
        (ENTRY, HALF, Ongoing((3, 4, 1, 2), (3, 4), (1, 2)), None),
        (ENTRY, None, Ongoing((3, 4, 1, 2), (3, 4), (1, 2)), None),
        (replace(ENTRY, target=(1, 2), cancelled=True), HALF, Ongoing((1, 2, 3), (2,), (3,)), None),
    ],
)
def test_move_is_shown_as_kafka_lists_one(
    tmp_path: Path, entry: Entry, now: PartitionState | None, ongoing: Ongoing, step: Stepping | None
) -> None:
    assert shown(tmp_path, entry, now) == (ongoing, step)


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


BROKERS = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
STEPS = st.builds(
    Step,
    topic=st.text(max_size=5),
    partition=st.integers(0, 9),
    replicas=BROKERS,
    adds=BROKERS,
    drops=BROKERS,
    elects=st.none() | st.integers(0, 9),
    current=BROKERS,
    leader=st.integers(-1, 9),
)
ASKED = st.builds(PendingRequest, BROKERS, st.booleans(), st.none() | STEPS, st.text(max_size=5))
ENTRIES = st.builds(
    Entry,
    topic=st.text(max_size=5),
    partition=st.integers(0, 9),
    topic_id=st.text(max_size=5),
    original=BROKERS,
    target=st.none() | BROKERS,
    cancelled=st.booleans(),
    asked=st.none() | ASKED,
    step=st.none() | STEPS,
    unsure=st.booleans(),
)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    ENTRIES,
    st.builds(Ended, st.text(max_size=5), st.integers(0, 9), st.sampled_from(["done", "gone"])),
    st.builds(Term, st.integers(0, 99), st.text(max_size=5)),
)


@given(sequence=st.integers(0, 2**40), record=RECORDS)
def test_line_is_read_as_it_was_written(sequence: int, record: Record) -> None:
    line = write_line(sequence, record)
    assert line.count(b"\n") == 1
    assert read_line(line[:-1]) == (sequence, record)


@given(record=RECORDS, at=st.integers(0, 200), flipped=st.integers(1, 255))
def test_line_with_a_wrong_byte_is_refused(record: Record, at: int, flipped: int) -> None:
    line = bytearray(write_line(7, record)[:-1])
    line[at % len(line)] ^= flipped
    try:
        found = read_line(bytes(line))
    except LineError:
        return
    assert found == (7, record), "upper case of a checksum says the same"


@given(garbage=st.binary(max_size=60))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(LineError):
        read_line(garbage)


WITH_STEP = (
    '{"kind":"entry","topic":"t","partition":0,"topic_id":"","original":[1],"step":{"topic":"t","partition":0,'
    '"replicas":[%d],"adds":[],"drops":[],"elects":null,"current":[1],"leader":%d}}'
)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"kind":"nothing"}',
        '{"kind":"term","number":"1","executor":"a"}',
        '{"kind":"term","number":true,"executor":"a"}',
        '{"kind":"ended","topic":1,"partition":0,"how":"done"}',
        '{"kind":"entry"}',
        json.dumps(
            {"kind": "entry", "topic": "t", "partition": 0, "topic_id": "", "original": "1", "target": None}
            | {"cancelled": False, "asked": 5, "step": [], "unsure": False}
        ),
        # Numbers that Kafka cannot express.
        '{"kind":"entry","topic":"t","partition":1180591620717411303424,"topic_id":"","original":[1]}',
        '{"kind":"entry","topic":"t","partition":0,"topic_id":"","original":[1180591620717411303424]}',
        WITH_STEP % (2147483648, -1),
    ],
)
def test_right_checksum_over_something_else_is_refused(content: str) -> None:
    text = f"1 {content}".encode()
    with pytest.raises(LineError):
        read_line(b"%08x %s" % (zlib.crc32(text), text))


def test_accepted_request_is_the_move() -> None:
    accepted = ASKED_FOR.accepted()
    assert (accepted.target, accepted.step, accepted.asked, accepted.cancelled) == ((3, 4), STEP, None, False)
    assert accepted.move.target == (3, 4)


def test_refused_request_leaves_what_was_before() -> None:
    assert ASKED_FOR.rejected() is None
    asked = replace(ENTRY, asked=PendingRequest((1, 2), True, None, "p/1"))
    assert asked.rejected() == ENTRY
    assert asked.wanted == (1, 2)
    assert asked.accepted().cancelled
    assert asked.accepted().step == STEP


def test_step_without_a_leader_is_a_record() -> None:
    content = f"1 {WITH_STEP % (2, -1)}".encode()
    assert read_line(b"%08x %s" % (zlib.crc32(content), content))[0] == 1
