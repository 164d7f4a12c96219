"""The next steps over all partitions, within the limits (KIP-435, "Collecting a reassignment batch", put right).

Leader movements first, up to their limit, then the others; but whoever has waited `PATIENCE_ROUNDS` goes first, the
longest before the others. A *round* is a batch that began at least one step. The one that has waited longest and does
not fit has its place kept, so that two brokers that are never free together are free for it in the end. No partition
whose step fits beside what is under way and that place waits more than `PATIENCE_ROUNDS` + (partitions - 1) rounds:
in each of them somebody begins who has waited at least as long, and who then starts to wait anew.

Nothing is remembered from one batch to the next but what the caller hands in, so limits may change at any time; they
apply from the next step on, and a step under way holds its slots by being in `in_flight` and by nothing else.

Not here: foreign reassignments take no slots. Their partitions wait.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quotas.errors import DefinitionError
from quotas.reassignment_step import (
    NOBODY,
    Finished,
    Move,
    PartitionNow,
    Step,
    TopicPartition,
    Waiting,
    next_step,
)

__all__ = ["PATIENCE_ROUNDS", "Batch", "BatchLimits", "choose_batch", "next_batch"]

PATIENCE_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How much may be under way at once.

    Attributes:
        parallel_replica_count: replicas added to one partition by one step (R).
        parallel_partition_count: partitions with a step under way (P).
        parallel_leader_movements: steps under way that change a leader (L).
        max_concurrent_replica_movements: replicas being added, in all (M).
        max_movements_in_per_broker: replicas being added to one broker; None for no limit.
        max_movements_out_per_broker: replicas being added that fetch from one broker; None for no limit.
    """

    parallel_replica_count: int = 1
    parallel_partition_count: int = 10
    parallel_leader_movements: int = 2
    max_concurrent_replica_movements: int = 20
    max_movements_in_per_broker: int | None = None
    max_movements_out_per_broker: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DefinitionError(f"reassignment.{name}", f"must be at least 1, not {value}")

    @property
    def replica_count(self) -> int:
        """R, and no more than a whole batch may add: a step can not be cut."""
        out = self.max_movements_out_per_broker or self.parallel_replica_count
        return min(self.parallel_replica_count, self.max_concurrent_replica_movements, out)


@dataclass(frozen=True, slots=True)
class Batch:
    """What to do now.

    Attributes:
        steps: to begin, in this order.
        waiting: why the others do not go on.
        finished: partitions that are where they were to be.
        gone: partitions that the cluster does not have.
        waited: rounds that each partition with a step has waited; to be handed in with the next call.
    """

    steps: tuple[Step, ...]
    waiting: Mapping[TopicPartition, Waiting]
    finished: tuple[TopicPartition, ...]
    gone: tuple[TopicPartition, ...]
    waited: Mapping[TopicPartition, int]


class _Room:
    """What the steps under way leave."""

    def __init__(self, limits: BatchLimits, under_way: Iterable[Step]) -> None:
        self._limits = limits
        self._partitions = self._leaders = self._movements = 0
        self._into: Counter[int] = Counter()
        self._out_of: Counter[int] = Counter()
        for step in under_way:
            self.take(step)

    def take(self, step: Step) -> None:
        """Count a step that is under way."""
        self._partitions += 1
        self._leaders += step.moves_leader
        self.keep(step)

    def keep(self, step: Step) -> None:
        """Count only what a step copies: it does not fit yet, and nobody else shall take its place."""
        self._movements += len(step.adds)
        self._into.update(step.adds)
        self._out_of[step.leader] += len(step.adds)

    def lacks(self, step: Step) -> str:
        """Say which limit a step would pass; empty for none.

        A repair may add more than a limit allows at all. It passes when nothing else counts against that limit.
        """
        limits, adds = self._limits, len(step.adds)
        if self._partitions >= limits.parallel_partition_count:
            return f"parallel_partition_count {limits.parallel_partition_count}"
        if step.moves_leader and self._leaders >= limits.parallel_leader_movements:
            return f"parallel_leader_movements {limits.parallel_leader_movements}"
        if _passes(self._movements, adds, limits.max_concurrent_replica_movements):
            return f"max_concurrent_replica_movements {limits.max_concurrent_replica_movements}"
        if _passes(self._out_of[step.leader], adds, limits.max_movements_out_per_broker):
            return (
                f"max_movements_out_per_broker {limits.max_movements_out_per_broker} of broker {step.leader}"
            )
        for broker in step.adds:
            if _passes(self._into[broker], 1, limits.max_movements_in_per_broker):
                return f"max_movements_in_per_broker {limits.max_movements_in_per_broker} of broker {broker}"
        return ""


