"""Sums over the last 10 s, minute and quarter of an hour."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.explain.parts import MINUTE, QUARTER, SECONDS, TEN_SECONDS, Windows

SLOT_MS = (2_000, 10_000, 60_000)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 100), st.integers(0, 400_000)), max_size=60),
    st.integers(0, 1_000_000),
)
def test_each_window_has_what_was_added_within_it(
    additions: list[tuple[int, int, int]], later_ms: int
) -> None:
    windows, now_ms = Windows(3), 5_000_000
    added = []
    for index, amount, pause_ms in additions:
        now_ms += pause_ms
        windows.add(index, float(amount), now_ms)
        added.append((index, amount, now_ms))
    now_ms += later_ms
    for window, seconds in enumerate(SECONDS):
        slot_ms = SLOT_MS[window]
        first_ms = (
            now_ms // slot_ms - seconds * 1000 // slot_ms + 1
        ) * slot_ms  # the oldest slot begins here
        expected = [
            float(sum(amount for index, amount, at in added if index == one and at >= first_ms))
            for one in range(3)
        ]
        assert windows.sums(window, now_ms) == expected


@pytest.mark.parametrize("window", [TEN_SECONDS, MINUTE, QUARTER])
def test_nothing_is_left_after_the_window(window: int) -> None:
    windows = Windows(1)
    windows.add(0, 1.0, 1_000)
    assert windows.sums(window, 1_000) == [1.0]
    assert windows.sums(window, 1_000 + SECONDS[window] * 1000) == [0.0]


def test_clock_that_stands_still_loses_nothing() -> None:
    windows = Windows(1)
    for _ in range(10):
        windows.add(0, 1.0, 7_000)
    assert windows.sums(MINUTE, 7_000) == [10.0]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100_000)), max_size=40), st.integers(0, 1_000_000)
)
def test_slots_since_a_time_have_what_was_added_since_then(
    additions: list[tuple[int, int]], since_ms: int
) -> None:
    windows, now_ms, added = Windows(1), 5_000_000, []
    for amount, pause_ms in additions:
        now_ms += pause_ms
        windows.add(0, float(amount), now_ms)
        added.append((amount, now_ms))
    since_ms += 5_000_000
    for window, slot_ms in enumerate(SLOT_MS):
        first_ms = max(-(-since_ms // slot_ms) * slot_ms, now_ms + 1 - windows.length_ms(window, now_ms))
        expected = float(sum(amount for amount, at in added if at >= first_ms))
        assert sum(amount for (amount,) in windows.slots(window, now_ms, since_ms)) == expected
        assert windows.length_ms(window, now_ms, since_ms) == max(0, now_ms + 1 - first_ms)
