"""Rows as a captured channel makes them, for the tests of what becomes of them."""

from typing import Any

from protocol.api import PRODUCE
from proxy.capture.recorder import Batch, Records
from proxy.channel import RowOrigin

MONO_NS = 5_000_000_000
ORIGIN = RowOrigin(7, "10.0.0.1", "clients", 1, "alice", "c")
TOPIC_ID = bytes(range(16))


def row(seq: int = 0, *, origin: RowOrigin = ORIGIN, version: int = 9, partitions: Any = ()) -> list[Any]:
    """A Produce of 157 bytes, answered in 1.5 ms with 60, that told 40 ms and had waited 3."""
    return [
        (157, PRODUCE, version, 9, 1),
        origin,
        seq,
        MONO_NS + 1000 * seq,
        MONO_NS,
        60,
        1_500_000,
        40,
        3,
        "produce",
        2,
        partitions,
    ]


def batch(*rows: list[Any], wall_minus_mono_ns: int = 0) -> Batch:
    """A batch of these rows; with frames if they have any."""
    records = Records()
    for each in rows:
        (records.add if len(each) == len(row()) else records.add_with_frame)(each)
    return records.cut(wall_minus_mono_ns, len(rows))
