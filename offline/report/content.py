"""What the report shows, as plain values: the job reads tables, this holds them, `plots` and `page` draw them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Curve", "Direction", "Heavy", "Report", "Row"]

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Heavy:
    """One of the heaviest clients, and its bytes/s by step of the time axis.

    Attributes:
        need: -1: more than tried; None, as `quota` is: of a sample nothing is known.
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
    """One candidate default."""

    quota: float
    throttled: int
    clients: int
    peak: float


@dataclass(frozen=True, slots=True)
class Direction:
    """Everything about produce or fetch.

    Attributes:
        name: `produce` or `fetch`.
        clients: how many there are.
        steps_s: the time axis of the heaviest clients' series, in seconds since the first one.
        total: all clients' bytes/s on it.
        hours: bytes/s by hour of the day, UTC; empty where so little was recorded that there is no day to see.
        blocks_s: the time axis of before and after.
        before, after: the busiest broker's load.
        curve: empty where a sample of connections says nothing of clients.
        default: the recommended default, or None; throttled: how many clients wait with it and the overrides.
        throttle_ms: how long their connections do, together; overrides: how many there are.
        peak_before, peak_after: of the busiest broker, whichever that is then.
        capacity: what was stated, or None.
        gateway: one budget over all brokers: peaks, loads and capacity are of all of them together.
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
        """Whose load it is that quotas are to bound."""
        return "all brokers together" if self.gateway else "busiest broker"


@dataclass(frozen=True, slots=True)
class Report:
    """The whole page."""

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
