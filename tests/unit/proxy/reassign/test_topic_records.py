"""The journal's records in a topic: keys that compaction keeps apart, values that belong to them."""

import pytest

from proxy.control.reassign.journal import Ended, EndedTotals, Entry, LineError, Term
from proxy.control.reassign.topic_journal import (
    FENCE,
    read_key,
    read_value,
    write_fence,
    write_records,
)
from proxy.topics.records import Record

ENTRY = Entry("t.x", 12, "ab" * 16, (1, 2), (3, 4))
TERM = Term(3, "me")
TOTALS = EndedTotals(1, 2, 3, 4)


def test_append_ends_with_term_and_totals() -> None:
    records = write_records([ENTRY, Ended("u", 0, "done"), Term(9, "other")], TERM, TOTALS, 10)
    assert [record.key for record in records] == [b"move/t.x/12", b"move/u/0", b"term"]
    assert records[1].value is None
    places = [read_key(record.key) for record in records]
    assert places == [("t.x", 12), ("u", 0), None]
    assert read_value(places[0], records[0].value or b"") == (11, ENTRY)
    # Three records after the tenth, and one for the term.
    assert read_value(None, records[2].value or b"") == (14, Term(3, "me", TOTALS))


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"move/",
        b"move/t",
        b"move/t/",
        b"move/t/-1",
        b"move/t/\xc2\xb2",
        b"other",
        b"move/t/" + b"1" * 400,
    ],
)
def test_key_of_something_else_is_refused(key: bytes | None) -> None:
    with pytest.raises(LineError):
        read_key(key)


def test_value_of_another_key_is_refused() -> None:
    entry, term = write_records([ENTRY], TERM, TOTALS, 0)
    for place, value in (
        (("t.x", 13), entry.value),
        (None, entry.value),
        (("t.x", 12), term.value),
        (("t.x", 12), b"junk"),
        (("t.x", 12), b"x" * 100_000),
    ):
        with pytest.raises(LineError):
            read_value(place, value or b"")


def test_move_that_is_too_large_is_refused() -> None:
    with pytest.raises(LineError, match="longer than"):
        write_records([Entry("t", 0, "id", tuple(range(20_000)))], TERM, TOTALS, 0)


def test_mark_names_its_process() -> None:
    assert write_fence("host:1:ab") == Record(FENCE, b"host:1:ab")
