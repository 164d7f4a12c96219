"""The duration of a reassignment at a throttle, and the throttle for a duration (KIP-73, Q&A 1, 4 and 5).

The proposal's figures are computed as it defines them. Its MoveTime assumes equally large and evenly distributed
partitions, so there is also a time by brokers: each added replica is sent by its partition's leader and received by its
broker, together with the bytes written to it meanwhile, and the slowest broker decides. Sizes and rates are arguments.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Partition = tuple[str, int]

# Kafka's windows: replication.quota.window.num times their length; the proposal uses the full ones.
WINDOW_SECONDS: Final = 10.0
RESPONSE_BYTES: Final = 10 * 1024 * 1024  # replica.fetch.response.max.bytes


@dataclass(frozen=True, slots=True)
class Replicated:
    """The current state of a partition, for an estimate.

    Attributes:
        replicas: the brokers with its replicas; without a leader the first one counts as leader.
        leader: the broker id of the leader; -1 for none.
        size: the size of its log in bytes.
        rate: the write rate in bytes/s.
    """

    replicas: tuple[int, ...]
    leader: int
    size: int
    rate: float

    @property
    def sender(self) -> int:
        """The broker that added replicas fetch from."""
        return self.leader if self.leader >= 0 else self.replicas[0]


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The bytes that a reassignment sends from or to one broker.

    Args:
        broker: the broker's id.
        role: "leader" for the bytes that it sends, "follower" for those that it receives.
        size: the bytes of the replicas that are copied.
        rate: the bytes/s that are written to these partitions meanwhile, and are copied too.
    """

    broker: int
    role: str
    size: int
    rate: float

    def seconds(self, throttle: float) -> float:
        """Return the time for copying in seconds at a throttle in bytes/s; infinite if new writes use it all."""
        if not self.size:
            return 0.0
        return self.size / (throttle - self.rate) if throttle > self.rate else float("inf")

    def throttle_for(self, seconds: float) -> float:
        """Return the throttle in bytes/s with which this broker's copying takes `seconds`."""
        return self.size / seconds + self.rate if self.size else 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The size of a reassignment, from which times and throttles are computed (KIP-73).

    Attributes:
        partitions_moved: the number of partitions that the reassignment moves.
        partitions: the number of all partitions of the cluster.
        size: the bytes to send.
        log_size: the bytes of all replicas of all brokers (TotalLogSizePerBroker times brokers).
        bytes_in_max: the largest write rate of any broker as a leader, in bytes/s (max(BytesInPerSec)).
        loads: the bytes by broker and direction, the largest first.
    """

    partitions_moved: int
    partitions: int
    replicas_added: int
    brokers: int
    size: int
    log_size: int
    bytes_in_max: float
    replication_factor: float
    loads: tuple[BrokerLoad, ...]

    @property
    def move_ratio(self) -> float:
        """The part of all partitions that is moved: MoveRatio = #partitions-to-be-moved / #total-partition-count."""
        return self.partitions_moved / self.partitions if self.partitions else 0.0

    def move_seconds(self, throttle: float) -> float:
        """Return KIP-73's estimate of the time in seconds, at a throttle in bytes/s; infinite if it is too small.

        MoveTime = MoveRatio · TotalLogSizePerBroker · #Brokers / (quota - max(BytesInPerSec)).
        """
        amount = self.move_ratio * self.log_size
        if not amount:
            return 0.0
        return amount / (throttle - self.bytes_in_max) if throttle > self.bytes_in_max else float("inf")

    def seconds(self, throttle: float) -> float:
        """Return the time of the slowest broker, in seconds, at a throttle in bytes/s."""
        return max((load.seconds(throttle) for load in self.loads), default=0.0)

    def stuck(self, throttle: float) -> list[BrokerLoad]:
        """Return the brokers' loads that would never finish at a throttle in bytes/s."""
        return [load for load in self.loads if load.seconds(throttle) == float("inf")]

    def throttle_for(self, seconds: float) -> float:
        """Return the smallest throttle in bytes/s with which the move takes at most this time."""
        return max((load.throttle_for(seconds) for load in self.loads), default=0.0)

    def bounds(self, network: float | None) -> tuple[float, float | None]:
        """Return the lower and the upper bound of a useful throttle T, in bytes/s (KIP-73, Q&A 4).

        IN < T < N - IN / R, with IN the write rate, N the network's throughput and R the replication factor.

        Args:
            network: N in bytes/s; None if it is not known, then the upper bound is None.
        """
        upper = None if network is None else network - self.bytes_in_max / max(self.replication_factor, 1.0)
        return self.bytes_in_max, upper

    def response_seconds(self, throttle: float, response_bytes: int, network: float | None) -> float:
        """Return the time in seconds for one response of each broker (KIP-73, Q&A 5).

        #brokers · response / min(quota · #brokers, network), which must lie below the quota's window.

        Args:
            throttle: the quota in bytes/s.
            response_bytes: replica.fetch.response.max.bytes.
            network: the network's throughput in bytes/s; None if it is not known.
        """
        speed = throttle * self.brokers
        if network is not None:
            speed = min(speed, network)
        return self.brokers * response_bytes / speed


def estimate(
    cluster: Mapping[Partition, Replicated], plan: Mapping[Partition, Sequence[int]], brokers: int
) -> Estimate:
    """Return the estimate of a planned reassignment.

    Args:
        cluster: the state of all partitions of the cluster.
        plan: the target brokers of each partition to move, all of which are in the cluster.
        brokers: the number of brokers.

    >>> before = {("t", n): Replicated((1,), 1, 50_000_000, 0.0) for n in range(4)}
    >>> moved = estimate(before, {("t", 0): (2,), ("t", 1): (2,)}, brokers=2)
    >>> moved.move_ratio, moved.move_seconds(10_000_000), moved.seconds(10_000_000)
    (0.5, 10.0, 10.0)
    """
    sizes: Counter[tuple[int, str]] = Counter()
    rates: dict[tuple[int, str], float] = {}
    moved = added = 0
    for partition, target in plan.items():
        now = cluster[partition]
        new = [broker for broker in target if broker not in now.replicas]
        moved += bool(set(target) ^ set(now.replicas))
        added += len(new)
        for broker in new:
            for key in ((now.sender, "leader"), (broker, "follower")):
                sizes[key] += now.size
                rates[key] = rates.get(key, 0.0) + now.rate
    loads = [BrokerLoad(broker, role, size, rates[broker, role]) for (broker, role), size in sizes.items()]
    written: dict[int, float] = {}
    for now in cluster.values():
        written[now.sender] = written.get(now.sender, 0.0) + now.rate
    replicas = sum(len(now.replicas) for now in cluster.values())
    return Estimate(
        partitions_moved=moved,
        partitions=len(cluster),
        replicas_added=added,
        brokers=brokers,
        size=sum(load.size for load in loads if load.role == "follower"),
        log_size=sum(now.size * len(now.replicas) for now in cluster.values()),
        bytes_in_max=max(written.values(), default=0.0),
        replication_factor=replicas / len(cluster) if cluster else 1.0,
        loads=tuple(sorted(loads, key=lambda load: (-load.size, load.broker, load.role))),
    )
