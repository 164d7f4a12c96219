"""The most that a throttled client would take without a limit, and the time that it would wait with another limit.

Most clients send the next request when they have the response to the last one. Such a client, which waits for a part w
of its time and has the rate r, would have r / (1 - w) without a limit, since it needs the rest of its time per byte as
before. While it is throttled, r is its part of the budget; so with n times the limit it has n r, and waits for
1 - n r / wants = 1 - n (1 - w) of its time.

Both are upper bounds. The client may use a mute for other things, which are not visible: a pause between requests, a
response in transit, another request in flight. Without the mute it would need that time too, and take less. A client
that waits nearly all of its time may want little more than it has, or any multiple; only its present rate is reported.
"""

from typing import Final, NamedTuple

__all__ = ["TIMES", "Wants", "wants"]

TIMES: Final = (1.0, 1.5, 2.0)  # of the present limit
# Beyond that the bound is ten times the present rate, which says nothing.
_WAITED_MAX: Final = 0.9
_MINUTE_SECONDS: Final = 60.0


class Wants(NamedTuple):
    """The rate that a client would take.

    Args:
        rate: the highest rate without a limit, in the quota's unit per second; with `at_least`, the present rate.
        at_least: whether it wants more by an unknown amount, since it waits nearly all of its time.
        waits: the most seconds that it would wait in a minute, by the limit as a multiple of the present one.
    """

    rate: float
    at_least: bool
    waits: dict[float, float]


def wants(rate: float, waited: float) -> Wants:
    """Return the rate that a client would take, which waits for the part `waited` of its time.

    >>> found = wants(2e6, waited=0.5)
    >>> found.rate, found.waits
    (4000000.0, {1.0: 30.0, 1.5: 15.0, 2.0: 0.0})
    """
    waits = {times: round(_MINUTE_SECONDS * max(0.0, 1 - times * (1 - waited)), 1) for times in TIMES}
    at_least = waited > _WAITED_MAX
    return Wants(rate if at_least else rate / (1 - waited), at_least, waits)
