"""quotas.sharing.followers: a quota of 4 MB/s, looked at every 100 ms."""

from dataclasses import dataclass

from quotas.sharing.followers import Demands

Q = 4_000_000.0


@dataclass
class Rate:
    """A rate that is set by hand."""

    limit: float | None = Q / 2
    total: int = 0
    held_ms: int = -(1 << 60)


def spend(demands: Demands, rate: Rate, since_ms: int, until_ms: int, per_second: int, held: bool) -> float:
    found = 0.0
    for now_ms in range(since_ms, until_ms, 100):
        rate.total += per_second // 10
        if held:
            rate.held_ms = now_ms
        found = demands.wanted(3, Q, rate, now_ms)
    return found


def test_follower_that_is_not_held_back_wants_twice_its_rate() -> None:
    assert spend(Demands(), Rate(), 0, 5000, 1_000_000, False) == 2_000_000


def test_follower_that_is_held_back_and_uses_its_share_wants_the_quota() -> None:
    assert spend(Demands(), Rate(limit=3_000_000.0), 0, 3000, 2_900_000, True) == Q


def test_follower_that_is_held_back_and_gets_nothing_wants_the_quota_at_once() -> None:
    rate = Rate(limit=40_000.0, held_ms=0)  # the least share
    assert Demands().wanted(3, Q, rate, 0) == Q


def test_larger_share_that_is_not_used_is_wanted_no_more_after_two_seconds() -> None:
    demands, rate = Demands(), Rate(limit=40_000.0)
    assert spend(demands, rate, 0, 1000, 40_000, True) == Q
    rate.limit = 0.98 * Q
    assert spend(demands, rate, 1000, 2900, 400_000, True) == Q
    assert spend(demands, rate, 2900, 5000, 400_000, True) == 800_000


def test_slow_leader_keeps_to_its_headroom() -> None:
    """It is granted less than a follower asks for all the time, and still sends 400 kB/s of its 800, in few answers."""
    demands, rate = Demands(), Rate(limit=800_000.0)
    found = []
    for now_ms in range(0, 10_000, 100):
        rate.held_ms = now_ms
        rate.total += 300_000 * (now_ms % 750 < 100)
        found.append(demands.wanted(3, Q, rate, now_ms))
    # In two seconds lie two or three answers: 300 to 450 kB/s.
    assert set(found[50:]) == {900_000.0}


def test_load_that_stops_is_forgotten_within_a_second() -> None:
    demands, rate = Demands(), Rate()
    assert spend(demands, rate, 0, 3000, 2_000_000, True) == Q
    assert spend(demands, rate, 3000, 4200, 0, False) == 0
