"""The next steps of all partitions, within the limits (KIP-435, "Collecting a reassignment batch", corrected).

Leader movements first, up to their limit, then the others; but steps that have waited `PATIENCE_ROUNDS` precede them,
the longest wait first. A *round* is a batch that began at least one step. For the step that has waited longest and
does not fit, slots are reserved, so that two brokers that are rarely free together become free for it. A partition
whose step fits beside the steps under way and this reservation waits at most `PATIENCE_ROUNDS` + (partitions - 1)
rounds: in each of them a step begins that has waited at least as long, and whose wait then starts again.

Batches have no state other than the caller's arguments, so limits may change at any time; they apply from the next step
on, and a step under way occupies slots exactly as long as it is in `in_flight`.

Reassignments of other tools take no slots. Their partitions wait.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from quotas.errors import DefinitionError
from quotas.reassignment.step import (
    NO_BROKERS,
    Finished,
    Move,
    PartitionState,
    Step,
    TopicPartition,
    Waiting,
    next_step,
)

PATIENCE_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The limits of steps that are under way at the same time.

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
        """The number of replicas that one step may add: R, bounded by the other limits on added replicas.

        A step cannot be divided, so it must fit into each limit by itself.
        """
        out = self.max_movements_out_per_broker or self.parallel_replica_count
        return min(self.parallel_replica_count, self.max_concurrent_replica_movements, out)


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of `next_batch`: the steps to begin now, and why other partitions have none.

    Attributes:
        steps: the steps to begin, in this order.
        waiting: the partitions whose next step may not begin now, with the reason.
        finished: the partitions that have reached their target.
        missing: the partitions that do not exist in the cluster.
        waited: for how many rounds each partition has waited because of a limit; an argument of the next call.
    """

    steps: tuple[Step, ...]
    waiting: Mapping[TopicPartition, Waiting]
    finished: tuple[TopicPartition, ...]
    missing: tuple[TopicPartition, ...]
    waited: Mapping[TopicPartition, int]


class FreeSlots:
    """The numbers of concurrent steps and replicas that the limits still allow beside the steps under way."""

    def __init__(self, limits: BatchLimits, under_way: Iterable[Step]) -> None:
        self._limits = limits
        self._partitions = self._leaders = self._movements = 0
        self._into: Counter[int] = Counter()
        self._out_of: Counter[int] = Counter()
        for step in under_way:
            self.take(step)

    def take(self, step: Step) -> None:
        """Count a step as under way, in all limits."""
        self._partitions += 1
        self._leaders += step.moves_leader
        self.reserve(step)

    def reserve(self, step: Step) -> None:
        """Count only the replicas that a step adds, to keep room for a step that does not fit yet."""
        self._movements += len(step.adds)
        self._into.update(step.adds)
        self._out_of[step.leader] += len(step.adds)

    def exceeded_limit(self, step: Step) -> str:
        """Return the name and value of the limit that a step would exceed; "" if it fits.

        A step that adds more replicas than a limit allows still fits if no other step counts against that limit.
        """
        limits, adds = self._limits, len(step.adds)
        if self._partitions >= limits.parallel_partition_count:
            return f"parallel_partition_count {limits.parallel_partition_count}"
        if step.moves_leader and self._leaders >= limits.parallel_leader_movements:
            return f"parallel_leader_movements {limits.parallel_leader_movements}"
        if _exceeds(self._movements, adds, limits.max_concurrent_replica_movements):
            return f"max_concurrent_replica_movements {limits.max_concurrent_replica_movements}"
        if _exceeds(self._out_of[step.leader], adds, limits.max_movements_out_per_broker):
            return (
                f"max_movements_out_per_broker {limits.max_movements_out_per_broker} of broker {step.leader}"
            )
        for broker in step.adds:
            if _exceeds(self._into[broker], 1, limits.max_movements_in_per_broker):
                return f"max_movements_in_per_broker {limits.max_movements_in_per_broker} of broker {broker}"
        return ""


def _exceeds(used: int, more: int, limit: int | None) -> bool:
    return limit is not None and more > 0 and used > 0 and used + more > limit


def next_batch(
    moves: Sequence[Move],
    now: Mapping[TopicPartition, PartitionState],
    live: frozenset[int],
    limits: BatchLimits,
    in_flight: Mapping[TopicPartition, Step],
    waited: Mapping[TopicPartition, int],
    lost: frozenset[int] = NO_BROKERS,
    cordoned: frozenset[int] = NO_BROKERS,
) -> Batch:
    """Choose the steps to begin beside those under way.

    Args:
        moves: one for each partition, in the order of the requests.
        now: the state of the partitions in the cluster; a partition that is not in it was deleted.
        live: the brokers that are alive.
        limits: the limits in force.
        in_flight: the steps under way; their partitions get no other step.
        waited: `Batch.waited` of the previous call.
        lost: brokers that have been dead for so long that steps leave their replicas out.
        cordoned: brokers whose log directories are all cordoned.
    """
    next_steps: dict[TopicPartition, Step | Finished | Waiting] = {}
    missing = []
    for move in moves:
        key = move.key
        if key in in_flight:
            continue
        if key in now:
            next_steps[key] = next_step(move, now[key], live, limits.replica_count, lost, cordoned)
        else:
            missing.append(key)
    return choose_batch(next_steps, limits, in_flight, waited, tuple(missing))


