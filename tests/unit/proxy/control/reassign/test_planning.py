"""A request, judged partition by partition, with Kafka's codes and messages: integration tests compare them."""

import pytest
from msgspec.structs import replace

from protocol.messages.reassignments import AlterRequest, Outcome, Target
from proxy.control.reassign.cluster import ClusterState
from proxy.control.reassign.journal import Entry, PendingRequest
from proxy.control.reassign.planning import Handling, Verdict, validate
from quotas.reassignment.step import PartitionState, TopicPartition

KEY = ("t", 0)
MANUAL = "The manual partition assignment includes"
NOW = PartitionState((1, 2, 3), (1, 2, 3), 1, (), (), 2)
ENTRY = Entry("t", 0, "id", (1, 2, 3), (4, 5, 6))


def seen(now: PartitionState = NOW, **topic_ids: str) -> ClusterState:
    return ClusterState(
        frozenset((1, 2, 3)), frozenset(range(1, 8)), {KEY: now}, topic_ids or {"t": "id"}, {}
    )


def judged(
    *wanted: tuple[TopicPartition, Target],
    entry: Entry | None = None,
    now: PartitionState = NOW,
    may_change: bool = True,
    moves_max: int = 10,
) -> list[Verdict]:
    entries = {} if entry is None else {entry.key: entry}
    return validate(AlterRequest(1, may_change, wanted), entries, seen(now), moves_max, "p/1")


def one(target: Target, **words: object) -> Verdict:
    (verdict,) = judged((KEY, target), **words)  # type: ignore[arg-type]  # as above
    return verdict


@pytest.mark.parametrize(
    ("key", "target", "code", "message"),
    [
        (("x", 0), (1,), 3, "Unable to find a topic named x."),
        (("x", 0), None, 3, "Unable to find a topic named x."),
        (("t", 7), (1,), 3, "Unable to find partition t:7."),
        (KEY, (), 39, f"{MANUAL} an empty replica list."),
        (KEY, (1, 9), 39, f"{MANUAL} broker 9, but no such broker is registered."),
        (KEY, (1, 2, 1), 39, f"{MANUAL} the broker 1 more than once."),
    ],
)
def test_refused_as_kafka_does(key: TopicPartition, target: Target, code: int, message: str) -> None:
    (verdict,) = judged((key, target))
    assert (verdict.kind, verdict.outcome, verdict.entry) == (Handling.REFUSED, Outcome(code, message), None)


@pytest.mark.parametrize(
    ("target", "entry", "now", "moves_max", "kind"),
    [
        ((5, 6, 7), None, NOW, 10, Handling.NEW),  # 5 is dead, and no broker that is unknown
        ((4,), None, PartitionState((1,), (1,), 1, (), (), 2), 10, Handling.NEW),  # below min ISR already
        ((1, 2, 3), None, NOW, 10, Handling.UNCHANGED),
        (None, None, NOW, 10, Handling.UNCHANGED),  # nothing of ours to cancel
        ((1, 2, 3), ENTRY, NOW, 10, Handling.CANCELLED),  # the original as the target
        ((5, 6, 7), ENTRY, NOW, 0, Handling.CHANGED),  # no new move, so over the maximum too
    ],
)
def test_request_is_of_its_kind(
    target: Target, entry: Entry | None, now: PartitionState, moves_max: int, kind: Handling
) -> None:
    assert one(target, entry=entry, now=now, moves_max=moves_max).kind is kind


def test_too_few_replicas_and_too_many_moves_are_refused() -> None:
    outcome = one((4,)).outcome
    assert outcome.error_code == 39
    assert "has 1 replicas, fewer than min.insync.replicas 2" in str(outcome.error_message)
    assert one((4, 5, 6), moves_max=0).outcome.error_code == 44


def test_replication_factor_may_not_change_if_the_caller_forbids_it() -> None:
    verdict = one((1, 2), may_change=False)
    assert verdict.outcome == Outcome(38, "The replication factor is changed from 3 to 2")
    assert one((4, 5, 6), may_change=False).kind is Handling.NEW


