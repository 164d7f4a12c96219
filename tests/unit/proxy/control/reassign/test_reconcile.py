"""What to do next, in literal times: what is held, for how long, and what is then believed (KIP-435)."""

from dataclasses import replace

import pytest
from msgspec import structs

from proxy.control.reassign.cluster import ClusterState
from proxy.control.reassign.journal import Ended, Entry, PendingRequest
from proxy.control.reassign.reconcile import ASKED_MS_MAX, Decision, Memory, reconcile
from quotas.reassignment.batch import BatchLimits
from quotas.reassignment.step import PartitionState, Step

KEY = ("t", 0)
# (1, 2) -> (3, 4), a replica at a time: 3 for 2, since 1 leads.
FIRST = Step("t", 0, (3, 1), (3,), (2,), 3, (1, 2), 1)
ENTRY = Entry("t", 0, "id", (1, 2), (3, 4))
UNDER_WAY = structs.replace(ENTRY, step=FIRST)
BEFORE = PartitionState((1, 2), (1, 2), 1, (), (), 1)
MOVING = PartitionState((3, 1, 2), (1, 2), 1, (3,), (2,), 1)
AFTER = PartitionState((3, 1), (1, 3), 3, (), (), 1)
LIVE = frozenset((1, 2, 3, 4))


def decided(
    entry: Entry,
    now: PartitionState | None,
    memory: Memory | None = None,
    now_ms: int = 0,
    live: frozenset[int] = LIVE,
    topic_id: str = "id",
    dead_ms: int = 10_000,
) -> Decision:
    states = {} if now is None else {KEY: now}
    ids = {"t": topic_id} if now is not None else {}
    seen = ClusterState(live, LIVE, states, ids, {})
    return reconcile({KEY: entry}, seen, BatchLimits(), memory or Memory(), dead_ms, now_ms)


BACK = structs.replace(ENTRY, target=(1, 2), cancelled=True)
ASKED = Entry("t", 0, "id", (1, 2), asked=PendingRequest((3, 4), False, FIRST, "p/1"))
LEADS_BACK = Step("t", 0, (1, 3), (1,), (4,), 1, (3, 4), 3)


@pytest.mark.parametrize(
    ("entry", "now", "decision"),
    [
        (ENTRY, BEFORE, Decision(steps=[FIRST], records=[UNDER_WAY])),
        (ENTRY, PartitionState((3, 4), (3, 4), 3, (), (), 1), Decision(records=[Ended("t", 0, "done")])),
        (UNDER_WAY, MOVING, Decision(in_flight={KEY: FIRST})),
        (UNDER_WAY, BEFORE, Decision(in_flight={KEY: FIRST})),  # no broker shows it yet
        # A request that is not judged holds the slot of its step; its own connection tells first.
        (ASKED, BEFORE, Decision(in_flight={KEY: FIRST})),
        (ASKED, MOVING, Decision(in_flight={KEY: FIRST})),
        (BACK, BEFORE, Decision(records=[Ended("t", 0, "cancelled")])),
        (
            structs.replace(BACK, step=LEADS_BACK),
            PartitionState((1, 3, 4), (3, 4), 3, (1,), (4,), 1),
            Decision(in_flight={KEY: LEADS_BACK}),
        ),
    ],
)
def test_entry_leads_to_a_decision(entry: Entry, now: PartitionState, decision: Decision) -> None:
    assert replace(decided(entry, now), waiting={}) == decision


@pytest.mark.parametrize(
    ("entry", "now", "after_ms", "decision"),
    [
        # A step that no broker shows is planned again, and a topic that none knows counts as deleted.
        (UNDER_WAY, BEFORE, 3_000, Decision(steps=[FIRST], records=[UNDER_WAY])),
        (ENTRY, None, 10_000, Decision(records=[Ended("t", 0, "gone")])),
        # A request whose step is seen was accepted; one without effect is removed.
        (ASKED, MOVING, 2_000, Decision(in_flight={KEY: FIRST}, records=[ASKED.accepted()])),
        (ASKED, BEFORE, ASKED_MS_MAX, Decision(in_flight={KEY: FIRST}, records=[Ended("t", 0, "refused")])),
    ],
)
def test_state_that_lasts_leads_to_a_decision(
    entry: Entry, now: PartitionState | None, after_ms: int, decision: Decision
) -> None:
    memory = Memory()
    for now_ms in (0, after_ms - 1):
        found = decided(entry, now, memory, now_ms)
        assert (found.steps, found.records) == ([], [])
    assert replace(decided(entry, now, memory, after_ms), waiting={}) == decision


def test_step_that_is_done_is_followed_by_the_next() -> None:
    (step,) = decided(UNDER_WAY, AFTER).steps
    assert step.replicas == (3, 4)


def test_leader_of_a_step_is_elected_before_the_next() -> None:
    memory = Memory()
    unled = replace(AFTER, leader=1)
    found = decided(UNDER_WAY, unled, memory)
    assert (found.elections, found.steps, found.in_flight) == ([KEY], [], {KEY: FIRST})
    memory.elections[KEY] = 5
    assert decided(UNDER_WAY, unled, memory).elections == [], "not for ever"


def test_state_between_two_steps_is_not_believed_at_once() -> None:
    """A broker that lags shows the middle of a step that is over."""
    middle = replace(MOVING, adding=(), removing=())
    memory = Memory()
    assert decided(UNDER_WAY, middle, memory, 0).in_flight == {KEY: FIRST}
    assert decided(UNDER_WAY, middle, memory, 9_999).steps == []
    assert decided(UNDER_WAY, middle, memory, 10_000).steps != []


