"""Defaults and overrides for produce and fetch (KIP-13: a default for most, overrides for the few that need more).

A client's *need* is the smallest candidate that does not throttle it in the backtest, and neither does any larger one.

1. Default: the smallest candidate that at most the stated share of clients needs more than, with the headroom. As small
   as that allows: a default is there for the client that nobody has met yet.
2. Capacity: where even this default puts more on a broker than it can take, the largest candidate that fits is taken
   instead, and what that costs is said.
3. Overrides: for the heaviest of those above the default, at most so many, and for nobody else: what they need, or less
   where the brokers cannot take that. All are raised to one common level: the highest one that fits. A client that
   would get no more than the default gets no override; it is held, and counts among those who may be. Neither does one
   that a quota cannot name (`names`), whose place goes to the next.

Loads are means over ten seconds, KIP-13's window: within it a client may send everything at once.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from offline.advice.names import client_entity
from offline.options import By, Goal

__all__ = ["Client", "Limits", "Loads", "Need", "Override", "limits", "need_of"]


Client = tuple[str, str]
"""User and client id."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one client needs: an index into the candidates, or as many as there are: more than any of them."""

    user: str
    client_id: str
    index: int


class Loads(Protocol):
    """What passes at each candidate: peaks are bytes/s of the busiest broker, mean over ten seconds."""

    @property
    def heavy(self) -> Collection[Client]:
        """Clients with a load of their own, so that each can have a candidate of its own."""

    def alone(self) -> Sequence[float]:
        """The peak with each candidate as the default and nobody's override."""

    def peaks(self, default: int, levels: Sequence[Mapping[Client, int]]) -> Sequence[float]:
        """The peak with this default and each of these sets of overrides."""


@dataclass(frozen=True, slots=True)
class Override:
    """One client's own quota; `held`: it needs more, and the brokers cannot take it."""

    user: str
    client_id: str
    index: int
    held: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """What is recommended in one direction.

    Attributes:
        default: index of the candidate.
        overrides: the heaviest first.
        allowed: how many clients may be throttled.
        throttled: those who will be.
        wanted: the default that the stated share alone would give; above `default` where capacity forbids it.
        peak: of the busiest broker, over ten seconds.
        fits: whether it is within the stated capacity.
        nameless: those who would have got an override if a quota could name them.
        kept: whether `wanted` keeps to the share; no candidate does where too many need more than all of them.
    """

    default: int
    overrides: tuple[Override, ...]
    allowed: int
    throttled: tuple[Client, ...]
    wanted: int
    peak: float
    fits: bool
    nameless: tuple[Client, ...] = ()
    kept: bool = True


def need_of(throttled: Sequence[bool]) -> int:
    """The smallest candidate that does not throttle, and no larger one does either.

    >>> need_of([True, True, False, False]), need_of([False, True, False]), need_of([True])
    (2, 2, 1)
    """
    index = len(throttled)
    while index and not throttled[index - 1]:
        index -= 1
    return index


def limits(
    candidates: Sequence[float],
    needs: Sequence[Need],
    loads: Loads,
    goal: Goal,
    direction: str,
    by: By = "client-id",
) -> Limits:
    """Recommend; `needs` has every client once."""
    assert candidates, "a direction without candidates has no clients"
    capacity = goal.capacity(direction)
    with_room = {
        (need.user, need.client_id): _with_room(candidates, need.index, goal.headroom) for need in needs
    }
    allowed = int(goal.throttled_share * len(needs) + 1e-9)
    wanted = _default(sorted(with_room.values()), allowed, len(candidates))
    default = wanted
    alone = loads.alone()
    while default and not _fits(alone[default], capacity):
        default -= 1
    ranked = sorted(needs, key=lambda need: (-need.index, need.user, need.client_id))
    above = [
        (need.user, need.client_id)
        for need in ranked
        if with_room[need.user, need.client_id] > default and (need.user, need.client_id) in loads.heavy
    ]
    named = [name for name in above if client_entity(*name, by) is not None]
    asked = {name: min(with_room[name], len(candidates) - 1) for name in named[: goal.overrides]}
    given, peak = _overrides(default, alone[default], asked, loads, capacity)
    throttled = tuple(
        (need.user, need.client_id)
        for need in needs
        if need.index > given.get((need.user, need.client_id), default)
    )
    return Limits(
        default=default,
        overrides=tuple(
            Override(*name, given[name], held=with_room[name] > given[name])
            for name in asked
            if given[name] > default
        ),
        allowed=allowed,
        throttled=throttled,
        wanted=wanted,
        peak=peak,
        fits=_fits(peak, capacity),
        nameless=tuple(name for name in above if name not in named) if goal.overrides else (),
        kept=sum(index > wanted for index in with_room.values()) <= allowed,
    )


def _fits(load: float, capacity: float | None) -> bool:
    return capacity is None or load <= capacity


def _with_room(candidates: Sequence[float], index: int, headroom: float) -> int:
    """The candidate that leaves the headroom above a need."""
    if index >= len(candidates):
        return index
    for found in range(index, len(candidates)):
        if candidates[found] >= candidates[index] * headroom - 1e-6:
            return found
    return len(candidates) - 1


def _default(ordered: Sequence[int], allowed: int, count: int) -> int:
    """The smallest candidate that at most `allowed` clients need more than."""
    if not ordered:
        return 0
    return min(ordered[max(0, len(ordered) - 1 - allowed)], count - 1)


def _overrides(
    default: int, alone: float, asked: Mapping[Client, int], loads: Loads, capacity: float | None
) -> tuple[Mapping[Client, int], float]:
    """Everybody what he asks for, up to one common level that fits; and the peak then."""
    levels: list[dict[Client, int]] = []
    for level in range(max(asked.values(), default=default), default, -1):
        given = {name: max(default, min(index, level)) for name, index in asked.items()}
        if not levels or given != levels[-1]:
            levels.append(given)
    if not levels:
        return dict.fromkeys(asked, default), alone
    if capacity is None:
        del levels[1:]
    for given, peak in zip(levels, loads.peaks(default, levels), strict=True):
        if _fits(peak, capacity):
            return given, peak
    return dict.fromkeys(asked, default), alone