def choose_batch(
    next_steps: Mapping[TopicPartition, Step | Finished | Waiting],
    limits: BatchLimits,
    in_flight: Mapping[TopicPartition, Step],
    waited: Mapping[TopicPartition, int],
    missing: tuple[TopicPartition, ...] = (),
) -> Batch:
    """Choose which of the given steps begin now; like `next_batch`, for a caller that has computed them.

    Args:
        next_steps: the result of `next_step` for each partition, in the order of the requests.
        missing: the partitions that do not exist in the cluster; for the result only.
    """
    step_queue = StepQueue()
    for place, result in enumerate(next_steps.values()):
        if isinstance(result, Step):
            step_queue.add(result, place, waited.get(result.key, 0))
    finished = tuple(key for key, result in next_steps.items() if isinstance(result, Finished))
    waiting = {key: result for key, result in next_steps.items() if isinstance(result, Waiting)}
    begun = step_queue.begin(limits, in_flight.values())
    postponed = step_queue.waiting()
    waiting.update(postponed)
    more = bool(begun)
    rounds = {key: waited.get(key, 0) + more for key in postponed}
    return Batch(tuple(begun), waiting, finished, missing, rounds)


class _SlotUse(NamedTuple):
    """The properties of a step by which limits count it."""

    moves_leader: bool
    leader: int
    adds: tuple[int, ...]


class StepQueue:
    """The waiting steps, in the order in which they should begin.

    Steps that count equally against all limits are in one queue: if the first one does not fit, none does. So the cost
    of a batch depends on the number of queues and of steps that begin, and not on the number of waiting steps.
    """

    def __init__(self) -> None:
        self._queues: dict[_SlotUse, list[tuple[int, int, Step]]] = {}
        self._limits: dict[_SlotUse, str] = {}
        self._round = 0

    def add(self, step: Step, place: int, waited: int = 0) -> None:
        """Add a waiting step.

        Args:
            place: the index of its partition in the order of the requests.
            waited: the number of rounds that it has waited already.
        """
        slot_use = _SlotUse(step.moves_leader, step.leader, step.adds)
        heappush(self._queues.setdefault(slot_use, []), (self._round - waited, place, step))

    def begin(self, limits: BatchLimits, under_way: Iterable[Step] = ()) -> list[Step]:
        """Remove and return the steps that fit into the limits now, beside the steps under way."""
        slots = FreeSlots(limits, under_way)
        begun: list[Step] = []
        self._limits = {}
        is_reserved = False
        heads = [self._sort_key(slot_use) for slot_use in self._queues]
        heapify(heads)
        while heads:
            overdue, *_, slot_use = heappop(heads)
            queue = self._queues[slot_use]
            step = queue[0][-1]
            limit = slots.exceeded_limit(step)
            if limit:
                self._limits[slot_use] = limit
                if overdue and not is_reserved:
                    slots.reserve(step)
                    is_reserved = True
                continue
            slots.take(step)
            begun.append(step)
            heappop(queue)
            if queue:
                heappush(heads, self._sort_key(slot_use))
            else:
                del self._queues[slot_use]
        self._round += bool(begun)
        return begun

    def waiting(self) -> dict[TopicPartition, Waiting]:
        """Return by partition which reached limit its step waits for; only for steps that `begin` has not returned."""
        reasons = {
            limit: Waiting(f"waits: reassignment.{limit} is reached", has_step=True)
            for limit in self._limits.values()
        }
        return {
            step.key: reasons[limit]
            for slot_use, limit in self._limits.items()
            for _, _, step in self._queues[slot_use]
        }

    def _sort_key(self, slot_use: _SlotUse) -> tuple[int, bool, int, int, _SlotUse]:
        """Return the sort key of a queue's first step: the smallest is next; keys are unique."""
        since, place, _ = self._queues[slot_use][0]
        rounds = self._round - since
        return -rounds if rounds >= PATIENCE_ROUNDS else 0, not slot_use.moves_leader, since, place, slot_use


# ----------------------------------------------------------------------------------------------------
# All batches of a reassignment if every step succeeds (KIP-435), for `sluice reassign plan`.
#
# A batch here begins when the previous one is complete. The executor does not wait so long: it uses a free slot at
# once, so it has more and smaller batches of the same steps, in nearly this order.
#
# The time for copying is in `estimate`.


@dataclass(frozen=True, slots=True)
class Plan:
    """All batches of a reassignment if every step succeeds, for `sluice reassign plan`.

    Attributes:
        batches: the steps of each batch; a batch begins when the one before is complete.
        finished: the partitions that reach their target.
        waiting: the partitions that do not reach it, with the reason.
    """

    batches: tuple[tuple[Step, ...], ...]
    finished: tuple[TopicPartition, ...]
    waiting: Mapping[TopicPartition, Waiting]


def succeeded(now: PartitionState, step: Step) -> PartitionState:
    """Return the state of a partition after its step has succeeded: the added replicas are in sync.

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
    cordoned: frozenset[int] = NO_BROKERS,
) -> Plan:
    """Return all batches until the moves are finished, as if every step succeeded.

    Args:
        moves: the requested moves; all their partitions exist.
        now: the cluster's current state.
        live: the brokers that are alive.
        limits: the limits of steps that are under way at the same time.
        cordoned: brokers whose log directories are all cordoned.
    """
    remaining = {move.key: (place, move) for place, move in enumerate(moves)}
    state = {key: now[key] for key in remaining}
    batches: list[tuple[Step, ...]] = []
    finished: list[TopicPartition] = []
    waiting: dict[TopicPartition, Waiting] = {}
    queue = StepQueue()

    def compute(key: TopicPartition) -> None:
        place, move = remaining[key]
        result = next_step(move, state[key], live, limits.replica_count, cordoned=cordoned)
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