def test_step_that_is_over_and_out_of_sync_again_is_not_waited_for_for_ever() -> None:
    """What was added died when the step was done: it may never be in sync again."""
    out = replace(AFTER, isr=(1,), leader=1)
    memory, without = Memory(), LIVE - {3}
    assert decided(UNDER_WAY, out, memory, 0, without).in_flight == {KEY: FIRST}
    assert decided(UNDER_WAY, out, memory, 9_999, without).in_flight == {KEY: FIRST}
    (step,) = decided(UNDER_WAY, out, memory, 10_000, without).steps
    assert (step.adds, step.drops) == ((4,), (3,)), "stepped around: it is lost by now"


def test_foreign_reassignment_is_waited_for() -> None:
    foreign = PartitionState((5, 1, 2), (1, 2), 1, (5,), (2,), 1)
    found = decided(UNDER_WAY, foreign)
    assert (found.steps, found.cancels, found.in_flight) == ([], [], {})
    assert "another reassignment" in found.waiting[KEY].reason


def test_refused_step_is_tried_again_later_and_later_still() -> None:
    memory = Memory()
    memory.record_failure(KEY, "error 39", 0)
    assert "will be retried: error 39" in decided(ENTRY, BEFORE, memory, 999).waiting[KEY].reason
    assert decided(ENTRY, BEFORE, memory, 1_000).steps == [FIRST]
    memory.record_failure(KEY, "error 39", 1_000)
    assert decided(ENTRY, BEFORE, memory, 2_999).steps == []
    assert decided(ENTRY, BEFORE, memory, 3_000).steps == [FIRST]


def test_cancelled_move_takes_back_the_step_that_leads_away() -> None:
    back = structs.replace(BACK, step=FIRST)
    assert decided(back, MOVING).cancels == [KEY]
    assert decided(back, replace(MOVING, isr=(3,))).cancels == [], "no in-sync replica would be left"
    assert decided(back, BEFORE, now_ms=0).in_flight == {KEY: FIRST}


def test_leader_that_can_not_be_had_does_not_keep_a_move_open() -> None:
    there = PartitionState((3, 4), (3, 4), 4, (), (), 1)
    memory = Memory()
    assert decided(ENTRY, there, memory).elections == [KEY]
    memory.elections[KEY] = 5
    assert decided(ENTRY, there, memory).records == [Ended("t", 0, "done")]


def test_step_with_a_dead_broker_is_waited_for_then_taken_back() -> None:
    memory = Memory()
    without = LIVE - {3}
    assert decided(UNDER_WAY, MOVING, memory, 0, without).cancels == []
    assert decided(UNDER_WAY, MOVING, memory, 9_999, without).cancels == []
    found = decided(UNDER_WAY, MOVING, memory, 10_000, without)
    assert (found.cancels, found.lost) == ([KEY], frozenset((3,)))


def test_step_with_a_dead_broker_that_can_not_be_taken_back_says_so() -> None:
    memory = Memory()
    last = replace(MOVING, isr=(3,), leader=3)  # 1 is to stay, and is waited for by Kafka 3.8 to 4.1
    without = LIVE - {1}
    decided(UNDER_WAY, last, memory, 0, without)
    found = decided(UNDER_WAY, last, memory, 10_000, without)
    assert (found.cancels, found.in_flight) == ([], {KEY: FIRST})
    assert found.waiting[KEY].brokers == (1,)
    assert "fewer in sync than min.insync.replicas 1" in found.waiting[KEY].reason


def test_step_with_a_dead_broker_is_taken_back_even_below_min_isr() -> None:
    """The step drops no in-sync replica, and a live broker can be added once it is taken back."""
    memory = Memory()
    few = replace(MOVING, isr=(1,), min_isr=2)
    decided(UNDER_WAY, few, memory, 0, LIVE - {3})
    assert decided(UNDER_WAY, few, memory, 10_000, LIVE - {3}).cancels == [KEY]
    back = structs.replace(BACK, step=FIRST)
    assert decided(back, few).cancels == [KEY]


def test_broker_that_comes_back_is_waited_for_anew() -> None:
    memory = Memory()
    decided(UNDER_WAY, MOVING, memory, 0, LIVE - {3})
    decided(UNDER_WAY, MOVING, memory, 5_000)
    assert decided(UNDER_WAY, MOVING, memory, 12_000, LIVE - {3}).cancels == []


def test_topic_with_another_id_proves_the_deletion() -> None:
    assert decided(ENTRY, BEFORE, topic_id="other").records == [Ended("t", 0, "gone")]


def test_second_request_has_its_own_time() -> None:
    memory = Memory()
    decided(ASKED, BEFORE, memory, 0)
    again = structs.replace(ASKED, asked=PendingRequest((3, 4), False, None, "p/2"))
    assert decided(again, BEFORE, memory, ASKED_MS_MAX).records == []


@pytest.mark.parametrize(
    ("entry", "now", "holds"),
    [
        (ENTRY, BEFORE, True),
        (ENTRY, AFTER, False),
        (UNDER_WAY, MOVING, True),
        (UNDER_WAY, AFTER, True),
        (UNDER_WAY, BEFORE, True),
        (UNDER_WAY, PartitionState((3, 4), (3, 4), 3, (), (), 1), False),
        (ASKED, BEFORE, False),
    ],
)
def test_entry_of_a_damaged_journal_holds_where_the_cluster_confirms_it(
    entry: Entry, now: PartitionState, holds: bool
) -> None:
    (record,) = decided(structs.replace(entry, unsure=True), now).records
    assert record == (entry if holds else Ended("t", 0, "lost"))


def test_memory_of_ended_moves_is_freed() -> None:
    memory = Memory()
    memory.record_failure(KEY, "x", 0)
    memory.elections[KEY] = 1
    memory.asked_ms[KEY, "p/1"] = 0
    memory.forget({})
    assert not memory.failures
    assert not memory.elections
    assert not memory.asked_ms
