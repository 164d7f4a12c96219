"""The contents of the report as plain values: the job fills them from tables, `plots` and `page` draw them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Heavy:
    """One of the heaviest clients in one direction; all rates are in bytes/s.

    Attributes:
        share: its share of all bytes in this direction, 0 to 1.
        need: the smallest quota that does not throttle it; -1 if every one that was tried does. None if only a sample
            of the connections was captured.
        quota: the quota that applies to it with the recommendation; None likewise.
        throttle_ms: how long it waits with this quota, in ms.
        series: its bytes/s at each step of the time axis.
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
    """The expected effect of one quota as the default: throttled clients of all clients, and the peak in bytes/s."""

    quota: float
    throttled: int
    clients: int
    peak: float


@dataclass(frozen=True, slots=True)
class Shared:
    """A capacity as it would be shared; rates are in bytes/s.

    Attributes:
        classes: the clients with an entry, the heaviest first: name, rate, ceiling, weight, and for how long it would
            wait with these and with the quotas in force, in ms.
        promised, lent: what clients would use of their rates and beyond them at the busiest broker, on the time axis
            `Direction.blocks_s`.
    """

    classes: Sequence[tuple[str, float, float, float, int, int]]
    promised: Sequence[float]
    lent: Sequence[float]


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
        curve: the effects of the defaults that were tried; empty if only a sample of the connections was captured.
        default: the recommended default in bytes/s; None without a recommendation.
        throttled: the number of clients that wait with the recommendation.
        throttle_ms: the sum of their connections' waits.
        overrides: the number of overrides.
        peak_before, peak_after: the peak load of the busiest broker as recorded, and with the recommendation.
        capacity: the stated capacity in bytes/s; None if it is not stated.
        gateway: whether a quota holds at all brokers together; then peaks, loads and capacity are those of all brokers.
        shared: the capacity as clients would share it; None unless the quotas in force state it.
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
    shared: Shared | None = None

    @property
    def where(self) -> str:
        """Whose load is shown, in words: that of the busiest broker, or of all brokers together."""
        return "all brokers together" if self.gateway else "busiest broker"


@dataclass(frozen=True, slots=True)
class Report:
    """The values of the whole report page, for produce and fetch together."""

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
