"""quotas.mute: how long a channel may be silent."""

import pytest

from quotas.mute import GROUP_SESSION_TIMEOUT_MS, capped


def test_mute_is_the_throttle_time_where_nothing_limits_it() -> None:
    assert capped(1234, 20_000, None) == 1234


def test_mute_has_a_configured_cap() -> None:
    assert capped(60_000, 20_000, None) == 20_000


@pytest.mark.parametrize("session_timeout_ms", [6000, 9000, GROUP_SESSION_TIMEOUT_MS, 45_000, 1, 2, 3])
def test_mute_stays_below_a_third_of_the_group_session_timeout(session_timeout_ms: int) -> None:
    assert 3 * capped(60_000, 20_000, session_timeout_ms) < session_timeout_ms


def test_mute_of_a_group_member_may_be_shorter_than_its_cap() -> None:
    assert capped(100, 20_000, 10_000) == 100


def test_mute_is_never_negative() -> None:
    assert capped(-5, 20_000, None) == 0
    assert capped(5, 20_000, 0) == 0
