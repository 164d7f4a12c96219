"""What bounds a mute and a hold: the configured longest mute, a group's session timeout, the SASL session's end."""

import pytest

from proxy.channel.state import MuteLimits
from quotas.definitions.definitions import Definitions
from quotas.engine import Engine
from quotas.limiters.flow import MS_UNBOUNDED
from quotas.options import EngineOptions


def limits() -> MuteLimits:
    return MuteLimits(Engine(EngineOptions(mute_seconds_max=20), Definitions()))


def test_throttle_time_is_told_up_to_the_longest_mute() -> None:
    assert [limits().bounded(throttle_ms, 0) for throttle_ms in (0, 5_000, 60_000)] == [0, 5_000, 20_000]
    assert limits().hold_ms_max == MS_UNBOUNDED


@pytest.mark.parametrize(
    ("named", "reported_ms"),
    [
        ((0,), 2_000),  # 10,000 / 5, the shortest default of the clients
        ((0, 30_000), 6_000),
        ((30_000, 0, 15_000), 3_000),
        ((1,), 1_200),  # 6,000 / 5: no broker takes less
    ],
)
def test_group_members_are_muted_for_a_fifth_of_the_shortest_session_timeout(
    named: tuple[int, ...], reported_ms: int
) -> None:
    bounds = limits()
    for session_timeout_ms in named:
        bounds.note_session_timeout(session_timeout_ms)
    assert (bounds.bounded(60_000, 0), bounds.hold_ms_max) == (reported_ms, reported_ms)


def test_no_mute_outlasts_a_session_but_for_its_last_tenth() -> None:
    bounds = limits()
    bounds.begin_session(10_000, 1_000)
    assert [bounds.bounded(60_000, now_ms) for now_ms in (1_000, 8_000, 10_000, 11_000)] == [
        9_000,
        2_000,
        0,
        0,
    ]
    assert bounds.hold_ms_max == 500  # 10,000 / 20
    bounds.begin_session(0, 11_000)
    assert bounds.bounded(60_000, 11_000) == 20_000
