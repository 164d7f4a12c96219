"""Defaults and overrides for produce and fetch (KIP-13: a default for most, overrides for the few that need more).

A client's *need* is the smallest candidate from which on no candidate throttles it in the backtest. Recommended is the
smallest candidate that exceeds the need by the headroom.

1. Outliers: the heaviest clients that need more than twice what half of the clients need, at most as many as there may
   be overrides. They get their own quota, so they do not count against the default.
2. Default: the smallest candidate that throttles none of the other clients, with the headroom, and lets one large
   request through (`DEFAULT_MIN`). If no capacity is stated, the goal's share of these clients may need more, and the
   default is smaller accordingly; if a capacity is stated, the share is not used.
3. Capacity: if this default puts more load on a broker than its capacity, the largest candidate that fits is taken.
4. Overrides: the outliers get what they need, or less if the capacity does not allow it: all overrides are raised to
   one common level, the highest one that fits. A client that would get no more than the default gets no override, and
   neither does a client that a quota cannot name; its place goes to the next one.

Each result has its *bound*: the clients' needs, one large request, the goal, the capacity, or the ladder, whose largest
candidate was not enough. Loads are means over ten seconds, KIP-13's window, in which a client may send all at once.

An override names all parts of a client that `--by` selects; otherwise the client gets no override. A part of the name
would be another entity: (user alice) without a client id is one budget for all of alice's clients, and precedes the
default that each of them has separately. A client with the literal name `<default>` cannot be named (KAFKA-18808).
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from offline.options import By, Goal
from quotas.definitions.entities import DEFAULT, Entity


def client_entity(user: str, client_id: str, by: By) -> Entity | None:
    """Return the quota entity of exactly this client; None if a quota cannot name it.

    >>> client_entity("alice", "", "user"), client_entity("alice", "", "user-client-id")
    (Entity(user='alice'), None)
    """
    parts = {"user": (user,), "client-id": (client_id,), "user-client-id": (user, client_id)}[by]
    if any(part in ("", DEFAULT.value) for part in parts):
        return None
    return Entity(user if by != "client-id" else None, client_id if by != "user" else None)


def default_entity(by: By) -> Entity:
    """Return the default entity: it applies to every client without an entity of its own."""
    return Entity(DEFAULT if by != "client-id" else None, DEFAULT if by != "user" else None)


def client_name(user: str, client_id: str) -> str:
    """Return the client's name for reports.

    >>> client_name("alice", "a"), client_name("", "")
    ('alice a', '(no name)')
    """
    return " ".join(filter(None, (user, client_id))) or "(no name)"


# One request of 1 MiB (a producer's max.request.size, a consumer's max.partition.fetch.bytes) in ten seconds.
DEFAULT_MIN: Final = 110_000.0
_OUTLIER: Final = 2.0  # times what the median client needs

Bound = Literal["need", "request", "goal", "capacity", "ladder"]
Client = tuple[str, str]
"""User and client id."""


class Loads(Protocol):
    """Computes the peak load that a default quota and overrides would lead to.

    A candidate is one of the quotas in bytes/s that were tried, named by its index. The peak load is the bytes/s of
    the busiest broker, as the mean over its busiest ten seconds.
    """

    @property
    def heavy(self) -> Collection[Client]:
        """The clients whose own loads are known, so that each of them can get an override."""

    def alone(self) -> Sequence[float]:
        """Return the peak in bytes/s with each candidate as the default, without overrides."""

    def peaks(self, default: int, levels: Sequence[Mapping[Client, int]]) -> Sequence[float]:
        """Return the peak in bytes/s for each set of overrides in `levels`, with this default for all others."""


@dataclass(frozen=True, slots=True)
class Override:
    """The recommended override of one client, as indexes of candidates.

    Attributes:
        client: user and client id.
        index: the recommended candidate.
        least: the smallest candidate that does not throttle the client; the number of candidates if all throttle it.
        need: the smallest candidate that is at least `least` times the headroom; the number of candidates if none is.
        bound: what has decided `index`: it is the `need`; or it is smaller, since the brokers' `capacity` does not
            allow more, or since there is no larger candidate (`ladder`).
    """

    client: Client
    index: int
    least: int
    need: int
    bound: Bound


@dataclass(frozen=True, slots=True)
class Limits:
    """The recommended quotas of one direction, produce or fetch.

    Attributes:
        default: the default, as an index of the candidates.
        least: the smallest candidate that throttles at most the permitted number of counted clients, before headroom;
            the number of candidates if none is enough.
        overrides: the overrides, the heaviest client first.
        bound: what has decided the default (`Bound`).
        counted: the number of clients that the default applies to: without an override, and not in `no_capacity`.
        allowed: how many of them may be throttled.
        throttled: the clients that will be throttled.
        wanted: the default without regard to capacity; above `default` if the capacity does not allow it.
        beyond: the number of counted clients for which, with headroom, no candidate is enough.
        peak: the load of the busiest broker in its busiest ten seconds, in bytes/s.
        fits: whether the peak is within the stated capacity.
        no_capacity: clients that would have got an override if the brokers had any capacity above the default.
        unnameable: clients that would have got an override if a quota could name them.
    """

    default: int
    least: int
    overrides: tuple[Override, ...]
    bound: Bound
    counted: int
    allowed: int
    throttled: tuple[Client, ...]
    wanted: int
    peak: float
    fits: bool
    beyond: int = 0
    no_capacity: tuple[Client, ...] = ()
    unnameable: tuple[Client, ...] = ()

    @property
    def excess(self) -> int:
        """The number of throttled clients without an override, beyond `allowed`."""
        own = {override.client for override in self.overrides}
        return max(0, sum(client not in own for client in self.throttled) - self.allowed)


def need_of(throttled: Sequence[bool]) -> int:
    """Return the index of the smallest candidate that, like all larger ones, does not throttle the client.

    It is the number of candidates if the largest one throttles the client.

    Args:
        throttled: for each candidate, in ascending order, whether it throttles the client.

    >>> need_of([True, True, False, False]), need_of([False, True, False]), need_of([True])
    (2, 2, 1)
    """
    index = len(throttled)
    while index and not throttled[index - 1]:
        index -= 1
    return index


def raised(
    candidates: Sequence[float], needs: Mapping[Client, int], times: Mapping[Client, float]
) -> dict[Client, int]:
    """Return the needs (indices of candidates) multiplied by a factor for each client, rounded up to a candidate.

    >>> raised([1e6, 2e6, 4e6], {("", "a"): 0, ("", "b"): 1, ("", "c"): 1}, {("", "a"): 1.2, ("", "b"): 0.4})
    {('', 'a'): 1, ('', 'b'): 0, ('', 'c'): 1}
    """
    return {
        name: index
        if index >= len(candidates) or name not in times
        else bisect_left(candidates, candidates[index] * times[name] - 1e-6)
        for name, index in needs.items()
    }


def limits(
    candidates: Sequence[float],
    needs: Mapping[Client, int],
    loads: Loads,
    goal: Goal,
    direction: str,
    by: By = "client-id",
) -> Limits:
    """Return the recommended quotas of one direction, produce or fetch.

    Args:
        candidates: the quotas that were tried, in bytes/s, ascending.
        needs: by client, the result of `need_of`.
        by: the quota entity that makes a client.
    """
    assert candidates, "a direction without candidates has no clients"
    capacity = goal.capacity(direction)
    ranked = sorted(needs, key=lambda name: (-needs[name], *name))
    with_headroom = {name: _with_headroom(candidates, needs[name], goal.headroom) for name in ranked}
    heavy = [name for name in with_headroom if name in loads.heavy]
    unnameable = {name for name in heavy if client_entity(*name, by) is None}
    named = [name for name in heavy if name not in unnameable]
    least = _outlier_above(candidates, with_headroom)
    outliers = [name for name in named[: goal.overrides] if with_headroom[name] > least]
    counted = sorted(index for name, index in needs.items() if name not in outliers)
    allowed = int(goal.throttled_share * len(counted) + 1e-9)
    needed, bound = _needed(candidates, counted, 0 if capacity is not None else allowed, goal.headroom)
    wanted = max(_with_headroom(candidates, needed, goal.headroom), _least_default(candidates))
    wanted = min(wanted, len(candidates) - 1)
    default, alone = wanted, loads.alone()
    while default and not _fits(alone[default], capacity):
        default -= 1
    asked = {name: min(with_headroom[name], len(candidates) - 1) for name in outliers}
    asked = {name: index for name, index in asked.items() if index > default}
    given, peak = _overrides(default, alone[default], asked, loads, capacity)
    no_capacity = tuple(name for name in asked if given[name] <= default)
    return Limits(
        default=default,
        least=needed,
        overrides=tuple(
            Override(
                name,
                index,
                needs[name],
                with_headroom[name],
                _override_bound(index, with_headroom[name], asked[name]),
            )
            for name, index in given.items()
            if index > default
        ),
        bound=bound if default == wanted and _fits(alone[default], capacity) else "capacity",
        counted=len(needs) - len(asked),
        allowed=allowed,
        throttled=tuple(name for name, index in needs.items() if index > given.get(name, default)),
        wanted=wanted,
        peak=peak,
        fits=_fits(peak, capacity),
        beyond=sum(index >= len(candidates) for name, index in with_headroom.items() if name not in asked),
        no_capacity=no_capacity,
        unnameable=tuple(name for name in heavy if name in unnameable and with_headroom[name] > least)
        if goal.overrides
        else (),
    )


def _fits(load: float, capacity: float | None) -> bool:
    return capacity is None or load <= capacity


def _with_headroom(candidates: Sequence[float], index: int, headroom: float) -> int:
    """Return the smallest candidate that exceeds a need by the headroom; the number of candidates if none is large
    enough. Both are indices.
    """
    if index >= len(candidates):
        return index
    least = candidates[index] * headroom - 1e-6
    return next(
        (place for place in range(index, len(candidates)) if candidates[place] >= least), len(candidates)
    )


def _outlier_above(candidates: Sequence[float], with_headroom: Mapping[Client, int]) -> int:
    """Return the largest candidate that is not an outlier's need: up to twice the median client's. All are indices."""
    ordered = sorted(with_headroom.values())
    median = ordered[(len(ordered) - 1) // 2] if ordered else 0
    if median >= len(candidates):
        return median
    return max(index for index, rate in enumerate(candidates) if rate <= _OUTLIER * candidates[median])


def _needed(
    candidates: Sequence[float], counted: Sequence[int], allowed: int, headroom: float
) -> tuple[int, Bound]:
    """Return the smallest candidate (index) that is enough for all but `allowed` of these clients, and its bound."""
    if not counted:
        return 0, "request"
    needed = counted[max(0, len(counted) - 1 - allowed)]
    enough = _with_headroom(candidates, needed, headroom)
    if enough >= len(candidates):
        return needed, "ladder"
    if candidates[needed] * headroom < DEFAULT_MIN:
        return needed, "request"
    return needed, "goal" if _with_headroom(candidates, counted[-1], headroom) > enough else "need"


def _least_default(candidates: Sequence[float]) -> int:
    last = len(candidates) - 1
    return next((index for index, rate in enumerate(candidates) if rate >= DEFAULT_MIN), last)


def _override_bound(given: int, need: int, asked: int) -> Bound:
    if given < asked:
        return "capacity"
    return "ladder" if need > given else "need"


def _overrides(
    default: int, alone: float, asked: Mapping[Client, int], loads: Loads, capacity: float | None
) -> tuple[Mapping[Client, int], float]:
    """Raise all overrides to the highest common level that fits; returns them (indices) and the peak in bytes/s."""
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
