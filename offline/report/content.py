"""What the report shows, as plain values: the job reads tables, this holds them, `plots` and `page` draw them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Curve", "Direction", "Heavy", "Report", "Row"]

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Heavy:
    """One of the heaviest clients, and its bytes/s by step of the time axis."""

    name: str
    share: float
    peak_10s: float
    peak_1s: float
    p99: float
    connections: int
    need: float
    quota: float
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
        minutes: the time axis of the heaviest clients' series, in hours since the first second.
        total: all clients' bytes/s on it.
        hours: bytes/s by hour of the day, UTC.
        blocks: the time axis of before and after, in hours.
        before, after: the busiest broker's load.
        default: the recommended default; capacity: what was stated, or None.
    """

    name: str
    heavy: Sequence[Heavy]
    minutes: Sequence[float]
    total: Sequence[float]
    hours: Sequence[float]
    curve: Sequence[Curve]
    blocks: Sequence[float]
    before: Sequence[float]
    after: Sequence[float]
    broker: int
    default: float
    capacity: float | None


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
    goal: Mapping[str, str] = field(default_factory=dict)
