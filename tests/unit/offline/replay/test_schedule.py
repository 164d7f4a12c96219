"""The schedule: times, connections and their order."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.replay.schedule import Recorded, plan
from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.unit.offline.replay.rows import recorded

MS = 1000


def due(*rows: Recorded, speed: float = 1.0) -> list[int]:
    """When requests are sent, in ms."""
    return [send.due_us // MS for send in plan(rows, speed).sends]


def test_requests_are_due_as_they_came() -> None:
    rows = [recorded(seq=0, mono_us=5_000 * MS), recorded(seq=1, mono_us=5_250 * MS)]
    assert (due(*rows), due(*rows, speed=2.0)) == ([0, 250], [0, 125])
    assert plan(rows, 0.5).seconds == 0.5


@pytest.mark.parametrize(
    ("second", "at_ms"),
    [
        ({"seq": 1, "mono_us": 6_000 * MS, "delay_ms": 900}, 100),
        ({"seq": 1, "mono_us": 5_010 * MS, "delay_ms": 500}, 0),
        ({"process": "q", "mono_us": 99_000 * MS, "wall_ms": 10_400}, 400),
        ({"seq": 1, "mono_us": 5_100 * MS, "wall_ms": 999_000}, 100),
    ],
    ids=[
        "delayed: when it arrived",
        "delayed for too long: in its connection's order",
        "processes: by their wall time",
        "step of the wall clock: no change",
    ],
)
def test_second_request_is_due(second: dict[str, Any], at_ms: int) -> None:
    row = {"seq": 0, "mono_us": 5_000 * MS, "wall_ms": 10_000}
    assert due(recorded(**row), recorded(**row | second)) == [0, at_ms]


def test_each_recorded_connection_is_one_connection() -> None:
    rows = [
        recorded(connection=7, broker=2),
        recorded(connection=9, broker=1),
        recorded(connection=7, seq=1, broker=2),
        recorded(process="q", connection=7, broker=3),
    ]
    found = plan(rows, 1.0)
    assert found.brokers == [2, 1, 3]
    assert sorted(send.connection for send in found.sends) == [0, 0, 1, 2]


def test_sasl_is_not_sent_again() -> None:
    rows = [
        recorded(seq=0, api_key=SASL_HANDSHAKE),
        recorded(seq=1, api_key=SASL_AUTHENTICATE),
        recorded(seq=2),
    ]
    found = plan(rows, 1.0)
    assert ([send.request.seq for send in found.sends], found.left_out) == ([2], 2)


def test_only_the_seconds_asked_for_are_planned() -> None:
    rows = [recorded(seq=seq, mono_us=seq * 1_000_000) for seq in range(5)]
    found = plan(rows, 10.0, seconds=2.0)
    assert ([send.request.seq for send in found.sends], found.left_out) == ([0, 1], 3)


def test_plan_of_no_requests_is_empty() -> None:
    assert plan([], 1.0) == ([], [], 0)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 10**9), st.integers(0, 20_000), st.sampled_from("pq")),
        max_size=40,
    ),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_order_of_a_connection_is_kept_whatever_the_times(
    entries: list[tuple[int, int, int, str]], speed: float
) -> None:
    rows = [
        recorded(process=process, connection=number, seq=seq, mono_us=mono_us, delay_ms=delay_ms)
        for seq, (number, mono_us, delay_ms, process) in enumerate(entries)
    ]
    sends = plan(rows, speed).sends
    assert len(sends) == len(rows)
    assert all(before.due_us <= after.due_us for before, after in pairwise(sends))
    assert not sends or sends[0].due_us == 0
    for number in {send.connection for send in sends}:
        seqs = [send.request.seq for send in sends if send.connection == number]
        assert seqs == sorted(seqs)
