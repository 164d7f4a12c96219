"""The backtest's fast path against the engine that the proxy runs: decision for decision, to the millisecond."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.backtest.outcomes import backtest, decisions
from quotas.backtest.recording import Recording, recording_of
from quotas.options import EngineOptions
from tests.support.backtest_reference import decisions_of_the_engine

SETTINGS = settings(max_examples=60, deadline=None)

# Gaps around sample and window lengths are where samples turn over; small ones make channels meet.
GAPS_US = st.one_of(
    st.just(0), st.integers(0, 5_000), st.integers(900_000, 1_100_000), st.integers(0, 14_000_000)
)
SIZES = st.one_of(
    st.sampled_from([0, 100, 16_384, 100_000, 1_000_000]),
    st.integers(0, 3_000_000),
    st.integers(0, 60_000_000),
)
SERVICE_US = st.one_of(st.integers(0, 20_000), st.integers(0, 700_000))
REQUESTS = st.tuples(GAPS_US, SIZES, SERVICE_US)
CHANNELS = st.lists(st.lists(REQUESTS, min_size=1, max_size=25), min_size=1, max_size=6)
LIMITS = st.sampled_from([1.0, 10_000.0, 333_333.0, 1_000_000.0, 7.5e6, 1e9])


def recording(channels: list[list[tuple[int, int, int]]], consumes: bool, group_ms: list[int]) -> Recording:
    rows: list[tuple[int, int, int, int, int]] = []
    for number, requests in enumerate(channels):
        at_us = number * 1700
        for gap_us, size, service_us in requests:
            at_us += gap_us
            rows.append((number, at_us, size, service_us, group_ms[number % len(group_ms)]))
    connection, at, sizes, service, group = (
        np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)
    )
    return recording_of(
        connection=connection, at_us=at, sizes=sizes, service_us=service, consumes=consumes, group_ms=group
    )


@pytest.mark.parametrize("consumes", [False, True])
@pytest.mark.parametrize("policy", ["kip13", "schedule"])
@given(data=st.data())
@SETTINGS
def test_every_decision_is_the_engines(policy: str, consumes: bool, data: st.DataObject) -> None:
    made = recording(
        data.draw(CHANNELS),
        consumes,
        data.draw(st.lists(st.sampled_from([0, 0, 10_000, 45_000]), min_size=1)),
    )
    options = EngineOptions(
        policy="kip13" if policy == "kip13" else "schedule",
        window_samples=data.draw(st.sampled_from([2, 11, 61])),
        window_seconds=data.draw(st.sampled_from([0.1, 1.0])),
        burst_seconds=data.draw(st.sampled_from([0.0, 1.0, 3.0])),
        hold_seconds_max=data.draw(st.sampled_from([0.0, 2.0, 15.0])),
        mute_seconds_max=data.draw(st.sampled_from([0.5, 20.0, 1e6])),
        new_connections=data.draw(st.sampled_from(["held", "as-kafka"])),
    )
    limit = data.draw(LIMITS)
    # A hold asks again and again: not for hours.
    limit = max(limit, float(made.sizes.sum() // 600))
    theirs = decisions_of_the_engine(made, limit, options)
    ours = decisions(made, limit, options, most=len(theirs) + 1)
    assert ours == theirs


@given(channels=CHANNELS, consumes=st.booleans(), limit=LIMITS)
@settings(max_examples=60, deadline=None)
def test_totals_agree_with_the_decisions(
    channels: list[list[tuple[int, int, int]]], consumes: bool, limit: float
) -> None:
    made = recording(channels, consumes, [0])
    options = EngineOptions(mute_seconds_max=5.0, new_connections="as-kafka")
    theirs = decisions_of_the_engine(made, limit, options)
    found = backtest(made, [limit, limit], options, start_s=0, seconds=30)
    assert found.each[0] == found.each[1]  # a candidate leaves nothing behind for the next one
    assert found.each[0].requests == sum(map(len, channels))
    assert found.each[0].bytes == int(made.sizes.sum())
    assert int(found.load[0].sum()) + found.each[0].bytes_late == found.each[0].bytes
    assert found.each[0].throttle_ms == sum(decided.throttle_ms for decided in theirs)
