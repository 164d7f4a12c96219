"""A cluster in memory that reassigns as KRaft's controller does: what the planner's simulations submit their steps to.

It models what a step depends on: the merged list of replicas while one is under way, the three rules by which Kafka's
versions call it complete, elections, cancels, ISRs that shrink with a death and grow when a replica has caught up, and
who holds which data. Nothing happens by itself: a test says who dies and who catches up. Not modelled: time, bytes.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from quotas.reassignment.step import PartitionState, TopicPartition

Completion = Literal["added", "targets", "added, and targets where it shrinks"]
"""What must be in sync: before Kafka 3.8; 3.8 to 4.1; after KAFKA-19975."""


class RefusedError(Exception):
    """The controller refuses."""


@dataclass
class SimulatedPartition:
    """A partition; `holders` have all of its data, in sync or not."""

    replicas: list[int]
    isr: list[int]
    leader: int
    min_isr: int = 1
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)
    holders: set[int] = field(default_factory=set)

    def now(self) -> PartitionState:
        """What the cluster says of it."""
        return PartitionState(
            replicas=tuple(self.replicas),
            isr=tuple(self.isr),
            leader=self.leader,
            adding=tuple(self.adding),
            removing=tuple(self.removing),
            min_isr=self.min_isr,
        )


class SimulatedCluster:
    """Brokers 0 to n - 1, all alive.

    Attributes:
        copied: how often a broker that held nothing was sent a partition's data.
    """

    def __init__(self, brokers: int, completion: Completion = "targets") -> None:
        self.brokers = frozenset(range(brokers))
        self.live = self.brokers
        self.completion = completion
        self.partitions: dict[TopicPartition, SimulatedPartition] = {}
        self.copied: Counter[tuple[TopicPartition, int]] = Counter()

    def create(self, key: TopicPartition, replicas: tuple[int, ...], min_isr: int = 1) -> None:
        """Create a partition, all of it in sync."""
        self.partitions[key] = SimulatedPartition(
            list(replicas), list(replicas), replicas[0], min_isr, holders=set(replicas)
        )

    def delete(self, key: TopicPartition) -> None:
        """Delete it."""
        del self.partitions[key]

    def now(self) -> dict[TopicPartition, PartitionState]:
        """What the cluster says of every partition."""
        return {key: partition.now() for key, partition in self.partitions.items()}

    def alter(self, key: TopicPartition, target: tuple[int, ...]) -> None:
        """AlterPartitionReassignments. As in Kafka, one under way is overridden and added to what it was."""
        partition = self.partitions[key]
        if not target or len(set(target)) < len(target) or not self.brokers.issuperset(target):
            raise RefusedError("INVALID_REPLICA_ASSIGNMENT")
        added = [broker for broker in target if broker not in partition.replicas]
        partition.removing = [broker for broker in partition.replicas if broker not in target]
        partition.adding = added
        partition.replicas = [*target, *partition.removing]
        self._complete(key)

    def cancel(self, key: TopicPartition) -> None:
        """AlterPartitionReassignments with null."""
        partition = self.partitions[key]
        if not partition.adding and not partition.removing:
            raise RefusedError("NO_REASSIGNMENT_IN_PROGRESS")
        left = [broker for broker in partition.isr if broker not in partition.adding]
        if not left:
            raise RefusedError("INVALID_REPLICA_ASSIGNMENT")
        partition.replicas = [broker for broker in partition.replicas if broker not in partition.adding]
        partition.holders -= set(partition.adding)
        partition.isr, partition.adding, partition.removing = left, [], []
        self._elect(partition)

    def elect_preferred(self, key: TopicPartition) -> None:
        """ElectLeaders: the first replica leads if it is in sync and alive."""
        partition = self.partitions[key]
        preferred = partition.replicas[0]
        if preferred not in partition.isr or preferred not in self.live:
            raise RefusedError("PREFERRED_LEADER_NOT_AVAILABLE")
        partition.leader = preferred

    def behind(self, key: TopicPartition) -> list[int]:
        """The replicas that could catch up with the leader now."""
        partition = self.partitions[key]
        if partition.leader < 0:
            return []
        return [
            broker for broker in partition.replicas if broker in self.live and broker not in partition.isr
        ]

    def catch_up(self, key: TopicPartition, broker: int) -> None:
        """A replica has caught up, and joins the ISR."""
        partition = self.partitions[key]
        assert broker in self.behind(key), f"{broker} cannot catch up"
        if broker not in partition.holders:
            self.copied[key, broker] += 1
            partition.holders.add(broker)
        partition.isr.append(broker)
        self._complete(key)

    def catch_up_all(self) -> None:
        """Every replica that can catch up does, until nothing changes."""
        while found := [(key, broker) for key in self.partitions for broker in self.behind(key)]:
            for key, broker in found:
                if broker in self.behind(key):
                    self.catch_up(key, broker)

    def fall_behind(self, key: TopicPartition, broker: int) -> None:
        """A follower that lives is too slow, and leaves the ISR."""
        partition = self.partitions[key]
        assert broker != partition.leader, "a leader is in sync with itself"
        partition.isr.remove(broker)

    def die(self, broker: int) -> None:
        """A broker dies; the last of an ISR stays in it, without a leader."""
        self.live -= {broker}
        for partition in self.partitions.values():
            if broker in partition.isr and len(partition.isr) > 1:
                partition.isr.remove(broker)
            self._elect(partition)

    def come_back(self, broker: int) -> None:
        """It returns with the data it had."""
        self.live |= {broker}
        for partition in self.partitions.values():
            self._elect(partition)

    def _complete(self, key: TopicPartition) -> None:
        partition = self.partitions[key]
        target = [broker for broker in partition.replicas if broker not in partition.removing]
        shrinks = len(partition.removing) > len(partition.adding)
        wanted = partition.adding
        if self.completion == "targets" or (self.completion != "added" and shrinks):
            wanted = target
        left = [broker for broker in partition.isr if broker not in partition.removing]
        is_reassigned = partition.adding or partition.removing
        if is_reassigned and left and set(wanted) <= set(partition.isr):
            partition.holders -= set(partition.removing)
            partition.replicas, partition.isr = target, left
            partition.adding, partition.removing = [], []
        self._elect(partition)

    def _elect(self, partition: SimulatedPartition) -> None:
        """Elect the first in sync, where the leader is none any more."""
        can_lead = [
            broker for broker in partition.replicas if broker in partition.isr and broker in self.live
        ]
        if partition.leader not in can_lead:
            partition.leader = can_lead[0] if can_lead else -1
