"""What a throttled client asks for, and the time that it would wait with another limit.

`proxy.explain.report` has the bounds: the most that it would take without a limit, if that is known, else what it was
seen to take, which is stated only where it is above the limit. A client that waits for a part w of its time takes n
times as much with n times the limit, if it wants that much, so it waits for 1 - n (1 - w) of its time at most.

Both are upper bounds. The client may use a mute for other things, which are not visible: a pause between requests, a
response in transit, another request in flight. Without the mute it would need that time too, and take less.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from proxy.explain.documents import DemandRow, Wants

ASSUMED: Final = "the client waits for its responses"
TIMES: Final = (1.0, 1.5, 2.0)  # of the present limit
_ABOVE_MIN: Final = 1.2  # of the limit: a lower bound below that says no more than that the client waits
_MINUTE_SECONDS: Final = 60.0


class Demand(msgspec.Struct, frozen=True, array_like=True):
    """One client's demand for one kind of quota, as rates in the quota's unit per second.

    Args:
        taken: the mean rate that it took over the window.
        highest: the highest mean rate that it took over 10 s or a minute of the window, at least `taken`.
        most: the most that it would take without a limit; None if that is not known.
        steady: whether it has waited for the same limit throughout the window, or not at all.
    """

    taken: float = 0.0
    highest: float = 0.0
    most: float | None = None
    steady: bool = False


NO_DEMAND: Final = Demand()


def merge_demands(some: Iterable[Demand]) -> Demand:
    """Add up one client's demand in several processes over the same window.

    >>> merge_demands([Demand(2.0, 5.0, 6.0, True), Demand(4.0, 4.0, 4.0, True)])
    Demand(taken=6.0, highest=6.0, most=10.0, steady=True)
    >>> merge_demands([Demand(2.0, 5.0), Demand(1.0, 1.0, 1.0, True)])
    Demand(taken=3.0, highest=5.0, most=None, steady=False)
    """
    found = list(some)
    taken = sum(one.taken for one in found)
    most = [one.most for one in found if one.most is not None]
    return Demand(
        taken,
        max([taken, *(one.highest for one in found)]),
        sum(most) if found and len(most) == len(found) else None,
        bool(found) and all(one.steady for one in found),
    )


def wants(demand: Demand, limit: float, waited: float, assumed: str = ASSUMED) -> Wants | None:
    """Return the rate that a client would take, and its waits with larger limits; None if nothing is known of it.

    Args:
        limit: its present limit, in the quota's unit per second.
        waited: the share of time (0 to 1) that its most waiting connection waits.
        assumed: the assumption behind these bounds, as text for people.

    >>> found = wants(Demand(2e6, 2e6, 4e6, True), 2e6, waited=0.5)
    >>> found.rate, found.wait_seconds_per_minute
    (4000000.0, {'1': 30.0, '1.5': 15.0, '2': 0.0})
    >>> wants(Demand(3e6, 5e6, 4e6), 2e6, waited=0.5).rate  # it was seen to take 5 MB/s
    5000000.0
    >>> wants(Demand(3e6, 5e6), 2e6, waited=0.5).at_least, wants(Demand(2e6, 2e6), 2e6, waited=0.99)
    (True, None)
    """
    if demand.most is None:
        seen = demand.highest >= _ABOVE_MIN * limit
        return Wants(rate=round(demand.highest, 3), at_least=True, assumed=assumed) if seen else None
    if not demand.most:  # it waits, and has taken nothing since
        return None
    waits = None
    if demand.steady:
        parts = {f"{times:g}": max(0.0, 1 - times * (1 - waited)) for times in TIMES}
        waits = {times: round(_MINUTE_SECONDS * part, 1) for times, part in parts.items()}
    rate = round(max(demand.most, demand.highest), 3)
    return Wants(rate=rate, assumed=assumed, wait_seconds_per_minute=waits)


def demand_row(demand: Demand) -> DemandRow:
    """Convert a demand to a row of the `/v1/client` document."""
    return DemandRow(
        taken=round(demand.taken, 3),
        highest=round(demand.highest, 3),
        most=None if demand.most is None else round(demand.most, 3),
    )
