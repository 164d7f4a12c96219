"""The status of moves: progress, rate, and the reason of a wait."""

from dataclasses import replace
from math import inf

from msgspec import structs

from proxy.config import ReassignmentSettings
from proxy.control.reassign import status
from proxy.control.reassign.cluster import Sizes
from proxy.control.reassign.journal import EndedTotals, Entry, PendingRequest
from proxy.control.reassign.reconcile import Decision
from quotas.reassignment.step import PartitionState, Step, Waiting

KEY = ("t", 0)
STEP = Step("t", 0, (3, 1), (3,), (2,), 3, (1, 2), 1)
ENTRY = Entry("t", 0, "id", (1, 2), (3, 4), step=STEP)
UNDER_WAY = PartitionState((3, 1, 2), (1, 2), 1, (3,), (2,), 1)
HALF = PartitionState((3, 1), (3, 1), 3, (), (), 1)
SIZES = Sizes().updated({1: {KEY: 100}, 3: {KEY: 40}}, [KEY])


def one(
    entry: Entry = ENTRY, now: PartitionState = UNDER_WAY, decision: Decision | None = None
) -> status.Progress:
    (found,) = status.progress({KEY: entry}, {KEY: now}, decision or Decision(), SIZES)
    return found


def test_step_under_way_counts_what_is_there() -> None:
    found = one()
    assert (found.state, found.step) == ("step", STEP)
    assert (found.replicas_done, found.replicas_total) == (0, 2), "3 is there when it is in sync"
    assert (found.bytes_done, found.bytes_total) == (40, 200)


def test_completed_step_is_not_shown() -> None:
    found = one(now=HALF)
    assert (found.state, found.step) == ("waiting", None)
    assert found.replicas_done == 1


def test_waiting_move_has_its_reason() -> None:
    decision = Decision(waiting={KEY: Waiting("for better times")})
    assert one(now=HALF, decision=decision).reason == "for better times"
    assert one(decision=decision).reason == ""
    stuck = Decision(waiting={KEY: Waiting("for the dead", (3,))})
    assert one(decision=stuck).reason == "for the dead"


def test_total_does_not_fall_while_a_move_is_under_way() -> None:
    """Its leader may be a new replica, or none for a moment, and retention may cut logs."""
    read = SIZES.updated({1: {KEY: 90}, 3: {KEY: 85}}, [KEY])
    later = read.updated({3: {KEY: 60}}, [KEY])
    for sizes in (SIZES, read, later):
        for now in (UNDER_WAY, HALF, replace(HALF, leader=-1)):
            (found,) = status.progress({KEY: ENTRY}, {KEY: now}, Decision(), sizes)
            assert found.bytes_total == 200


def test_replica_that_is_in_place_counts_as_all_of_its_bytes() -> None:
    whole = PartitionState((3, 4), (3, 4), 3, (), (), 1)
    (found,) = status.progress({KEY: ENTRY}, {KEY: whole}, Decision(), SIZES)
    assert (found.replicas_done, found.replicas_total) == (2, 2)
    assert (found.bytes_done, found.bytes_total) == (200, 200), "though 3 was last read with 40, and 4 never"


def test_partition_that_is_gone_has_nothing() -> None:
    (found,) = status.progress({KEY: ENTRY}, {}, Decision(), SIZES)
    assert (found.now, found.step, found.bytes_total) == (None, None, 0)


def test_cancelled_move_counts_what_is_to_come_back_and_a_request_to_cancel_is_asked() -> None:
    found = one(structs.replace(ENTRY, target=(1, 2), cancelled=True), now=HALF)
    assert (found.replicas_done, found.replicas_total) == (0, 1)
    assert one(structs.replace(ENTRY, asked=PendingRequest((1, 2), True, None, "p/1"))).state == "asked"


def test_rate_is_what_came_between_samples() -> None:
    rate = status.Rate()
    assert rate.per_second() is None
    rate.sample(0, [one()])
    rate.sample(0, [one()])
    assert rate.per_second() is None
    rate.sample(5_000, [one()._replace(bytes_done=540)])
    assert rate.per_second() == 100  # 500 bytes in 5 s
    rate.sample(10_000, [one()._replace(bytes_done=40)])
    assert rate.per_second() == 50  # what is deleted does not count against it
    rate.forget()
    assert rate.per_second() is None


def test_remaining_time_is_a_metric() -> None:
    def seconds(*moves: status.Progress, rate: float | None) -> object:
        found = {one.name: one.rows for one in status.gauges(moves, Decision(), rate, True)}
        return found["sluice_reassignment_finish_seconds"]

    assert seconds(one(), rate=10.0) == [((), 16.0)]  # 160 bytes are left
    assert seconds(one(), rate=None) == [((), inf)]
    assert seconds(rate=None) == [((), 0.0)]


def test_totals_of_the_document_are_sums_over_its_moves() -> None:
    settings = ReassignmentSettings(parallel_replica_count=2)
    document = status.describe([one(), one(now=HALF)], settings, 10.0, EndedTotals())
    assert (document["moves"], document["steps"]) == (2, 1)
    # Of 2 x 100 bytes each: 40 are there in the first, and a whole replica in the second.
    assert (document["bytes_done"], document["bytes_total"]) == (140, 400)
    assert document["finish_seconds"] == 26.0  # 260 bytes are left
    limits, partitions = document["limits"], document["partitions"]
    assert isinstance(limits, dict)
    assert limits["parallel_replica_count"] == 2
    assert isinstance(partitions, list)
    assert partitions[0] == {
        "topic": "t",
        "partition": 0,
        "original": [1, 2],
        "target": [3, 4],
        "current": [3, 1, 2],
        "cancelled": False,
        "state": "step",
        "step": {"current": [1, 2], "target": [3, 1]},
        "reason": "",
        "replicas_total": 2,
        "replicas_done": 0,
        "bytes_total": 200,
        "bytes_done": 40,
    }


def test_totals_include_ended_moves() -> None:
    over = EndedTotals(done=3, not_done=1, replicas=5, size=1000)
    document = status.describe([one()], ReassignmentSettings(), 10.0, over)
    assert (document["moves"], document["moves_total"]) == (1, 5)  # 1 + 3 + 1
    assert (document["moves_done"], document["moves_not_done"]) == (3, 1)
    assert (document["replicas_done"], document["replicas_total"]) == (5, 7)  # 5 + 0 of 5 + 2
    assert (document["bytes_done"], document["bytes_total"]) == (1040, 1200)  # 1000 + 40 of 1000 + 200
    assert document["finish_seconds"] == 16.0, "160 bytes are left, at 10 a second"


def test_metrics_count_states_and_the_stalled() -> None:
    decision = Decision(lost=frozenset((4,)))
    found = {one.name: one.rows for one in status.gauges([one(), one(now=HALF)], decision, None, True)}
    assert dict(found["sluice_reassignments"]) == {("asked",): 0, ("step",): 1, ("waiting",): 1}
    assert found["sluice_reassignment_replicas_catching_up"] == [((), 1)]
    assert found["sluice_reassignment_stalled"] == [((), 2)]
    assert found["sluice_reassignment_leader"] == [((), 1.0)]
