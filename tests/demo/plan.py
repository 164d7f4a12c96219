"""What the demo's clients are given and what they try, and whether what was measured is right. Pure."""

from dataclasses import dataclass
from typing import Final

TOLERANCE: Final = 0.05
PRODUCE: Final = "Produce"
FETCH: Final = "Fetch"
DIRECTIONS: Final = (PRODUCE, FETCH)


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client id: it writes to a topic of its own and reads the same topic.

    Args:
        offered: bytes/s that it tries to write; None: as fast as it can.
        produce_quota: bytes/s that it may write.
        fetch_quota: bytes/s that it may read.
    """

    client_id: str
    says: str
    offered: float | None
    produce_quota: int
    fetch_quota: int

    def quota(self, direction: str) -> float:
        """Return the quota of one direction."""
        return self.produce_quota if direction == PRODUCE else self.fetch_quota

    def expected(self, direction: str) -> float:
        """Return the rate that is right: what it tries, or the quota where that is less.

        It reads no faster than it writes, since it reads only its own records.

        >>> ClientPlan("a", "", offered=500.0, produce_quota=1000, fetch_quota=800).expected("Produce")
        500.0
        >>> ClientPlan("a", "", offered=None, produce_quota=1000, fetch_quota=800).expected("Fetch")
        800
        """
        written = self.produce_quota if self.offered is None else min(self.offered, self.produce_quota)
        return written if direction == PRODUCE else min(written, self.fetch_quota)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one client reached in one direction.

    Args:
        waited: the part of its time that the connection waited which waited longest.
    """

    plan: ClientPlan
    direction: str
    measured: float
    waited: float

    @property
    def ratio(self) -> float:
        """Return the measured rate by the right one."""
        return self.measured / self.plan.expected(self.direction)

    @property
    def ok(self) -> bool:
        """Return whether the rate is within the tolerance.

        >>> plan = ClientPlan("a", "", offered=None, produce_quota=1000, fetch_quota=1000)
        >>> [Outcome(plan, "Produce", measured, 0.0).ok for measured in (940.0, 960.0, 1040.0, 1060.0)]
        [False, True, True, False]
        """
        return abs(self.ratio - 1.0) <= TOLERANCE

    def line(self) -> str:
        """Return the closing line for a person."""
        quota, expected = self.plan.quota(self.direction), self.plan.expected(self.direction)
        verdict = "ok" if self.ok else "NOT ok"
        return (
            f"{self.plan.client_id:<6} {self.direction:<8} quota {megabytes(quota)}  right {megabytes(expected)}  "
            f"measured {megabytes(self.measured)}  ratio {self.ratio:5.3f}  "
            f"waited {self.waited:4.0%}  {verdict}"
        )


def megabytes(bytes_per_second: float) -> str:
    """Write a rate.

    >>> megabytes(1_500_000)
    '1.50 MB/s'
    """
    return f"{bytes_per_second / 1e6:.2f} MB/s"


def topic_of(plan: ClientPlan) -> str:
    """Return the name of a client's own topic."""
    return f"demo-{plan.client_id}"


# The quotas differ, so that one cannot be mistaken for another; together they are far below what two cores can move.
PLANS: Final = (
    ClientPlan(
        "under", "half of its quota", offered=1_000_000, produce_quota=2_000_000, fetch_quota=2_000_000
    ),
    ClientPlan("at", "just its quota", offered=1_500_000, produce_quota=1_500_000, fetch_quota=1_500_000),
    ClientPlan("over", "as fast as it can", offered=None, produce_quota=3_000_000, fetch_quota=1_000_000),
)
