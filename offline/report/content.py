"""The contents of the report as plain values: the job fills them from tables, `plots` and `page` draw them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Heavy:
    """One of the heaviest clients; rates in bytes/s.

    Attributes:
        share: its share of all bytes in this direction, 0 to 1.
        need: the quota that it needs, in bytes/s; -1 if more than every candidate. None if the report is of a sample
            of connections; `quota` is None then too.
        series: its bytes/s by step of the time axis.
    """

    name: str
    share: float
    peak_10s: float
    peak_1s: float
    p99: float
    connections: int
    need: float | None
    quota: float | None
    throttle_ms: int
    series: Sequence[float]


@dataclass(frozen=True, slots=True)
class Curve:
    """The expected effect of one candidate as the default."""

    quota: float
    throttled: int
    clients: int
    peak: float


@dataclass(frozen=True, slots=True)
class Direction:
    """The contents of the page about produce or fetch.

    Attributes:
        name: `produce` or `fetch`.
        clients: the number of clients.
        steps_s: the time axis of the heaviest clients' series, in seconds since the first one.
        total: all clients' bytes/s on this axis.
        hours: bytes/s by hour of the day, UTC; empty if too little was recorded to show a day.
        blocks_s: the time axis of `before` and `after`.
        before, after: the busiest broker's load as recorded, and with the recommendation.
        curve: the candidate defaults; empty for a sample of connections, which does not show clients' needs.
        default: the recommended default, or None; throttled: the number of clients that wait with the recommendation.
        throttle_ms: the sum of their connections' waits; overrides: the number of overrides.
        peak_before, peak_after: the peak of the broker that is the busiest in each case.
        capacity: the stated capacity, or None.
        gateway: whether one budget is for all brokers together: peaks, loads and capacity are those of all together.
    """

    name: str
    clients: int
    heavy: Sequence[Heavy]
    steps_s: Sequence[float]
    total: Sequence[float]
    hours: Sequence[float]
    curve: Sequence[Curve]
    blocks_s: Sequence[float]
    before: Sequence[float]
    after: Sequence[float]
    broker: int
    default: float | None
    throttled: int
    throttle_ms: int
    overrides: int
    peak_before: float
    peak_after: float
    capacity: float | None
    gateway: bool = False

    @property
    def where(self) -> str:
        """The place whose load the quotas bound, in words: the busiest broker, or all together."""
        return "all brokers together" if self.gateway else "busiest broker"


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of the whole page."""

    begun: str
    seconds: int
    requests: int
    policy: str
    recommendations: Sequence[Row]
    problems: Sequence[str]
    directions: Sequence[Direction]
    quotas: str
    gateway: bool = False
    goal: Mapping[str, str] = field(default_factory=dict)
