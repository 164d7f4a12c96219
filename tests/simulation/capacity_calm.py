"""A capacity whose clients come and go while no message is lost: what each class gets, compared with what it should.

0 s        classes that want all, or a part, or nothing yet
4 to 14 s  compared with the division by bisection
14 s       those that were away come
15 to 16 s those have their rates again
18 to 28 s compared again
"""

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from quotas.definitions.classes import SHARED_BURST_SECONDS, UNPROMISED_PART, Terms
from tests.simulation.capacity_cases import Part, divide, draw_case
from tests.simulation.capacity_world import CapacityWorld
from tests.simulation.clock import largest_window
from tests.simulation.quota_world import ClientOptions

WINDOW_MS: Final = 10_000
RETURN_MS: Final = 14_000
_TRIP_MS: Final = 14  # of a request and its response: four ways of 3.5 ms
_SMOOTH_MS: Final = 150
PROCESSES: Final = ((1, 1), (1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (3, 2))  # members, workers of each
FLEETS: Final = tuple(one for one in PROCESSES if one[0] > 1)


class Run(NamedTuple):
    """A world that has run, and who wants how much.

    Args:
        offered: bytes/s of a class that wants no more than that; None: it wants all.
        consumes: whether all consume; a response has up to what its connection may have at once.
        bursty: whether any of those sends much at once, and then nothing for longer than use is averaged.
        away: those that came at RETURN_MS.
    """

    world: CapacityWorld
    terms: dict[str, Terms]
    sizes: dict[str, int]
    connections: dict[str, int]
    offered: dict[str, float | None]
    away: frozenset[str]
    processes: int
    consumes: bool
    bursty: bool

    @property
    def steady(self) -> bool:
        """Whether what each class wants is the same all the time, at each process."""
        return not self.bursty and (self.processes == 1 or not any(self.offered.values()))

    @property
    def fits(self) -> bool:
        """Whether the rates are at most the capacity together, and no class is exempt."""
        promised = sum(terms.rate for terms in self.terms.values())
        return promised <= 0.99 * self.world.rate and not any(one.exempt for one in self.terms.values())


def run(seed: int, parts: int = 1) -> Run:
    """Run a world that the seed describes; with several parts of the keys, it is a fleet."""
    draw = Random(f"calm {seed}")
    case = draw_case(draw)
    members, workers = draw.choice(PROCESSES if parts == 1 else FLEETS)
    consumes = draw.random() < 0.4
    world = CapacityWorld(case.rate, case.terms, members=members, workers=workers, seed=seed, parts=parts)
    offered: dict[str, float | None] = {}
    each: dict[str, int] = {}
    away: set[str] = set()
    bursty = False
    for name, terms in case.terms.items():
        connections = each[name] = draw.randint(1, 6)
        size = case.sizes[name]
        fastest = connections * size * 1000 / _TRIP_MS
        offered[name] = None if fastest > 2 * max(terms.rate, terms.ceiling) else fastest
        think_ms = 0
        if terms.exempt or draw.random() < 0.25:
            wanted = draw.choice((0.1, 0.5, 0.9)) * (terms.rate or 0.2 * case.rate)
            think_ms = round(connections * size * 1000 / wanted) + 20
            if think_ms > _SMOOTH_MS and draw.random() < 0.7:
                think_ms = draw.randint(50, _SMOOTH_MS)
                size = case.sizes[name] = max(1, round(wanted * (think_ms + _TRIP_MS) / 1000 / connections))
            bursty = bursty or think_ms > _SMOOTH_MS
            offered[name] = connections * size * 1000 / (think_ms + _TRIP_MS)
        start_ms = 0
        if draw.random() < 0.2 and not consumes:
            away.add(name)
            start_ms = RETURN_MS
        options = ClientOptions(
            client_id=name,
            size=size,
            max_bytes=size if think_ms else 50_000_000,
            consumes=consumes,
            think_ms=think_ms,
            start_ms=start_ms,
        )
        world.world.add(options, connections)
    world.world.run(28_000)
    processes = members * workers
    return Run(world, case.terms, case.sizes, each, offered, frozenset(away), processes, consumes, bursty)


def problems(seed: int, parts: int = 1) -> Iterator[str]:
    """Yield what a seed has shown that should not be."""
    found = run(seed, parts)
    yield from _divided(found, 4000, found.away)
    yield from _returned(found)
    yield from _divided(found, 18_000, frozenset())
    rate = found.world.rate
    passed = [(record.at_ms, record.size) for record in found.world.world.records]
    most = (
        1.02 * rate * WINDOW_MS / 1000
        + rate * SHARED_BURST_SECONDS
        + found.processes * sum(found.sizes.values())
    )
    largest = largest_window(passed, WINDOW_MS) if passed else 0
    if largest > most:
        yield f"{largest} bytes in 10 s, at most {most:.0f}"


def _divided(found: Run, from_ms: int, away: frozenset[str]) -> Iterator[str]:
    """Compare what passes in 10 s with the reference."""
    world, terms = found.world, found.terms
    used = {name: world.rate_of(name, from_ms, from_ms + WINDOW_MS) for name in terms}
    demands = {name: used[name] if found.offered[name] is not None else world.rate for name in terms}
    demands |= dict.fromkeys(away, 0.0)
    parts = divide(world.rate, terms, demands)
    for name, part in parts.items():
        grain = found.sizes[name] * (found.processes + found.connections[name]) * 1000 / WINDOW_MS
        if name not in away:
            yield from _class(found, name, part, used[name], grain, from_ms)
    grains = sum(found.sizes.values()) * found.processes * 1000 / WINDOW_MS
    if (
        found.consumes
    ):  # connections may have their responses at the same moments, just before the window and after it
        largest = max((record.size for record in world.world.records), default=0)
        grains = largest * sum(found.connections.values()) * 1000 / WINDOW_MS
    wanted = sum(part.rate + part.lent for part in parts.values())
    # Requests as large as a second of their class's rate, seconds apart: a loan comes when they are nearly paid for.
    if sum(used.values()) < (0.94 if found.bursty else 0.97) * wanted - grains:
        yield f"{from_ms} ms: {sum(used.values()):.0f} of {wanted:.0f} bytes/s are used"


def _class(found: Run, name: str, part: Part, used: float, grain: float, from_ms: int) -> Iterator[str]:
    """Compare what one class has."""
    terms = found.terms[name]
    offered = found.offered[name]
    if offered is not None:
        least = min(0.95 * offered, 0.97 * (terms.rate or found.world.rate * UNPROMISED_PART), part.rate)
        if used < least - grain:
            yield f"{from_ms} ms: {name} has {used:.0f} bytes/s, it wants {offered:.0f} of its {terms.rate}"
        return
    # Rates that shrink do so at once when another class sends what it has saved.
    least = 0.97 if found.steady or found.fits else 0.8
    if used < least * part.rate - grain:
        yield f"{from_ms} ms: {name} has {used:.0f} bytes/s of its {part.rate:.0f}"
    due = part.rate + part.lent
    floor = found.world.rate * UNPROMISED_PART  # where nothing is left
    if found.steady and abs(used - due) > 0.05 * part.lent + 0.03 * due + grain + floor:
        yield f"{from_ms} ms: {name} has {used:.0f} bytes/s, {part.rate:.0f} and {part.lent:.0f} are due"


def _returned(found: Run) -> Iterator[str]:
    """Compare what those have that have come a second ago."""
    demands = {
        name: found.world.rate if offered is None else found.world.rate_of(name, 18_000, 28_000)
        for name, offered in found.offered.items()
    }
    parts = divide(found.world.rate, found.terms, demands)
    for name in sorted(found.away):
        used = found.world.rate_of(name, RETURN_MS + 1000, RETURN_MS + 2000)
        if (
            found.offered[name] is None
            and used < 0.95 * parts[name].rate - found.sizes[name] * found.processes
        ):
            yield f"{name} has {used:.0f} bytes/s a second after it has come, of its {parts[name].rate:.0f}"
