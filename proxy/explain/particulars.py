"""What an operator wants to know of one connection beside its time: the client's software, its batches, its waits."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol import api
from proxy.channel import Probe
from proxy.explain.condition import Condition

__all__ = ["NO_PARTICULARS", "Particulars", "batch_bytes"]

# A timed request counts an eighth, those before it the rest: the mean follows a change within some 20 requests.
_NEWEST_PART: Final = 0.125
_FETCHES: Final = frozenset((api.FETCH, api.SHARE_FETCH))


class Particulars(NamedTuple):
    """One connection at its last visit.

    Args:
        library: name and version of the client's software; "" if it has not said them (KIP-511).
        batch_bytes: the mean of its timed Produce requests and of the responses to its Fetches; 0 before the first.
        in_flight: how many responses are owed.
        waits_until_ms: when its present hold or mute ends; 0 without one.
    """

    library: str = ""
    batch_bytes: float = 0.0
    in_flight: int = 0
    waits_until_ms: int = 0

    def after(self, condition: Condition) -> "Particulars":
        """Return those of a later visit: the same object if nothing has changed."""
        found = Particulars(
            condition.library,
            batch_bytes(self.batch_bytes, condition.probed.probes),
            condition.owed,
            condition.waits_until_ms,
        )
        return self if found == self else found


NO_PARTICULARS: Final = Particulars()


def batch_bytes(mean: float, probes: Iterable[Probe]) -> float:
    """Return the mean bytes with those of more timed requests.

    A Fetch that has waited for records does not count: its response is empty, or has fewer than it asked for.
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
