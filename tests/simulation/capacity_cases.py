"""Capacities with classes, drawn by a seed; and how a capacity is divided, by bisection, as a reference."""

from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from random import Random
from typing import NamedTuple

from quotas.definitions.classes import UNPROMISED_PART, Terms
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.definitions.kinds import CEILINGS, EXEMPT, FETCH, PRODUCE, WEIGHT


class Case(NamedTuple):
    """A capacity in bytes/s, its classes by client id, and the sizes of their requests."""

    rate: int
    terms: dict[str, Terms]
    sizes: dict[str, int]


def draw_case(draw: Random, requests_max: int = 200) -> Case:
    """Draw a capacity with up to six classes: some promised more than there is, some nothing, one exempt perhaps.

    Args:
        requests_max: the largest number of requests in a second, so that a run ends soon.
    """
    rate = round(1e5 * exp(draw.random() * log(100)))
    promised = draw.choice((0.3, 0.7, 0.95, 1.0, 1.5))  # all together, in capacities
    portions = [draw.random() for _ in range(draw.randint(1, 6))]
    terms: dict[str, Terms] = {}
    sizes: dict[str, int] = {}
    for index, portion in enumerate(portions):
        name = f"class-{index}"
        own = round(min(rate, rate * promised * portion / sum(portions)))
        if index == 0 and draw.random() < 0.3:
            own = 0  # one at most: such classes share their part by connections
        ceiling = draw.choice((own or rate, rate, round(own + (rate - own) * draw.random())))
        terms[name] = Terms(
            own, ceiling, draw.choice((0.5, 1.0, 1.0, 2.0, 5.0)) if own else 1.0, draw.random() < 0.05
        )
        sizes[name] = int(min(1_000_000, max(1000, rate / requests_max * exp(draw.random() * log(25)))))
    return Case(rate, terms, sizes)


def stated(rate: float, classes: Mapping[str, Terms]) -> Definitions:
    """Return definitions of a capacity of the cluster in both directions, and of its classes, by client id."""
    keys = (PRODUCE.key, FETCH.key)
    entries: dict[Entity, dict[str, float]] = {Entity(capacity="cluster"): dict.fromkeys(keys, rate)}
    for name, terms in classes.items():
        values: dict[str, float] = {WEIGHT: terms.weight, EXEMPT: terms.exempt}
        for key in keys:
            values |= {key: terms.rate, CEILINGS[key]: terms.ceiling}
        entries[Entity(client_id=name)] = {key: value for key, value in values.items() if value}
    return Definitions(entries)


class Part(NamedTuple):
    """What a class has of a capacity, in bytes/s: of its rate, and beyond it."""

    rate: float
    lent: float


def divide(rate: float, classes: Mapping[str, Terms], demands: Mapping[str, float]) -> dict[str, Part]:
    """Return what each class has of a capacity: exempt ones first, then rates, then loans by weight."""
    parts = {name: Part(demands[name], 0.0) for name, terms in classes.items() if terms.exempt}
    room = max(0.0, rate - sum(part.rate for part in parts.values()))
    rest = [name for name in classes if name not in parts]
    part = rate * UNPROMISED_PART
    rates = [classes[name].rate or min(part, classes[name].ceiling or part) for name in rest]
    bare = sum(own for name, own in zip(rest, rates, strict=True) if demands[name] and not classes[name].rate)
    if sum(min(demands[name], own) for name, own in zip(rest, rates, strict=True)) > room and bare > part:
        # No promise is broken for more than one class's part of those that are promised nothing.
        rates = [
            own if classes[name].rate else own * part / bare for name, own in zip(rest, rates, strict=True)
        ]
    most = [
        min(demands[name], max(own, classes[name].ceiling)) for name, own in zip(rest, rates, strict=True)
    ]
    owed = levelled([min(*both) for both in zip(most, rates, strict=True)], rates, room)
    wanted = [much - own for much, own in zip(most, owed, strict=True)]
    loans = levelled(wanted, [classes[name].weight for name in rest], room - sum(owed))
    return parts | {name: Part(*both) for name, *both in zip(rest, owed, loans, strict=True)}


def levelled(wanted: Sequence[float], weights: Sequence[float], amount: float) -> list[float]:
    """Divide an amount so that each has what it wants, or as much for its weight as all that want more."""

    def at(level: float) -> list[float]:
        return [min(want, level * weight) for want, weight in zip(wanted, weights, strict=True)]

    return at(_bisected(lambda level: sum(at(level)) <= amount, 1e12))


def _bisected(holds: Callable[[float], bool], most: float) -> float:
    """Return the largest number up to `most` for which a condition holds, that holds below it."""
    if holds(most):
        return most
    low, high = 0.0, most
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
