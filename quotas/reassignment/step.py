"""The next step of one partition's reassignment (KIP-435, "Calculating a Reassignment Step", corrected).

The proposal's terms: FTR are the final target replicas, CR the current ones, ER the excess (in CR, not in FTR), NR the
new ones of a step, DR the dropped ones, and TR = CR + NR - DR is the list submitted to the controller. The step here
follows the proposal's aim and not its text, which drops replicas before their successors are in sync; docs/kips.md
lists every difference.

A step is computed only from the cluster's current state, so that a restarted executor computes it again. It is safe
under both rules by which Kafka completes a reassignment: all added replicas in sync (before 3.8, and again after
KAFKA-19975), or all replicas of TR (3.8 to 4.1, where one dead replica blocks it).

Time is not used here: the caller decides which brokers are `lost`, that is dead for longer than it waits.

Non-obvious:

- Adds and drops of a step are one reassignment. The cluster itself drops when the added replicas are in sync; with
  a second request, a replica could be gone before its successor is there.
- The order of a step's replicas is the order of preferred leaders. It applies as soon as the step is submitted, so
  every step's list begins with the target's members, in the target's order.
- A dead replica in a step may block it for ever, by the rule of Kafka 3.8 to 4.1, even a replica that does not
  move. So a step with one is not begun, unless the partition has too few in sync; after a while it is left out.
- No step may leave a replica on a cordoned broker. Kafka 4.3 and later refuse every list with a broker whose log
  directories are all cordoned (KIP-1066), even if it has the partition. So all such replicas leave in one step, and as
  many are added.
- No step overrides another. Kafka computes `adding` against the list in the middle of a move, so a cancel after an
  override does not restore the original.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

TopicPartition = tuple[str, int]
NO_BROKERS: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Move:
    """A requested reassignment of one partition.

    Args:
        topic: the topic's name.
        partition: the partition's index.
        original: the replicas at the time of the request.
        target: the requested replicas (FTR).
    """

    topic: str
    partition: int
    original: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def key(self) -> TopicPartition:
        """The partition's topic and index, by which dicts contain its state."""
        return self.topic, self.partition

    def reversed(self) -> "Move":
        """Return the move back to the original replicas; it may begin at any state in between."""
        return replace(self, target=self.original)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The current state of a partition in the cluster.

    Attributes:
        replicas: the broker ids in Kafka's order; during a reassignment with the replicas that it adds and removes.
        isr: the replicas in sync.
        leader: the broker id of the leader; -1 for none.
        adding: the replicas that a reassignment under way adds.
        removing: the replicas that a reassignment under way removes.
        min_isr: the topic's min.insync.replicas.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    min_isr: int

    @property
    def is_reassigned(self) -> bool:
        """Whether a reassignment of the partition is under way, of Sluice or of another tool."""
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a partition's reassignment, which is submitted to the controller as a reassignment of its own.

    Attributes:
        replicas: the replicas to submit (TR), in this order; the first one becomes the preferred leader at once.
        adds: the replicas that the step adds (NR); their brokers are alive.
        drops: the replicas that the step removes (DR), also target replicas on lost brokers, which are added again when
            the brokers are back.
        elects: the preferred leader to elect when the step is done; None for no election.
        current: the partition's replicas when the step was computed (CR).
        leader: the partition's leader when the step was computed, from which added replicas fetch.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adds: tuple[int, ...]
    drops: tuple[int, ...]
    elects: int | None
    current: tuple[int, ...]
    leader: int

    @property
    def key(self) -> TopicPartition:
        """The partition's topic and index, by which dicts contain the step."""
        return self.topic, self.partition

    @property
    def submits(self) -> bool:
        """Whether the step changes replicas or their order; if not, it only elects a leader."""
        return self.replicas != self.current

    @property
    def moves_leader(self) -> bool:
        """Whether the step changes the leader, and so counts against parallel.leader.movements."""
        return self.elects is not None or self.leader in self.drops

    def is_under_way(self, now: PartitionState) -> bool:
        """Whether the reassignment of the partition that is under way in the cluster is this step."""
        return (
            set(now.adding) == set(self.adds) and set(now.removing) == set(self.drops) and now.is_reassigned
        )

    def is_done(self, now: PartitionState) -> bool:
        """Whether the step is complete: nothing is under way, its replicas are in place, added ones in sync."""
        return not now.is_reassigned and now.replicas == self.replicas and set(self.adds) <= set(now.isr)

    def blocked_by(self, now: PartitionState, lost: frozenset[int]) -> tuple[int, ...]:
        """Return the lost brokers that keep this step, which is under way, from completing; empty if it can complete.

        Args:
            lost: the brokers that have been dead for too long.
        """
        behind = [replica for replica in self.adds if replica not in now.isr]
        poll_requested: Sequence[int] = behind or [
            replica for replica in self.replicas if replica not in now.isr
        ]
        if now.leader < 0:  # there is no leader to copy from
            poll_requested = now.isr
        return tuple(replica for replica in poll_requested if replica in lost)

    def may_be_cancelled(self, now: PartitionState) -> bool:
        """Whether enough replicas (min.insync.replicas) stay in sync after a cancel, which removes the added ones."""
        kept = [replica for replica in now.isr if replica not in self.adds]
        if len(kept) == len(now.isr):
            return bool(kept)  # no replica in sync is removed, even below min ISR
        return len(kept) >= max(1, min(now.min_isr, len(self.current)))


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of `next_step` for a partition that has reached its target."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The result of `next_step` for a partition that has not reached its target, but may not begin a step now.

    Attributes:
        reason: why, as text for the operator.
        brokers: the dead brokers that the partition waits for.
        has_step: whether it has a next step, which only waits because of the limits of concurrent steps.
    """

    reason: str
    brokers: tuple[int, ...] = ()
    has_step: bool = False


class _Change(NamedTuple):
    """The replicas that a step adds and drops."""

    adds: tuple[int, ...]
    drops: tuple[int, ...]


def next_step(
    move: Move,
    now: PartitionState,
    live: frozenset[int],
    replica_count: int,
    lost: frozenset[int] = NO_BROKERS,
    cordoned: frozenset[int] = NO_BROKERS,
) -> Step | Finished | Waiting:
    """Return the next step of a partition, or why there is none.

    Args:
        move: the requested move.
        now: the partition's current state in the cluster.
        live: the brokers that are alive.
        replica_count: the largest number of replicas that one step adds (R).
        lost: brokers that have been dead for so long that steps leave their replicas out.
        cordoned: brokers whose log directories are all cordoned.

    >>> move = Move("t", 0, (0, 1, 2), (3, 4, 5))
    >>> now = PartitionState((0, 1, 2), (0, 1, 2), 0, (), (), 2)
    >>> step = next_step(move, now, frozenset(range(6)), 1)
    >>> step.adds, step.drops, step.replicas, step.elects
    ((3,), (1,), (3, 0, 2), 3)
    """
    if now.is_reassigned:
        return Waiting(
            f"another reassignment of it is under way: adding {list(now.adding)}, removing {list(now.removing)}"
        )
    if now.replicas == move.target:
        return _final_step(move, now, live)
    in_sync = [replica for replica in now.replicas if replica in now.isr and replica in live]
    if now.leader not in in_sync:
        return Waiting("it has no leader: none of its replicas that are in sync is alive")
    if len(move.target) < min(now.min_isr, len(move.original)):
        return Waiting(
            f"the target has {len(move.target)} replicas, fewer than min.insync.replicas {now.min_isr}"
        )
    if barred := [broker for broker in move.target if broker in cordoned]:
        return Waiting(f"all log directories of {_named(barred)} are cordoned")
    if set(now.replicas) == set(move.target):
        return _step(move, now, in_sync, _Change((), ()))
    change = _choose_change(move, now, live, lost, cordoned, replica_count, in_sync)
    replicas = {*now.replicas, *change.adds} - {*change.drops}
    if replicas == {*now.replicas}:
        return _why_nothing_changes(move, now, live, in_sync)
    if barred := sorted(replicas & cordoned):
        return Waiting(
            f"all log directories of {_named(barred)} are cordoned, and not all replicas there can leave in one step"
        )
    dead = tuple(replica for replica in move.target if replica in replicas and replica not in live)
    dead += tuple(sorted(replicas - live - {*dead}))
    # Below min ISR an additional copy justifies a step that may not complete; dropping dead replicas does not.
    if dead and (not change.adds or len(in_sync) >= _in_sync_min(move, now)):
        return Waiting(f"{_brokers(dead)} not alive and would keep the step from completing", dead)
    return _step(move, now, in_sync, change)


def _in_sync_min(move: Move, now: PartitionState) -> int:
    return min(now.min_isr, len(move.target))


def _choose_change(
    move: Move,
    now: PartitionState,
    live: frozenset[int],
    lost: frozenset[int],
    cordoned: frozenset[int],
    replica_count: int,
    in_sync: Sequence[int],
) -> _Change:
    """Return the replicas that the step adds (NR) and drops (DR)."""
    needed = _in_sync_min(move, now)
    in_repair = len(in_sync) < needed
    missing = [broker for broker in move.target if broker not in now.replicas and broker in live]
    excess = [replica for replica in now.replicas if replica not in move.target]
    at_once = max(replica_count, sum(replica in cordoned for replica in excess))
    adds = missing[: max(at_once, needed - len(in_sync))]
    # A replica on a lost broker is not a copy: it does not count, and is dropped before any other.
    lost_replicas = [replica for replica in excess if replica in lost or (in_repair and replica not in live)]
    lost_replicas += [replica for replica in now.replicas if replica in lost and replica in move.target]
    factor = min(max(len(now.replicas), len(move.original)), len(move.target))
    size_min = max(factor, needed)
    room = len(now.replicas) - len(lost_replicas) + len(adds) - size_min
    leaving = sorted(
        (replica for replica in excess if replica not in lost_replicas),
        key=lambda replica: (
            replica not in cordoned,
            replica in live,
            replica in in_sync,
            replica == now.leader,
        ),
    )
    if in_repair:
        leaving = [replica for replica in leaving if replica not in in_sync]
    drops = leaving[: max(0, min(max(at_once, len(adds)), room))]
    size = len(now.replicas) + len(adds) - len(drops)
    _keep_needed(drops, size - len(lost_replicas), len(adds), in_sync, needed)
    # Without a replica to add or to drop, a smaller list has no advantage.
    least = needed if adds or drops else size_min
    size = len(now.replicas) + len(adds) - len(drops)
    return _Change(tuple(adds), (*lost_replicas[: max(0, size - least)], *drops))


def _keep_needed(drops: list[int], size: int, adds: int, in_sync: Sequence[int], needed: int) -> None:
    """Remove from `drops` the replicas that are needed: as many stay in sync as now, or as fit, at least `needed`."""
    while leaves := [replica for replica in drops if replica in in_sync]:
        kept = sum(replica not in drops for replica in in_sync) + adds
        if kept >= max(needed, min(len(in_sync), size)):
            return
        drops.remove(leaves[-1])
        size += 1


def _step(move: Move, now: PartitionState, in_sync: Sequence[int], change: _Change) -> Step:
    replicas = {*now.replicas, *change.adds} - {*change.drops}
    wanted = tuple(replica for replica in move.target if replica in replicas)
    rest = tuple(replica for replica in now.replicas if replica in replicas and replica not in wanted)
    preferred = move.target[0]
    may_lead = preferred in change.adds or preferred in in_sync
    elects = preferred if may_lead and preferred in replicas and preferred != now.leader else None
    return Step(
        topic=move.topic,
        partition=move.partition,
        replicas=wanted + rest,
        adds=change.adds,
        drops=change.drops,
        elects=elects,
        current=now.replicas,
        leader=now.leader,
    )


def _final_step(move: Move, now: PartitionState, live: frozenset[int]) -> Step | Finished | Waiting:
    """Return the last step, when the replicas are the target's in its order: the election of the preferred leader."""
    preferred = move.target[0]
    if now.leader == preferred or preferred not in live:
        return Finished()
    if preferred not in now.isr:
        return Waiting(f"the preferred leader {preferred} is not in sync yet")
    return _step(move, now, (preferred,), _Change((), ()))


def _why_nothing_changes(
    move: Move, now: PartitionState, live: frozenset[int], in_sync: Sequence[int]
) -> Waiting:
    """Return why no replica can be added or dropped."""
    dead = tuple(replica for replica in move.target if replica not in live)
    if dead:
        return Waiting(f"waits for {_brokers(dead)} not alive", dead)
    behind = [replica for replica in now.replicas if replica not in in_sync]
    return Waiting(f"replicas {behind} are not in sync, and dropping others would leave too few in sync")


def _brokers(dead: Sequence[int]) -> str:
    return f"{_named(dead)}, which {'is' if len(dead) == 1 else 'are'}"


def _named(brokers: Sequence[int]) -> str:
    return f"broker {brokers[0]}" if len(brokers) == 1 else f"brokers {list(brokers)}"
