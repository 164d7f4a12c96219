"""Recordings do not depend on the order in which rows of several connections and portions come."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.backtest.recording import Assembly, Recording, Rows, pack

FIELDS = ("offsets", "first_us", "group_ms", "sizes", "service_us", "gap_us", "consumes", "end_us")
LIMITERS, CONNECTIONS = 3, 4
Drawn = tuple[int, int, int, int, int, bool, bool]
# Whose row it is, how long after the one before, size, service time, whether it was held and throttled.
ROW = st.tuples(
    st.integers(0, LIMITERS - 1),
    st.integers(0, CONNECTIONS - 1),
    st.integers(0, 3_000_000),
    st.integers(0, 100_000),
    st.integers(-1, 700_000),
    st.booleans(),
    st.booleans(),
)
PORTIONS = st.lists(st.integers(1, 80), max_size=6)


def rows_of(drawn: list[Drawn]) -> Rows:
    """Rows as they were captured: by time, connections mixed; connection 2 has a group, limiter 1 consumes."""
    columns = np.array(drawn, dtype=np.int64).T
    limiter, connection, gap_us, size, service_us, held, throttled = columns
    return Rows(
        limiter=limiter,
        connection=connection,
        seq=np.arange(len(drawn)) * 3,
        at_us=np.cumsum(gap_us),
        sizes=size,
        service_us=service_us,
        delay_us=held * 300_000,
        throttle_us=throttled * 500_000,
        group_ms=(connection == 2) * 10_000,
        consumes=limiter == 1,
    )


def assembled(*portions: Rows) -> dict[int, Recording | None]:
    assembly = Assembly()
    for portion in portions:
        if len(portion.seq):
            assembly.add(pack(portion))
    assert assembly.limiters() == sorted({int(n) for portion in portions for n in portion.limiter})
    found = dict(assembly.recordings())
    assert list(assembly.recordings()) == [], "it is empty"
    assert list(found) == sorted(found)
    return found


def taken(rows: Rows, which: np.ndarray) -> Rows:
    return Rows._make(column[which] for column in rows)


def same(one: Recording | None, other: Recording | None) -> bool:
    assert one is not None
    assert other is not None
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in FIELDS)


@given(st.lists(ROW, min_size=1, max_size=80), PORTIONS, st.data())
@settings(max_examples=200, deadline=None)
def test_portions_may_come_in_any_order(drawn: list[Drawn], cuts: list[int], data: st.DataObject) -> None:
    rows = rows_of(drawn)
    whole = assembled(taken(rows, np.lexsort((rows.seq, rows.connection, rows.limiter))))
    ends = [0, *sorted(min(cut, len(drawn)) for cut in cuts), len(drawn)]
    portions = [taken(rows, np.arange(begin, end)) for begin, end in pairwise(ends)]
    found = assembled(*data.draw(st.permutations(portions)))
    assert found.keys() == whole.keys()
    assert all(same(found[limiter], whole[limiter]) for limiter in whole)


@given(st.lists(ROW, min_size=1, max_size=30), PORTIONS, st.data())
@settings(max_examples=200, deadline=None)
def test_rows_in_any_order_are_the_same_recording_or_none(
    drawn: list[Drawn], cuts: list[int], data: st.DataObject
) -> None:
    rows = rows_of(drawn)
    whole = assembled(rows)
    mixed = taken(rows, np.array(data.draw(st.permutations(range(len(drawn))))))
    ends = [0, *sorted(min(cut, len(drawn)) for cut in cuts), len(drawn)]
    found = assembled(*(taken(mixed, np.arange(begin, end)) for begin, end in pairwise(ends)))
    assert found.keys() == whole.keys()
    assert all(made is None or same(made, whole[limiter]) for limiter, made in found.items())
