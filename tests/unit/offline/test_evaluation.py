"""Scores, baselines and intervals, with numbers that can be counted."""

import numpy as np
import pytest

from offline.advice.evaluation import (
    BASELINES,
    ORACLE,
    RECOMMENDERS,
    SLUICE,
    STEPS,
    Days,
    Score,
    interval,
    judged,
    origins,
    scores,
    waited_at,
)

DAY_S = 1000.0


def days(
    needs: list[float], minutes: list[list[float]] | None = None, held: list[float] | None = None
) -> Days:
    """A client that waits for the rest of the day where its quota is below its need: 1 - quota / need of it."""
    count = len(needs)
    found = np.array(needs, np.float64)
    return Days(
        day_s=DAY_S,
        needs=found,
        recorded=found,
        waits=np.tile(DAY_S * np.maximum(0.0, 1 - STEPS), (count, 1)),
        minutes=[np.array(each) for each in (minutes or [[need] for need in needs])],
        held=np.array(held or [1.0] * count),
        misbehaves=judged(found),
    )


def said(found: list[Score], recommender: str, horizon: int = 1) -> list[Score]:
    return [
        score
        for score in found
        if (score.recommender, score.horizon, score.factor) == (recommender, horizon, 1.0)
    ]


def test_slack_and_waits_of_the_baselines() -> None:
    found = scores(days([1e6, 2e6, 4e6]))
    # After two days: 1.1 x 2 MB/s where 4 are needed: 45 % of the day is waited.
    second = said(found, "maximum x 1.1")[1]
    assert (second.origin, second.slack, second.hurt) == (2, 0.0, 1.0)
    assert second.quota == pytest.approx(2.2e6)
    assert second.waited == pytest.approx(0.45, abs=0.01)
    oracle = said(found, ORACLE)[1]
    assert (oracle.quota, oracle.slack, oracle.hurt) == (4e6, 0.0, 0.0)


def test_baselines_are_what_their_names_say() -> None:
    made = days([1e6, 8e6, 2e6], [[1e5] * 99 + [1e6], [2e5] * 100, [4e5] * 100])
    assert BASELINES["maximum x 1.1"](made, 3) == pytest.approx(8.8e6)
    assert BASELINES["last week's"](made, 1) == 1e6
    assert BASELINES["last week's"](days([9e6, *[1e6] * 7]), 8) == 1e6
    # 300 minutes: the 99th percentile is 400 kB/s.
    assert BASELINES["p99 of a minute x 1.5"](made, 3) == pytest.approx(6e5)
    # Weights 1/4, 1/2, 1 of each 100 minutes: 57 % of them are the last day's.
    assert BASELINES["decaying histogram"](made, 3) == pytest.approx(1.15 * 4e5)


def test_week_is_scored_where_it_was_recorded_to_its_end() -> None:
    found = scores(days([1e6] * 10))
    assert {score.origin for score in said(found, SLUICE, horizon=7)} == {1, 2, 3}
    assert {score.origin for score in said(found, SLUICE)} == set(range(1, 10))


def test_origins_end_with_the_recording() -> None:
    assert origins(8) == [(1, 1), (1, 7), *((origin, 1) for origin in range(2, 8))]


def test_days_without_traffic_or_throttled_are_not_scored() -> None:
    found = scores(days([0, 1e6, 0, 1e6, 1e6], held=[1, 1, 1, 1, 1.5]))
    assert [score.origin for score in said(found, SLUICE)] == [3]


def test_hog_is_scored_apart() -> None:
    found = scores(days([1e6] * 4 + [2e7] * 2))
    bad = [score for score in found if not score.behaves and score.horizon == 1]
    assert {score.recommender for score in bad} == set(RECOMMENDERS)
    by_name = {(score.recommender, score.origin): score.hurt for score in bad}
    # The maximum holds it back on the first day only; the advice does not follow it.
    assert (by_name["maximum x 1.1", 4], by_name["maximum x 1.1", 5]) == (1.0, 0.0)
    assert (by_name[SLUICE, 4], by_name[SLUICE, 5]) == (1.0, 1.0)
    assert {score.origin for score in said(found, SLUICE) if score.behaves} == {1, 2, 3}


def test_multiples_are_a_front() -> None:
    found = [score for score in scores(days([1e6, 1e6, 1e6])) if score.recommender == "last week's"]
    points = sorted(
        (score.factor, score.slack, score.waited)
        for score in found
        if score.origin == 2 and score.horizon == 1
    )
    assert [slack for _, slack, _ in points] == sorted(slack for _, slack, _ in points)
    assert [waited for *_, waited in points] == sorted((waited for *_, waited in points), reverse=True)
    # A quarter of the need is three quarters of the day; eight times the need is 7 / 8 not needed.
    assert points[0][:2] == (0.25, 0.0)
    assert points[0][2] == pytest.approx(0.75, abs=0.01)
    assert points[-1] == (8.0, 0.875, 0.0)


def test_interval_is_by_client() -> None:
    # One client of four is hurt on all of its ten days: draws of clients vary, more days of the same ones do not help.
    hurt = interval(np.array([10.0, 0, 0, 0]), np.full(4, 10.0))
    assert (hurt.mean, hurt.low, hurt.high) == (0.25, 0.0, 0.75)
    assert interval(np.array([10.0, 0, 0, 0]), np.full(4, 10.0)) == hurt


def test_front_is_flat_beyond_its_ends() -> None:
    front = [(0.1, 0.4), (0.5, 0.0)]
    assert [waited_at(slack, front) for slack in (0.0, 0.3, 0.9)] == [0.4, 0.2, 0.0]
