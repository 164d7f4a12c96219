"""The journal's records in a compacted topic: a line of the file journal as the value, and a key for compaction. Pure.

    move/TOPIC/PARTITION   the move as it is now; a tombstone when it has ended
    term                   the executor's term and the totals of ended moves; the last record of each append
    fence                  the process that has begun to append

The number of an append's last line is the journal's sequence; so a reader needs no record that compaction may remove.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from proxy.reassign.entries import (
    LINE_BYTES_MAX,
    Ended,
    EndedTotals,
    Entry,
    LineError,
    Term,
    read_line,
    write_line,
)
from proxy.reassign.entries import Record as JournalRecord
from proxy.topics.records import Record
from quotas.reassignment.step import TopicPartition

FENCE: Final = b"fence"
_TERM: Final = b"term"
_MOVE: Final = b"move/"
_KEY_BYTES_MAX: Final = 300
_NAME_BYTES_MAX: Final = 300

# The move of a partition, or None for the term.
Found: TypeAlias = TopicPartition | None


def write_records(
    records: Sequence[JournalRecord], term: Term, totals: EndedTotals, sequence: int
) -> list[Record]:
    """Encode what is appended at once, with the term and the totals that apply after it.

    Args:
        sequence: of the last append.

    Raises:
        LineError: a move is too large.
    """
    found = []
    for record in records:
        sequence += 1
        if isinstance(record, Ended):
            found.append(Record(_key(record.key), None))
        elif isinstance(record, Entry):
            found.append(Record(_key(record.key), _line(sequence, record)))
    found.append(Record(_TERM, _line(sequence + 1, replace(term, over=totals))))
    return found


def write_fence(process: str) -> Record:
    """Encode the record by which a process begins to append."""
    return Record(FENCE, process.encode()[:_NAME_BYTES_MAX])


def read_key(key: bytes | None) -> Found:
    """Decode a key, which is not FENCE.

    Raises:
        LineError: it is not one of the journal's.
    """
    if key == _TERM:
        return None
    if key is None or not key.startswith(_MOVE) or len(key) > _KEY_BYTES_MAX:
        raise LineError("a key that is not the journal's")
    topic, slash, number = key[len(_MOVE) :].decode("utf-8", "replace").rpartition("/")
    if not slash or not (number.isascii() and number.isdecimal()):
        raise LineError("a key that is not a partition")
    return topic, int(number)


def read_value(place: Found, value: bytes) -> tuple[int, Entry | Term]:
    """Decode a value; returns its sequence too.

    Raises:
        LineError: it is damaged, or belongs to another key.
    """
    if len(value) > LINE_BYTES_MAX:
        raise LineError(f"{len(value)} bytes are more than {LINE_BYTES_MAX}")
    sequence, record = read_line(value)
    if isinstance(record, Entry) and record.key == place:
        return sequence, record
    if isinstance(record, Term) and place is None:
        return sequence, record
    raise LineError("a value of another key")


def _key(place: TopicPartition) -> bytes:
    return b"%s%s/%d" % (_MOVE, place[0].encode(), place[1])


def _line(sequence: int, record: JournalRecord) -> bytes:
    line = write_line(sequence, record)[:-1]
    if len(line) > LINE_BYTES_MAX:
        raise LineError(f"a move of {len(line)} bytes is longer than {LINE_BYTES_MAX}")
    return line
