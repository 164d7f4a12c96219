"""quotas.options: what the engine refuses to be built with, and how long a mute may be."""

import pytest

from quotas.options import GROUP_SESSION_TIMEOUT_MS, EngineOptions, capped


@pytest.mark.parametrize(
    "wrong",
    [
        {"window_samples": 1},
        {"mute_seconds_max": 0},
        {"partition_mutations_rate": 0.0},
        {"partition_mutations_burst": -1.0},
    ],
    ids=str,
)
def test_invalid_options_are_an_assertion_error(wrong: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        EngineOptions(**wrong)  # type: ignore[arg-type]  # any option


@pytest.mark.parametrize(
    ("throttle_ms", "session_timeout_ms", "muted_ms"),
    [(1234, None, 1234), (60_000, None, 20_000), (100, 10_000, 100), (-5, None, 0), (5, 0, 0)],
)
def test_mute_is_the_throttle_time_within_its_cap(
    throttle_ms: int, session_timeout_ms: int | None, muted_ms: int
) -> None:
    assert capped(throttle_ms, 20_000, session_timeout_ms) == muted_ms


@pytest.mark.parametrize("session_timeout_ms", [6000, 9000, GROUP_SESSION_TIMEOUT_MS, 45_000, 1, 2, 3])
def test_two_mutes_and_a_heartbeat_interval_stay_below_the_session_timeout(session_timeout_ms: int) -> None:
    # sarama: an interval of a third, then its own wait for the last throttle time, then the mute in front of it.
    assert session_timeout_ms / 3 + 2 * capped(60_000, 20_000, session_timeout_ms) < session_timeout_ms
