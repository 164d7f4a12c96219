"""quotas.options: what the engine refuses to be built with."""

import pytest

from quotas.options import GROUP_SESSION_TIMEOUT_MS, EngineOptions, capped


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


def test_mute_is_the_throttle_time_where_nothing_limits_it() -> None:
    assert capped(1234, 20_000, None) == 1234


def test_mute_has_a_configured_cap() -> None:
    assert capped(60_000, 20_000, None) == 20_000


@pytest.mark.parametrize("session_timeout_ms", [6000, 9000, GROUP_SESSION_TIMEOUT_MS, 45_000, 1, 2, 3])
def test_two_mutes_and_a_heartbeat_interval_stay_below_the_session_timeout(session_timeout_ms: int) -> None:
    # sarama: an interval of a third, then its own wait for the last throttle time, then the mute in front of it.
    assert session_timeout_ms / 3 + 2 * capped(60_000, 20_000, session_timeout_ms) < session_timeout_ms


def test_mute_of_a_group_member_may_be_shorter_than_its_cap() -> None:
    assert capped(100, 20_000, 10_000) == 100


def test_mute_is_never_negative() -> None:
    assert capped(-5, 20_000, None) == 0
    assert capped(5, 20_000, 0) == 0
