"""How long classes of clients would wait if they shared a capacity, from their bytes by second, as a fluid.

In each second a class wants what it sends in it and what has not passed yet. Each has its rate first, up to what it
wants, and what all of them leave is divided by weight, up to the ceilings: the arithmetic of
`quotas.sharing.capacities`, with the same steps where more is promised than there is. What does not pass is wanted in
the next second. A class waits for as long as it takes for its late bytes to pass, a second at most in each second.

Classes save nothing for a burst, and bytes are divisible, as in `fluid`. Compiled functions cannot sort, so `_fill`
goes around until no further class has all that it wants (tests/property/test_shared_capacity.py compares both).
"""

from typing import Final, NamedTuple

import numpy as np

from quotas.backtest.compiler import Floats, Ints, inlined, kept
from quotas.definitions.classes import UNPROMISED_PART
from quotas.sharing.lease_values import Rank

# Ranks as numbers; an exempt class is never delayed.
RANKS: Final[dict[Rank, int]] = {"named": 0, "default": 1, "unpromised": 2}
EXEMPT: Final = 3
_DEFAULT: Final = RANKS["default"]
_UNPROMISED: Final = RANKS["unpromised"]
_SUM_PART: Final = 1e-9  # by which a sum of parts may exceed the whole
_PASSED: Final = 1e-6  # bytes: less than that is nothing
_KEPT: Final = (
    0.97  # a class has its rate in a second if it has at least this part of it, or of what it wants
)
# Rows of numbers for each class: what it wants, by its number; by its place among the active ones, what it has of its
# rate, what beyond it, and intermediate values.
_ROWS: Final = 6
_WANTED, _HAD, _LENT, _PARTS, _REST, _WEIGHTS = range(_ROWS)


class Classes(NamedTuple):
    """The terms of all classes, each field with a number for each class, in bytes/s.

    Args:
        rates: what each has at any time (`quotas.definitions.classes.promised`).
        ceilings: up to which it borrows, at least its rate.
        ranks: whose promise it is (`RANKS`, or EXEMPT).
    """

    rates: Floats
    ceilings: Floats
    weights: Floats
    ranks: Ints


class Shared(NamedTuple):
    """What came of it: a number for each class, and rows with a number for each block of time.

    Args:
        waited_s: how long each class waited, in seconds.
        lent: the bytes that each had beyond its rate.
        late: the bytes of each that have not passed at the end of the last block.
        wanted_s: in how many seconds each wanted something.
        kept_s: in how many of these it had at least 97 % of its rate, or of what it wanted if that is less.
        carried: two rows: the bytes of each block that classes had of their rates, and beyond them.
        possible: what classes want in each second of each block, late bytes too, up to the capacity.
    """

    waited_s: Floats
    lent: Floats
    late: Floats
    wanted_s: Floats
    kept_s: Floats
    carried: Floats
    possible: Floats


def shared(
    seconds: Ints, owners: Ints, sizes: Floats, classes: Classes, capacity: float, blocks: int, block_s: int
) -> Shared:
    """Let classes share a capacity. What is late at the end of the last block passes after it, up to the ceilings.

    Args:
        seconds: ascending, from 0, within the blocks.
        owners: the class whose bytes they are; a class may have several entries in a second.
        sizes: the bytes of each.
        capacity: bytes/s.
        blocks, block_s: the number of blocks from second 0 on, and their length.

    >>> one = Classes(np.array([2e6, 1e6]), np.array([8e6, 1e6]), np.ones(2), np.zeros(2, np.int64))
    >>> found = shared(np.array([0, 0]), np.array([0, 1]), np.array([6e6, 2e6]), one, 5e6, 1, 10)
    >>> found.waited_s.tolist(), found.lent.tolist()  # 2 + 2 of 5 MB at once, the other 2 MB a second later; 1 + 1 MB
    ([0.5, 1.0], [2000000.0, 0.0])
    >>> found.carried.tolist()  # in the second second 2 MB and 1 MB, both of the rates
    [[6000000.0], [2000000.0]]
    >>> short = shared(np.array([0, 0]), np.array([0, 1]), np.array([6e6, 2e6]), one, 7e6, 1, 1)
    >>> short.late.tolist(), short.kept_s.tolist()  # 2 + 4 and 1 of 7 MB: both have their rates
    ([0.0, 1000000.0], [1.0, 1.0])
    >>> short.carried.tolist(), short.possible.tolist()
    ([[3000000.0], [4000000.0]], [7000000.0])
    """
    assert (classes.rates > 0).all(), "a class that is promised nothing has a part of the capacity"
    assert not len(seconds) or seconds[-1] < blocks * block_s, "each second is in a block"
    count = len(classes.rates)
    waited_s, lent, late, wanted_s, kept_s = np.zeros((5, count))
    found = Shared(waited_s, lent, late, wanted_s, kept_s, np.zeros((2, blocks)), np.zeros(blocks))
    _shared(
        np.ascontiguousarray(seconds, np.int64),
        np.ascontiguousarray(owners, np.int64),
        np.ascontiguousarray(sizes, np.float64),
        classes,
        capacity,
        block_s,
        np.zeros(count, np.int64),
        np.zeros((_ROWS, count)),
        found,
    )
    return found


