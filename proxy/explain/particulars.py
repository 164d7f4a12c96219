"""Further values of one connection for operators: the client's software, its batches, its present wait."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol import api
from proxy.channel import Probe
from proxy.explain.condition import Condition

# A timed request counts an eighth, those before it the rest: the mean follows a change within some 20 requests.
_NEWEST_PART: Final = 0.125
_FETCHES: Final = frozenset((api.FETCH, api.SHARE_FETCH))


class Particulars(NamedTuple):
    """The values of one connection at its last visit.

    Args:
        library: name and version of the client's software; "" if it has not sent them (KIP-511).
        batch_bytes: the mean size of its timed Produce requests and responses to Fetches; 0 before the first.
        in_flight: the number of responses owed.
        waits_until_ms: when its present hold or mute ends; 0 without one.
        acks_all: whether its last timed Produce waited for followers too.
    """

    library: str = ""
    batch_bytes: float = 0.0
    in_flight: int = 0
    waits_until_ms: int = 0
    acks_all: bool = False

    def after(self, condition: Condition) -> "Particulars":
        """Return the values at a later visit; the same object if nothing has changed."""
        found = Particulars(
            condition.library,
            batch_bytes(self.batch_bytes, condition.probed.probes),
            condition.owed,
            condition.waits_until_ms,
            acks_all(self.acks_all, condition.probed.probes),
        )
        return self if found == self else found


NO_PARTICULARS: Final = Particulars()


def batch_bytes(mean: float, probes: Iterable[Probe]) -> float:
    """Return the mean size after further timed requests.

    A Fetch that has waited for records does not count: its response is empty or smaller than the Fetch permits.
    """
    for probe in probes:
        if probe.key == api.PRODUCE:
            size = probe.request_bytes
        elif probe.key in _FETCHES and not probe.waited_ns:
            size = probe.response_bytes
        else:
            continue
        mean = mean + _NEWEST_PART * (size - mean) if mean else float(size)
    return mean


def acks_all(before: bool, probes: Iterable[Probe]) -> bool:
    """Return whether the last timed Produce has acks=all."""
    for probe in probes:
        if probe.key == api.PRODUCE:
            before = probe.acks_all
    return before