def _passes(used: int, more: int, limit: int | None) -> bool:
    return limit is not None and more > 0 and used > 0 and used + more > limit


def next_batch(
    moves: Sequence[Move],
    now: Mapping[TopicPartition, PartitionNow],
    live: frozenset[int],
    limits: BatchLimits,
    in_flight: Mapping[TopicPartition, Step],
    waited: Mapping[TopicPartition, int],
    lost: frozenset[int] = NOBODY,
) -> Batch:
    """Choose the steps to begin beside those under way.

    Args:
        moves: in the order in which they were asked for; one a partition.
        now: what the cluster says; a partition that is not in it was deleted.
        live: the brokers that are alive.
        limits: those that hold now.
        in_flight: the steps under way; their partitions get no other.
        waited: `Batch.waited` of the call before.
        lost: brokers that are stepped around, as `next_step` has it.
    """
    verdicts: dict[TopicPartition, Step | Finished | Waiting] = {}
    gone = []
    for move in moves:
        key = move.key
        if key in in_flight:
            continue
        if key in now:
            verdicts[key] = next_step(move, now[key], live, limits.replica_count, lost)
        else:
            gone.append(key)
    return choose_batch(verdicts, limits, in_flight, waited, tuple(gone))


def choose_batch(
    verdicts: Mapping[TopicPartition, Step | Finished | Waiting],
    limits: BatchLimits,
    in_flight: Mapping[TopicPartition, Step],
    waited: Mapping[TopicPartition, int],
    gone: tuple[TopicPartition, ...] = (),
) -> Batch:
    """Choose among verdicts of `next_step`, which must hold for these limits; the rest as in `next_batch`."""
    steps = [verdict for verdict in verdicts.values() if isinstance(verdict, Step)]
    finished = tuple(key for key, verdict in verdicts.items() if isinstance(verdict, Finished))
    waiting = {key: verdict for key, verdict in verdicts.items() if isinstance(verdict, Waiting)}
    begun, postponed = _choose(steps, _Room(limits, in_flight.values()), waited)
    waiting.update(postponed)
    more = bool(begun)
    rounds = {key: waited.get(key, 0) + more for key in postponed}
    return Batch(tuple(begun), waiting, finished, gone, rounds)


def _choose(
    steps: Sequence[Step], room: _Room, waited: Mapping[TopicPartition, int]
) -> tuple[list[Step], dict[TopicPartition, Waiting]]:
    """Choose among steps, and say of each other one what it waits for."""

    def turn(step: Step) -> tuple[int, bool, int]:
        rounds = waited.get(step.key, 0)
        return -rounds if rounds >= PATIENCE_ROUNDS else 0, not step.moves_leader, -rounds

    begun: list[Step] = []
    postponed: dict[TopicPartition, Waiting] = {}
    turns: dict[str, Waiting] = {}
    is_kept = False
    for step in sorted(steps, key=turn):
        limit = room.lacks(step)
        if not limit:
            room.take(step)
            begun.append(step)
            continue
        if limit not in turns:
            turns[limit] = Waiting(f"waits for its turn: reassignment.{limit} is reached", has_step=True)
        postponed[step.key] = turns[limit]
        if not is_kept and waited.get(step.key, 0) >= PATIENCE_ROUNDS:
            room.keep(step)
            is_kept = True
    return begun, postponed
