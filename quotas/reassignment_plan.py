"""All batches of a reassignment, as they would be if every step succeeded (KIP-435): what `sluice reassign plan` shows.

A batch here begins when the one before is done in full. An executor does not wait so long: a slot that is free is
given away at once, so it has more and smaller batches of the same steps, in nearly this order.

Not here: time. How long copying takes is `move_estimate`'s to say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from quotas.reassignment_batch import BatchLimits, Turns
from quotas.reassignment_step import (
    Finished,
    Move,
    PartitionNow,
    Step,
    TopicPartition,
    Waiting,
    next_step,
)

__all__ = ["Plan", "plan_moves", "succeeded"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done.

    Attributes:
        batches: the steps of each.
        finished: partitions that end where they were to be.
        waiting: the others, and why they would go no further.
    """

    batches: tuple[tuple[Step, ...], ...]
    finished: tuple[TopicPartition, ...]
    waiting: Mapping[TopicPartition, Waiting]


def succeeded(now: PartitionNow, step: Step) -> PartitionNow:
    """Give a partition as it is when a step has succeeded.

    >>> now = PartitionNow((0, 1), (0, 1), 0, (), (), 1)
    >>> succeeded(now, Step("t", 0, (2, 0), (2,), (1,), 2, (0, 1), 0))
    PartitionNow(replicas=(2, 0), isr=(2, 0), leader=2, adding=(), removing=(), min_isr=1)
    """
    isr = tuple(replica for replica in step.replicas if replica in now.isr or replica in step.adds)
    leader = now.leader if now.leader in isr else isr[0]
    return replace(
        now, replicas=step.replicas, isr=isr, leader=leader if step.elects is None else step.elects
    )


def plan_moves(
    moves: Sequence[Move],
    now: Mapping[TopicPartition, PartitionNow],
    live: frozenset[int],
    limits: BatchLimits,
) -> Plan:
    """Plan everything.

    Args:
        moves: what is asked for; the cluster has all of their partitions.
        now: what the cluster says.
        live: the brokers that are alive.
        limits: how much may be under way at once.
    """
    remaining = {move.key: (place, move) for place, move in enumerate(moves)}
    state = {key: now[key] for key in remaining}
    batches: list[tuple[Step, ...]] = []
    finished: list[TopicPartition] = []
    waiting: dict[TopicPartition, Waiting] = {}
    turns = Turns()

    def judge(key: TopicPartition) -> None:
        place, move = remaining[key]
        verdict = next_step(move, state[key], live, limits.replica_count)
        if isinstance(verdict, Step):
            turns.add(verdict, place)
        elif isinstance(verdict, Finished):
            finished.append(key)
        else:  # and gets none by the success of others
            waiting[key] = verdict

    for key in remaining:
        judge(key)
    # Of thousands of partitions a batch changes a few: only they are looked at again.
    while batch := turns.begin(limits):
        batches.append(tuple(batch))
        for step in batch:
            state[step.key] = succeeded(state[step.key], step)
        for step in sorted(batch, key=lambda step: remaining[step.key][0]):
            judge(step.key)
    return Plan(tuple(batches), tuple(finished), waiting)
