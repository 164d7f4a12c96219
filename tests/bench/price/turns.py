"""Turns of two proxies, one after the other, and what their CPU per request says of the change between them.

A round is a fresh topic, fresh connections, and for each lane some pairs of turns in the order before, after, after,
before: what drifts meets both alike. The figure of a pair is the ratio of its two turns.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from tests.bench.figures import bootstrap_interval, median
from tests.bench.lanes import Lane
from tests.bench.process import Child, cpu_nanoseconds
from tests.bench.stage import Stage


@dataclass(frozen=True, slots=True)
class PriceLane:
    """One kind of request: the generator's order for it, and the bytes of the record."""

    name: str
    order: str
    record_bytes: int


# Those of one size share their generator, and a topic that the first of them has filled.
LANES: Final = (
    PriceLane("Produce, 100 bytes", "closed", 100),
    PriceLane("Fetch, 100 bytes", "fetch", 100),
    PriceLane("Produce, 16 KiB", "closed", 16_384),
    PriceLane("Produce, 128 KiB", "closed", 131_072),
    PriceLane("Fetch, 128 KiB", "fetch", 131_072),
)
TOPIC_CONFIGS: Final = {"segment.bytes": "67108864", "max.message.bytes": "1048576"}
_WARM_UP_SECONDS: Final = 0.4


ROUNDS: Final = 5
_PAIRS: Final = 6  # a round and lane
_TURN_SECONDS: Final = 0.8
_CONNECTIONS: Final = 4


@dataclass(slots=True)
class Figures:
    """One lane's CPU microseconds per request; `before` and `after` at one index are neighbours in time.

    >>> found = Figures(pairs_a_round=2, before=[10.0, 20.0, 10.0, 10.0], after=[11.0, 22.0, 10.0, 10.0])
    >>> found.ratios
    [1.1, 1.1, 1.0, 1.0]
    >>> found.rounds
    [1.1, 1.0]
    """

    pairs_a_round: int
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Return after / before of each pair."""
        return [new / old for old, new in zip(self.before, self.after, strict=True)]

    @property
    def rounds(self) -> list[float]:
        """Return the median ratio of each round."""
        found, size = self.ratios, self.pairs_a_round
        return [median(found[at : at + size]) for at in range(0, len(found), size)]

    @property
    def ratio(self) -> float:
        """Return the median ratio of all pairs."""
        return median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """Return the bootstrap interval of the ratio."""
        return bootstrap_interval(self.ratios)


def alternating(pairs: int, *, first: int = 0) -> Iterator[tuple[int, int]]:
    """Give the order within each pair: 0 is before, 1 is after; `first` begins.

    >>> list(alternating(3))
    [(0, 1), (1, 0), (0, 1)]
    """
    for number in range(pairs):
        yield (0, 1) if (number + first) % 2 == 0 else (1, 0)


def play_round(
    stage: Stage,
    sides: Sequence[Lane],
    number: int,
    figures: dict[str, Figures],
    wanted: Callable[[PriceLane], bool],
) -> None:
    """Measure every lane once; `sides` are before and after."""
    for size in sorted({lane.record_bytes for lane in LANES if wanted(lane)}):
        topic = f"price-{size}-{number}-{sides[0].pid}"
        stage.create_topic(topic, configs=TOPIC_CONFIGS)
        with ExitStack() as stack:
            generators = [
                stack.enter_context(stage.generator(side.port, topic, size=size, connections=_CONNECTIONS))
                for side in sides
            ]
            for generator in generators:
                generator.ask(f"closed {_WARM_UP_SECONDS}")
            for lane in [one for one in LANES if one.record_bytes == size and wanted(one)]:
                mine = figures.setdefault(lane.name, Figures(_PAIRS))
                for order in alternating(_PAIRS, first=number):
                    found = {which: _turn(sides[which], generators[which], lane) for which in order}
                    mine.before.append(found[0])
                    mine.after.append(found[1])
                stage.say(f"round {number + 1} {lane.name}: × {mine.rounds[-1]:.3f}")
        stage.delete_topic(topic)


def _turn(side: Lane, generator: Child, lane: PriceLane) -> float:
    assert side.pid is not None, "both sides are proxies"
    began = cpu_nanoseconds(side.pid)
    requests = generator.ask(f"{lane.order} {_TURN_SECONDS}")["requests"]
    return float((cpu_nanoseconds(side.pid) - began) / 1000 / requests)
