"""All batches of a reassignment if every step succeeds (KIP-435), for `sluice reassign plan`.

A batch here begins when the previous one is complete. The executor does not wait so long: it uses a free slot at once,
so it has more and smaller batches of the same steps, in nearly this order.

The time for copying is in `estimate`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from quotas.reassignment.batch import BatchLimits, StepQueue
from quotas.reassignment.step import Finished, Move, PartitionState, Step, TopicPartition, Waiting, next_step

__all__ = ["Plan", "plan_moves", "succeeded"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned batches.

    Attributes:
        batches: the steps of each batch.
        finished: the partitions that reach their target.
        waiting: the other partitions, with the reason.
    """

    batches: tuple[tuple[Step, ...], ...]
    finished: tuple[TopicPartition, ...]
    waiting: Mapping[TopicPartition, Waiting]


def succeeded(now: PartitionState, step: Step) -> PartitionState:
    """Return a partition's state after a successful step.

    >>> now = PartitionState((0, 1), (0, 1), 0, (), (), 1)
    >>> succeeded(now, Step("t", 0, (2, 0), (2,), (1,), 2, (0, 1), 0))
    PartitionState(replicas=(2, 0), isr=(2, 0), leader=2, adding=(), removing=(), min_isr=1)
    """
    isr = tuple(replica for replica in step.replicas if replica in now.isr or replica in step.adds)
    leader = now.leader if now.leader in isr else isr[0]
    return replace(
        now, replicas=step.replicas, isr=isr, leader=leader if step.elects is None else step.elects
    )


def plan_moves(
    moves: Sequence[Move],
    now: Mapping[TopicPartition, PartitionState],
    live: frozenset[int],
    limits: BatchLimits,
) -> Plan:
    """Plan all batches.

    Args:
        moves: the requested moves; all their partitions exist.
        now: the cluster's current state.
        live: the brokers that are alive.
        limits: the limits of steps under way at once.
    """
    remaining = {move.key: (place, move) for place, move in enumerate(moves)}
    state = {key: now[key] for key in remaining}
    batches: list[tuple[Step, ...]] = []
    finished: list[TopicPartition] = []
    waiting: dict[TopicPartition, Waiting] = {}
    queue = StepQueue()

    def compute(key: TopicPartition) -> None:
        place, move = remaining[key]
        result = next_step(move, state[key], live, limits.replica_count)
        if isinstance(result, Step):
            queue.add(result, place)
        elif isinstance(result, Finished):
            finished.append(key)
        else:  # and never gets one by the success of other steps
            waiting[key] = result

    for key in remaining:
        compute(key)
    # A batch changes a few of thousands of partitions: only these are computed again.
    while batch := queue.begin(limits):
        batches.append(tuple(batch))
        for step in batch:
            state[step.key] = succeeded(state[step.key], step)
        for step in sorted(batch, key=lambda step: remaining[step.key][0]):
            compute(step.key)
    return Plan(tuple(batches), tuple(finished), waiting)
