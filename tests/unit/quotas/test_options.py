"""quotas.options: what the engine refuses to be built with."""

import pytest

from quotas.options import EngineOptions


def test_defaults_are_kafkas_window_and_the_design_bounds() -> None:
    options = EngineOptions()
    assert (options.policy, options.mode, options.scope) == ("kip13", "enforce", "broker")
    assert (options.window_samples, options.window_seconds) == (11, 1)
    assert (options.burst_seconds, options.hold_seconds_max, options.mute_seconds_max) == (1, 15, 20)


def test_window_of_one_sample_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match="two samples"):
        EngineOptions(window_samples=1)


def test_mute_of_0_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match="without mutes"):
        EngineOptions(mute_seconds_max=0)
