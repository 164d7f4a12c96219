"""What a client will need: each thing that the forecast knows, on days made for it."""

import numpy as np
import pytest

from offline.advice.forecast import WEEK, forecast

NOISE = (
    1.00,
    1.04,
    0.97,
    1.02,
    0.95,
    1.03,
    0.99,
    1.01,
    0.96,
    1.05,
    0.98,
    1.00,
    1.02,
    0.97,
    1.03,
    0.99,
    1.01,
    0.98,
)


def noisy(needs: list[float]) -> np.ndarray:
    return np.array([need * noise for need, noise in zip(needs, NOISE * 2, strict=False)])


@pytest.mark.parametrize("rate", [1.02, 1.05])
def test_growth_is_followed_to_the_end_of_the_horizon(rate: float) -> None:
    needs = noisy([1e6 * rate**day for day in range(14)])
    next_day, next_week = forecast(needs).quota, forecast(needs, horizon=WEEK).quota
    # On the first of seven days rate^14, on the last one rate^20; half of either quota at most is margin.
    assert 1e6 * rate**14 < next_day < 1.5e6 * rate**14
    assert 1e6 * rate**20 < next_week < 1.5e6 * rate**20


def test_weekend_is_known_from_the_second_week_on() -> None:
    needs = noisy([1e6 if day % WEEK < 5 else 3e5 for day in range(19)])
    saturday, whole_week = forecast(needs), forecast(needs, horizon=WEEK)
    assert "the week's shape" in saturday.grounds
    assert saturday.quota < 7e5
    assert whole_week.quota > 1e6


def test_week_that_is_not_known_yet_is_no_reason_for_less() -> None:
    # On the first Monday: two days at 0.3 MB/s, after five at 1 MB/s.
    assert forecast(noisy([1e6] * 5 + [3e5] * 2)).quota > 1e6


def test_single_burst_is_left_out_and_said() -> None:
    found = forecast(noisy([1e6] * 9 + [6e6] + [1e6] * 3))
    assert found.quota < 2e6
    assert found.grade != "high"
    assert "1 day far above all others left out" in found.grounds


def test_burst_that_comes_again_counts() -> None:
    assert forecast(noisy([1e6] * 4 + [6e6] + [1e6] * 5 + [6e6] + [1e6] * 2)).quota > 6e6


@pytest.mark.parametrize(
    ("times", "days", "followed"), [(5, 3, False), (5, 4, True), (20, 7, False), (20, 8, True)]
)
def test_jump_is_followed_when_it_has_lasted(times: float, days: int, followed: bool) -> None:
    needs = noisy([1e6] * 9 + [1e6 * times] * days)
    assert (forecast(needs).quota > 1e6 * times) is followed


def test_new_client_gets_a_wider_margin() -> None:
    few, many = forecast(noisy([1e6] * 2)), forecast(noisy([1e6] * 14))
    assert few.grade == "low"
    assert many.grade == "high"
    assert few.quota / few.expected > many.quota / many.expected > 1.25


def test_scattered_client_gets_a_wider_margin_and_less_confidence() -> None:
    steady, scattered = (
        noisy([1e6] * 14),
        noisy([1e6, 2e6, 0.7e6, 1.5e6, 1.1e6, 2.5e6, 0.8e6, 1.9e6, 0.9e6, 0.8e6, 2.4e6, 1e6, 1.2e6, 2e6]),
    )
    assert (
        forecast(scattered).quota / forecast(scattered).expected
        > forecast(steady).quota / forecast(steady).expected
    )
    assert forecast(scattered).grade != "high"


def test_throttled_days_lower_the_confidence() -> None:
    needs = noisy([1e6] * 10)
    assert forecast(needs, held=[1.0] * 10).grade == "high"
    said = forecast(needs, held=[1.0] * 9 + [2.0])
    assert (said.grade, said.quota) == ("medium", forecast(needs).quota)
    assert "throttled while it was recorded" in said.confidence


def test_days_without_traffic_and_unrecorded_days_are_no_zeros() -> None:
    needs = noisy([1e6] * 10)
    needs[3] = np.nan
    needs[5] = 0.0
    found = forecast(needs)
    assert found.expected == pytest.approx(1e6, rel=0.05)
    assert "not active on every day" in found.grounds


def test_client_that_was_never_seen_has_no_quota() -> None:
    assert forecast([0.0, np.nan]).quota == 0.0


def test_result_scales_with_the_needs() -> None:
    needs = noisy([1e6 * 1.03**day for day in range(12)])
    one, ten = forecast(needs), forecast(needs * 10)
    assert ten.quota == pytest.approx(10 * one.quota)
    assert ten.confidence == one.confidence
