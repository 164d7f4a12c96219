"""What holds of waits from bytes by second, whatever the client does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.backtest import fluid

SETTINGS = settings(max_examples=100, deadline=None)
SIZES = st.lists(st.one_of(st.just(0.0), st.floats(1.0, 1e8)), min_size=1, max_size=60)
QUOTA = st.floats(1e3, 1e8)
BURST_S = st.sampled_from([0.0, 1.0, 10.0])


def arrays(sizes: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    seconds = np.flatnonzero(np.array(sizes) > 0)
    return seconds, np.array(sizes)[seconds], np.array([0, len(seconds)])


@SETTINGS
@given(sizes=SIZES, quota=QUOTA, times=st.floats(1.0, 10.0), burst_s=BURST_S)
def test_larger_quota_never_makes_a_client_wait_longer(
    sizes: list[float], quota: float, times: float, burst_s: float
) -> None:
    found = fluid.waits(*arrays(sizes), np.array([[quota, quota * times]]), burst_s)[0]
    assert found[1] <= found[0] + 1e-9 * (1 + found[0])


@SETTINGS
@given(sizes=SIZES, quota=QUOTA, burst_s=BURST_S)
def test_what_passes_is_within_the_quota(sizes: list[float], quota: float, burst_s: float) -> None:
    """All bytes pass within the burst, the seconds and the waits at most: GCRA's bound."""
    (waited,) = fluid.waits(*arrays(sizes), np.array([[quota]]), burst_s)[0]
    assert sum(sizes) <= quota * (burst_s + len(sizes) + waited) * (1 + 1e-9)
    assert waited <= sum(sizes) / quota * (1 + 1e-9)


@SETTINGS
@given(
    sizes=SIZES, tolerated_s=st.sampled_from([0.0, 0.5, 5.0]), burst_s=BURST_S, times=st.floats(0.1, 100.0)
)
def test_need_is_enough_and_grows_with_the_bytes(
    sizes: list[float], tolerated_s: float, burst_s: float, times: float
) -> None:
    seconds, bytes_, cuts = arrays(sizes)
    (need,) = fluid.needs(seconds, bytes_, cuts, burst_s, tolerated_s)
    if need == 0:
        assert not bytes_.any()
        return
    enough, less = fluid.waits(seconds, bytes_, cuts, np.array([[need, need * 0.999]]), burst_s)[0]
    assert enough <= tolerated_s + 1e-9
    assert less > tolerated_s - 1e-9 or need <= bytes_.max() / 4000
    assert fluid.needs(seconds, bytes_ * times, cuts, burst_s, tolerated_s)[0] == pytest.approx(need * times)