def test_replication_factor_is_that_after_the_move_under_way() -> None:
    """As ReplicationControlManager has it: replicas and adding, without removing."""
    now = PartitionState((4, 1, 2, 3), (1, 2, 3), 1, (4,), (1,), 2)
    assert one((4, 5, 6), now=now, may_change=False).kind is Handling.NEW
    assert one((4, 5), entry=ENTRY, now=now, may_change=False).outcome.error_code == 38
    growing = PartitionState((4, 1, 2, 3), (1, 2, 3), 1, (4,), (), 2)
    verdict = one((4, 5, 6), now=growing, may_change=False)
    assert verdict.outcome == Outcome(38, "The replication factor is changed from 4 to 3")
    shrinking = replace(ENTRY, target=(4, 5))
    verdict = one((4, 5, 6), entry=shrinking, may_change=False)
    assert verdict.outcome == Outcome(38, "The replication factor is changed from 2 to 3")
    assert one((6, 5), entry=shrinking, may_change=False).kind is Handling.CHANGED


def test_new_move_is_taken() -> None:
    asked = PendingRequest((4, 5, 6), False, None, "p/1")
    assert one((4, 5, 6)) == Verdict(
        KEY, (4, 5, 6), Handling.NEW, entry=Entry("t", 0, "id", (1, 2, 3), asked=asked)
    )


def test_original_replicas_are_those_before_a_foreign_reassignment() -> None:
    now = PartitionState((4, 1, 2, 3), (1, 2, 3), 1, (4,), (1,), 2)
    entry = one((4, 5, 6), now=now).entry
    assert entry is not None
    assert entry.original == (1, 2, 3)


def test_cancel_goes_back_to_the_original() -> None:
    verdict = one(None, entry=ENTRY)
    assert verdict.kind is Handling.CANCELLED
    assert verdict.entry == replace(ENTRY, asked=PendingRequest((1, 2, 3), True, None, "p/1"))


def test_another_target_changes_the_move_and_not_its_original() -> None:
    verdict = one((5, 6, 7), entry=ENTRY)
    assert verdict.kind is Handling.CHANGED
    assert verdict.entry == replace(ENTRY, asked=PendingRequest((5, 6, 7), False, None, "p/1"))


def test_request_beside_one_that_is_not_judged_is_refused() -> None:
    entry = replace(ENTRY, asked=PendingRequest((5, 6, 7), False, None, "other/1"))
    assert one(None, entry=entry).outcome.error_code == 60


def test_move_of_a_deleted_topic_of_the_same_name_does_not_count() -> None:
    entry = replace(ENTRY, topic_id="old")
    verdict = one((4, 5, 6), entry=entry)
    assert verdict.kind is Handling.NEW
    assert verdict.entry is not None
    assert verdict.entry.topic_id == "id"


def test_last_of_two_requests_for_a_partition_holds() -> None:
    kinds = [verdict.kind for verdict in judged((KEY, (5, 6, 7)), (KEY, (4, 5, 6)), (KEY, (9,)))]
    assert kinds == [Handling.REPLACED, Handling.NEW, Handling.REFUSED]


def test_each_of_two_requests_for_a_partition_has_its_own_outcome() -> None:
    assert judged((KEY, None), (KEY, (4, 5, 6)))[0].outcome == Outcome(85)
    assert judged((KEY, (1, 2, 3)), (KEY, None))[0].outcome == Outcome()
    assert judged((KEY, None), (KEY, None), entry=ENTRY)[0].outcome == Outcome()


def test_cancel_after_a_new_move_in_one_request_finds_no_move() -> None:
    """The controller looks at what was under way before the request."""
    taken, refused = judged((KEY, (4, 5, 6)), (KEY, None))
    assert (taken.kind, refused.kind, refused.outcome) == (Handling.NEW, Handling.REFUSED, Outcome(85))
