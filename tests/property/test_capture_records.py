"""Rows that went through records and columns are the rows that a channel made, whatever they hold (docs/capture.md)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api import FETCH, HEARTBEAT, PRODUCE
from proxy.capture.recorder import QUOTAS, Records
from proxy.capture.tables import Tables
from proxy.channel import Head, Row, RowOrigin, complete_frame
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import code

OFFSET_NS = 1_700_000_000_123_456_789
TOPIC_ID = bytes(range(16))
KNOWN = {TOPIC_ID: "orders"}

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
COUNT = st.integers(-1, 2**31 - 1)
NANOSECONDS = st.integers(0, 2**62)
TEXT = st.text(max_size=5) | st.just("\udc80")
ORIGINS = st.builds(RowOrigin, st.integers(0, 2**40), TEXT, TEXT, INT32, TEXT, TEXT)
TOPICS = st.sampled_from((b"", b"a", b"\xff", TOPIC_ID, bytes(16), b"0123456789abcdef"))
PARTITIONS = st.lists(st.tuples(TOPICS, INT32, st.integers(0, 2**40), COUNT), max_size=4)


@st.composite
def rows_of(draw: st.DrawFn, origins: list[RowOrigin]) -> list[Any]:
    head = (
        draw(st.integers(0, 300)),
        draw(st.sampled_from((PRODUCE, FETCH, HEARTBEAT))),
        draw(st.sampled_from((0, 9, 12, 13, 16))),
        draw(INT32),
        draw(INT16),
    )
    times = draw(NANOSECONDS), draw(NANOSECONDS)
    numbers = draw(COUNT), draw(st.integers(0, 2**62) | st.just(-1000)), draw(COUNT), draw(COUNT)
    partitions = draw(st.just(()) | PARTITIONS)
    made = [head, draw(st.sampled_from(origins)), draw(COUNT), *times, *numbers]
    return [*made, draw(st.sampled_from(QUOTAS)), draw(COUNT), partitions]


def escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def topic(raw: bytes, version: int) -> str:
    if version < 13 or len(raw) != 16:
        return raw.decode("utf-8", "backslashreplace")
    return KNOWN.get(raw) or raw.hex()


def published(row: list[Any]) -> dict[str, Any]:
    """The columns of a row, one by one, as `protocol.capture` defines them."""
    head, origin = row[Row.HEAD], row[Row.ORIGIN]
    version = head[Head.API_VERSION]
    has_class = head[Head.API_KEY] in (PRODUCE, FETCH)
    return {
        "wall_ms": (row[Row.HANDLED_NS] + OFFSET_NS) // 1_000_000,
        "mono_us": row[Row.HANDLED_NS] // 1000,
        "process": "run",
        "connection": origin.connection,
        "seq": row[Row.SEQ],
        "principal": escaped(origin.principal),
        "client_id": escaped(origin.client_id),
        "ip": escaped(origin.ip),
        "listener": escaped(origin.listener),
        "broker": origin.broker,
        "api_key": head[Head.API_KEY],
        "api_version": version,
        "request_bytes": head[Head.REQUEST_BYTES],
        "response_bytes": row[Row.RESPONSE_BYTES],
        "upstream_us": -1 if row[Row.UPSTREAM_NS] == -1000 else row[Row.UPSTREAM_NS] // 1000,
        "throttle_ms": row[Row.THROTTLE_MS],
        "delay_ms": row[Row.DELAY_MS],
        "quota": row[Row.QUOTA],
        "mutations": row[Row.MUTATIONS],
        "partitions": [
            {"topic": topic(raw, version), "partition": index, "bytes": size, "records": records}
            for raw, index, size, records in row[Row.PARTITIONS]
        ],
        "class": escaped(code(None, origin.client_id)) if has_class else "",
    }


@settings(deadline=None)
@given(st.data())
def test_records_give_the_rows_that_were_made(data: st.DataObject) -> None:
    origins = data.draw(st.lists(ORIGINS, min_size=1, max_size=3))
    rows = data.draw(st.lists(rows_of(origins), min_size=1, max_size=8))
    records, tables = Records(), Tables("run", KNOWN.get, Definitions().limit)
    for _ in range(2):  # the buffer is used again
        for row in rows:
            records.add(row)
        assert len(records) == len(rows)
        batch = records.cut(OFFSET_NS, len(rows))
        assert tables.convert(batch).to_pylist() == [published(row) for row in rows]
        halves = [tables.convert(part).to_pylist() for part in batch.halves() if part.rows]
        assert [found for half in halves for found in half] == [published(row) for row in rows]


@settings(deadline=None)
@given(st.data())
def test_frames_stay_with_their_rows(data: st.DataObject) -> None:
    origins = data.draw(st.lists(ORIGINS, min_size=1, max_size=2))
    rows = data.draw(st.lists(rows_of(origins), min_size=2, max_size=6))
    records, tables = Records(), Tables("run", KNOWN.get, Definitions().limit, frames=True)
    for row in rows:
        size = row[Row.HEAD][Head.REQUEST_BYTES] + 4
        row.append(data.draw(st.sampled_from((b"", bytes(size), bytearray(size), bytearray(size - 1)))))
        records.add_with_frame(row)
    expected = [complete_frame(row[Row.FRAME], row[Row.HEAD][Head.REQUEST_BYTES]) for row in rows]
    batch = records.cut(OFFSET_NS, len(rows))
    assert tables.convert(batch)["frame"].to_pylist() == expected
    halves = [tables.convert(half)["frame"].to_pylist() for half in batch.halves()]
    assert [frame for half in halves for frame in half] == expected


@pytest.mark.parametrize("unfit", [[None] * 12, [1]])
def test_row_that_is_no_record_leaves_the_others_whole(unfit: list[Any]) -> None:
    head = (157, PRODUCE, 9, 9, 1)
    origin = RowOrigin(1, "", "", 1, "", "")
    bad: list[Any] = [head, origin, 0, 2**70, 0, 0, 0, 0, 0, "", 0, [(b"lost", 0, 1, 1)]]
    good: list[Any] = [head, origin, 1, 0, 0, 0, 0, 0, 0, "", 0, [(b"kept", 0, 1, 1)]]
    records = Records()
    for row in (unfit, bad, good):
        records.add(row)
    batch = records.cut(0, 3)
    assert (batch.rows, batch.all_rows) == (1, 3)
    (found,) = Tables("run", KNOWN.get, Definitions().limit).convert(batch).to_pylist()
    assert [entry["topic"] for entry in found["partitions"]] == ["kept"]
