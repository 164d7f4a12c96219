"""A sidecar before each of three brokers, one fleet, and one follower's quota over two leaders (KIP-73).

Sizes are read off the follower's log files. Without a fleet it would get twice its quota here; with fixed equal shares
a third of it from one leader, and two thirds from two. Exact figures are shown in virtual time
(`tests/simulation/test_followers.py`); here bounds are wide enough for a busy machine.
"""

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from quotas.definitions.kinds import FOLLOWER_RATE
from quotas.sharing.replication import replication_key
from tests.support.growth import Growth, Milestone, watch
from tests.support.sidecar_rig import HOLDER, LEASE_SECONDS, SidecarRig
from tests.support.waiting import until

MB = 1_000_000
QUOTA = 4 * MB
BATCH = 110_000
LEADERS = 2
KEY = replication_key(FOLLOWER_RATE, HOLDER)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarRig]:
    replication = {"throttled": "reassignments", "follower_rate": QUOTA}
    with SidecarRig(tmp_path_factory.mktemp("sidecars"), replication) as rig:
        yield rig


def leased(rig: SidecarRig) -> None:
    """Wait until every sidecar has the default share: the holder knows all members."""
    for node, sidecar in rig.sidecars.items():
        until(
            lambda: sidecar.metric("sluice_fleet_default_share") > 0.3,  # noqa: B023 - called at once
            f"a share of {node}",
            2 * LEASE_SECONDS,
        )


def move(rig: SidecarRig, topic: str, leaders: int, megabytes: float) -> Callable[[], int]:
    """Begin to copy a partition from each leader to broker 3; gives what reads the copy's size."""
    rig.create(topic, [[leader] for leader in range(1, leaders + 1)])
    rig.fill(topic, megabytes, leaders)
    rig.reassign({topic: [[leader, HOLDER] for leader in range(1, leaders + 1)]})
    return lambda: rig.size(topic, HOLDER)


def total(rig: SidecarRig, topic: str, leaders: int) -> int:
    return sum(rig.size(topic, leader) for leader in range(1, leaders + 1))


def most_of(grown: Growth) -> Growth:
    """Until nine tenths were there: what comes last comes from one leader, who has only his part at first."""
    return Growth([sample for sample in grown.samples if sample.size <= 0.9 * grown.samples[-1].size])


def assert_held(grown: Growth) -> None:
    """The quota, a quarter of a second of it for the buckets, a batch of each leader; and a tenth for this machine."""
    largest = grown.largest(5.0)
    print(f"{grown.rate / QUOTA:.3f} of the quota, {largest / 5 / QUOTA:.3f} in the largest five seconds")
    assert largest <= 1.1 * (5.25 * QUOTA + LEADERS * BATCH)
    assert grown.largest_second() <= 2 * QUOTA


def test_two_leaders_together_send_no_more_than_the_quota(rig: SidecarRig) -> None:
    leased(rig)
    read = move(rig, "both", 2, 16)
    size = total(rig, "both", 2)
    grown = watch(read, lambda found: found >= size, 60)
    assert_held(grown)
    assert most_of(grown).rate >= 0.75 * QUOTA
    until(lambda: rig.in_sync("both") == {0: {1, 3}, 1: {2, 3}}, "in sync")
    assert sum(sidecar.metric("sluice_fleet_share", key=KEY) for sidecar in rig.sidecars.values()) <= 1.0001


def test_one_leader_alone_sends_nearly_all_of_it(rig: SidecarRig) -> None:
    leased(rig)
    read = move(rig, "alone", 1, 30)
    size = total(rig, "alone", 1)
    grown = watch(read, lambda found: found >= size, 60)
    assert_held(grown)
    assert grown.rate >= 0.75 * QUOTA
    until(lambda: rig.in_sync("alone") == {0: {1, 3}}, "in sync")


def test_holder_killed_in_the_middle_leaves_equal_shares_and_the_move_completes(rig: SidecarRig) -> None:
    leased(rig)
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        rig.sidecars[HOLDER].signal(signal.SIGKILL)
        rig.sidecars[HOLDER].stop()

    read = move(rig, "killed", 2, 100)
    size = total(rig, "killed", 2)
    grown = watch(read, lambda found: found >= size, 120, [Milestone(8 * MB, kill)])
    assert_held(grown)
    (at,) = killed
    # Until the lease ends each keeps what it has.
    leasing = Growth([sample for sample in grown.samples if at < sample.begun < at + LEASE_SECONDS - 2])
    assert leasing.rate >= 0.75 * QUOTA
    after = Growth([sample for sample in most_of(grown).samples if sample.begun > at + LEASE_SECONDS + 1])
    # Two of three equal shares: what the holder's own would be is lost.
    assert 0.45 * QUOTA <= after.rate <= 0.75 * QUOTA
    one = rig.sidecars[1]
    assert one.metric("sluice_fleet_leased") == one.metric("sluice_fleet_lease_left_seconds") == 0
    assert one.metric("sluice_fleet_cut_off") == 1
    assert one.metric("sluice_fleet_default_share") == pytest.approx(1 / 3)
    assert "this member is cut off from the fleet" in one.log()
    rig.start_sidecar(HOLDER)
    rig.sidecars[HOLDER].wait_ready()
    leased(rig)
    assert one.log().count("the holder of the fleet cannot be reached") <= 2  # at the start, perhaps, and now
    until(lambda: rig.in_sync("killed") == {0: {1, 3}, 1: {2, 3}}, "in sync")