def divided(wanted: Floats, classes: Classes, capacity: float) -> tuple[Floats, Floats]:
    """Return what classes that want so many bytes/s have of their rates, and beyond them, as in one second.

    >>> three = Classes(np.array([4e6, 2e6, 1e6]), np.full(3, 8e6), np.array([1.0, 1.0, 2.0]), np.zeros(3, np.int64))
    >>> [part.tolist() for part in divided(np.full(3, 8e6), three, 8e6)]  # 8 - 7 MB/s by weights 1, 1 and 2
    [[4000000.0, 2000000.0, 1000000.0], [250000.0, 250000.0, 500000.0]]
    """
    work = np.zeros((_ROWS, len(wanted)))
    work[_WANTED] = wanted
    _divide(len(wanted), np.arange(len(wanted)), classes, capacity, work)
    return work[_HAD].copy(), work[_LENT].copy()


@inlined
def _fill(count: int, wanted: Floats, weights: Floats, capacity: float, parts: Floats) -> None:
    """Write to `parts` what `quotas.sharing.capacities.fill` returns, for the first `count` demands."""
    for place in range(count):
        parts[place] = -1.0 if weights[place] > 0.0 else 0.0
    settled = True
    each = 0.0
    while settled:
        settled = False
        left, weight = capacity, 0.0
        for place in range(count):
            if parts[place] < 0.0:
                weight += weights[place]
            else:
                left -= parts[place]
        each = max(0.0, left) / weight if weight > 0.0 else 0.0
        for place in range(count):
            if parts[place] < 0.0 and wanted[place] <= each * weights[place]:
                parts[place] = wanted[place]
                settled = True
    for place in range(count):
        if parts[place] < 0.0:
            parts[place] = each * weights[place]


@inlined
def _divide(count: int, active: Ints, classes: Classes, capacity: float, work: Floats) -> None:
    """Write to `work` what the first `count` active classes have of their rates, and beyond them."""
    had, rest, weights = work[_HAD], work[_REST], work[_WEIGHTS]
    room, total = capacity, 0.0
    for place in range(count):
        one = active[place]
        if classes.ranks[one] == EXEMPT:
            had[place] = work[_WANTED, one]
            room -= had[place]
        else:
            had[place] = min(work[_WANTED, one], classes.rates[one])
            total += had[place]
    room = max(0.0, room)
    if total > room:
        total = _shrink(count, active, classes, capacity, room, work)
    for place in range(count):
        one = active[place]
        rest[place], weights[place] = 0.0, 0.0
        if classes.ranks[one] != EXEMPT:
            most = max(classes.ceilings[one], classes.rates[one])
            rest[place] = min(work[_WANTED, one], most) - had[place]
            weights[place] = classes.weights[one]
    _fill(count, rest, weights, max(0.0, room - total), work[_LENT])


