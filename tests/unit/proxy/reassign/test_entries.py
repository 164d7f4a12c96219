"""A move as a line of the journal: every line is read as it was written, and nothing else is."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.control.reassign.journal import (
    Ended,
    Entry,
    LineError,
    PendingRequest,
    Record,
    Term,
    read_line,
    write_line,
)
from quotas.reassignment.step import Step

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
ENTRY = Entry("t", 0, "id", (1, 2))
STEP = Step("t", 0, (3, 1), (3,), (2,), 3, (1, 2), 1)


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
    ],
)
def test_right_checksum_over_something_else_is_refused(content: str) -> None:
    text = f"1 {content}".encode()
    with pytest.raises(LineError):
        read_line(b"%08x %s" % (zlib.crc32(text), text))


def test_accepted_request_is_the_move() -> None:
    asked = Entry("t", 0, "id", (1, 2), asked=PendingRequest((3, 4), False, STEP, "p/1"))
    accepted = asked.accepted()
    assert (accepted.target, accepted.step, accepted.asked, accepted.cancelled) == ((3, 4), STEP, None, False)
    assert accepted.move.target == (3, 4)


def test_refused_request_leaves_what_was_before() -> None:
    assert Entry("t", 0, "id", (1, 2), asked=PendingRequest((3, 4), False, STEP, "p/1")).rejected() is None
    before = Entry("t", 0, "id", (1, 2), target=(3, 4), step=STEP)
    asked = Entry("t", 0, "id", (1, 2), (3, 4), asked=PendingRequest((1, 2), True, None, "p/1"), step=STEP)
    assert asked.rejected() == before
    assert asked.wanted == (1, 2)
    assert asked.accepted().cancelled
    assert asked.accepted().step == STEP
