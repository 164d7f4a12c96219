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
        frozenset((1, 2, 3)),
        frozenset(range(1, 9)),
        {KEY: now},
        topic_ids or {"t": "id"},
        {},
        cordoned=frozenset((8,)),
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
        (KEY, (1, 8), 39, f"{MANUAL} broker 8, but all its log directories are cordoned."),
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
        (None, ENTRY, NOW, 10, Handling.CANCELLED),
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
    assert one((4, 5, 6), now=FOREIGN, may_change=False).kind is Handling.NEW
    assert one((4, 5), entry=ENTRY, now=FOREIGN, may_change=False).outcome.error_code == 38
    growing = PartitionState((4, 1, 2, 3), (1, 2, 3), 1, (4,), (), 2)
    verdict = one((4, 5, 6), now=growing, may_change=False)
    assert verdict.outcome == Outcome(38, "The replication factor is changed from 4 to 3")
    shrinking = replace(ENTRY, target=(4, 5))
    verdict = one((4, 5, 6), entry=shrinking, may_change=False)
    assert verdict.outcome == Outcome(38, "The replication factor is changed from 2 to 3")
    assert one((6, 5), entry=shrinking, may_change=False).kind is Handling.CHANGED


FOREIGN = PartitionState((4, 1, 2, 3), (1, 2, 3), 1, (4,), (1,), 2)  # a reassignment that is not Sluice's


def asked_for(target: tuple[int, ...], *, cancels: bool = False) -> PendingRequest:
    return PendingRequest(target, cancels, None, "p/1")


@pytest.mark.parametrize(
    ("target", "entry", "now", "taken"),
    [
        ((4, 5, 6), None, NOW, Entry("t", 0, "id", (1, 2, 3), asked=asked_for((4, 5, 6)))),
        ((4, 5, 6), None, FOREIGN, Entry("t", 0, "id", (1, 2, 3), asked=asked_for((4, 5, 6)))),
        ((5, 6, 7), ENTRY, NOW, replace(ENTRY, asked=asked_for((5, 6, 7)))),
        (None, ENTRY, NOW, replace(ENTRY, asked=asked_for((1, 2, 3), cancels=True))),
    ],
)
def test_request_that_is_taken_keeps_the_replicas_before_it(
    target: Target, entry: Entry | None, now: PartitionState, taken: Entry
) -> None:
    assert one(target, entry=entry, now=now).entry == taken


NO_ERROR, NO_MOVE, EMPTY = Outcome(), Outcome(85), Outcome(39, f"{MANUAL} an empty replica list.")


@pytest.mark.parametrize(
    ("targets", "kinds", "outcomes"),
    [
        # The last valid one of several requests for a partition holds.
        (
            ((5, 6, 7), (4, 5, 6), ()),
            (Handling.REPLACED, Handling.NEW, Handling.REFUSED),
            (NO_ERROR, NO_ERROR, EMPTY),
        ),
        ((None, (4, 5, 6)), (Handling.REPLACED, Handling.NEW), (NO_MOVE, NO_ERROR)),
        (((1, 2, 3), None), (Handling.UNCHANGED, Handling.REFUSED), (NO_ERROR, NO_MOVE)),
        # The controller looks at what was under way before the request: a cancel after a new move finds none.
        (((4, 5, 6), None), (Handling.NEW, Handling.REFUSED), (NO_ERROR, NO_MOVE)),
    ],
)
def test_each_of_several_requests_for_a_partition_has_its_own_outcome(
    targets: tuple[Target, ...], kinds: tuple[Handling, ...], outcomes: tuple[Outcome, ...]
) -> None:
    verdicts = judged(*((KEY, target) for target in targets))
    assert tuple(verdict.kind for verdict in verdicts) == kinds
    assert tuple(verdict.outcome for verdict in verdicts) == outcomes
    assert judged((KEY, None), (KEY, None), entry=ENTRY)[0].outcome == NO_ERROR, "a move of ours"


def test_request_beside_one_that_is_not_judged_is_refused() -> None:
    entry = replace(ENTRY, asked=PendingRequest((5, 6, 7), False, None, "other/1"))
    assert one(None, entry=entry).outcome.error_code == 60


def test_move_of_a_deleted_topic_of_the_same_name_does_not_count() -> None:
    entry = replace(ENTRY, topic_id="old")
    verdict = one((4, 5, 6), entry=entry)
    assert verdict.kind is Handling.NEW
    assert verdict.entry is not None
    assert verdict.entry.topic_id == "id"