@inlined
def _shrink(count: int, active: Ints, classes: Classes, capacity: float, room: float, work: Floats) -> float:
    """Lower what classes have of their rates to the room that there is, and return what they have together.

    As `quotas.sharing.capacities` has it: first classes that are promised nothing, then names below a default, then all
    in proportion.
    """
    had, rates = work[_HAD], work[_WEIGHTS]
    least, together = capacity * UNPROMISED_PART, 0.0
    for place in range(count):
        one = active[place]
        rates[place] = classes.rates[one] if classes.ranks[one] != EXEMPT else 0.0
        if classes.ranks[one] == _UNPROMISED:
            together += classes.rates[one]
    others = 0.0
    for place in range(count):
        rank = classes.ranks[active[place]]
        if rank == _UNPROMISED and together > least:
            rates[place] *= least / together
            had[place] = min(had[place], rates[place])
        if rank not in (_DEFAULT, EXEMPT):
            others += had[place]
    below = _shrink_defaults(count, active, classes, others, least, room, work)
    if others + below <= room * (1.0 + _SUM_PART):
        return others + below
    _fill(count, had, rates, room, work[_PARTS])
    for place in range(count):
        if classes.ranks[active[place]] != EXEMPT:
            had[place] = work[_PARTS, place]
    return room


@inlined
def _shrink_defaults(
    count: int, active: Ints, classes: Classes, others: float, least: float, room: float, work: Floats
) -> float:
    """Lower what names below a default have to what the others leave, `least` at least; return it.

    Their rates in `work` shrink by the factor that the one with most of its rate has.
    """
    had, rates, own = work[_HAD], work[_WEIGHTS], work[_REST]
    below = 0.0
    for place in range(count):
        own[place] = 0.0
        if classes.ranks[active[place]] == _DEFAULT:
            below += had[place]
            own[place] = rates[place]
    if others + below <= room * (1.0 + _SUM_PART) or below <= least:
        return below
    _fill(count, had, own, max(least, room - others), work[_PARTS])
    below, largest = 0.0, 0.0
    for place in range(count):
        if own[place] > 0.0:
            had[place] = work[_PARTS, place]
            below += had[place]
            largest = max(largest, had[place] / own[place])
    for place in range(count):
        if own[place] > 0.0:
            rates[place] *= largest
    return below


@inlined
def _pass(
    count: int, active: Ints, classes: Classes, capacity: float, block: int, work: Floats, found: Shared
) -> int:
    """Let one second pass; returns the number of classes with late bytes, which are then the first active ones."""
    _divide(count, active, classes, capacity, work)
    wanted = work[_WANTED]
    staying = 0
    together, carried = 0.0, 0.0
    for place in range(count):
        one = active[place]
        passed = work[_HAD, place] + work[_LENT, place]
        together += wanted[one]
        carried += passed
        found.wanted_s[one] += 1.0
        if passed >= _KEPT * min(wanted[one], classes.rates[one]):
            found.kept_s[one] += 1.0
        found.lent[one] += work[_LENT, place]
        found.carried[0, block] += work[_HAD, place]
        found.carried[1, block] += work[_LENT, place]
        late = wanted[one] - passed
        if late <= _PASSED:
            wanted[one] = 0.0
            continue
        found.waited_s[one] += min(1.0, late / passed) if passed > 0.0 else 1.0
        wanted[one] = late
        active[staying] = one
        staying += 1
    # Exempt classes pass whatever the capacity is.
    found.possible[block] += max(carried, min(together, capacity))
    return staying


@kept
def _shared(
    seconds: Ints,
    owners: Ints,
    sizes: Floats,
    classes: Classes,
    capacity: float,
    block_s: int,
    active: Ints,
    work: Floats,
    found: Shared,
) -> None:
    at, count, second = 0, 0, 0
    wanted = work[_WANTED]
    end = found.carried.shape[1] * block_s
    while at < len(seconds) or (count > 0 and second < end):
        if count == 0:
            second = seconds[at]
        while at < len(seconds) and seconds[at] == second:
            one = owners[at]
            if wanted[one] == 0.0 and sizes[at] > 0.0:
                active[count] = one
                count += 1
            wanted[one] += sizes[at]
            at += 1
        count = _pass(count, active, classes, capacity, second // block_s, work, found)
        second += 1
    for place in range(count):
        one = active[place]
        most = min(max(classes.ceilings[one], classes.rates[one]), capacity)
        found.waited_s[one] += wanted[one] / most
        found.late[one] = wanted[one]
