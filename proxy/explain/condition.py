"""What a connection does at an instant: the shell's and the channel's part, as one value."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from proxy.channel import Muting, Probe
from quotas.engine import ClientQuota

__all__ = ["ASKED", "AT_BROKER", "AT_CLIENT", "IN_SLUICE", "UNASKED", "Condition"]

AT_CLIENT: Final = "client"  # it does not read, or a request of it is partly here
IN_SLUICE: Final = "sluice"  # a thread, or another process, has its request
AT_BROKER: Final = "broker"  # the broker connection is being opened, or takes no bytes
ASKED: Final = "asked"  # a broker owes a response
UNASKED: Final = "unasked"


class Condition(NamedTuple):
    """One connection at one instant.

    Args:
        quota: its client; None before the first request.
        broker: the id of its broker; -1 if that is unknown.
        activity: what it does, holds and mutes apart.
        held_ms, muted_ms: how long it has been held and muted since it began.
        muting: the throttle of the present or last mute.
        asked_ms: how long its broker has had its only request; -1 if that is unknown.
        probe: the last timed request; None if there is none.
        probed: those whose responses have begun since the last visit.
    """

    quota: ClientQuota | None
    broker: int
    activity: str
    held_ms: int
    muted_ms: int
    muting: Muting | None
    asked_ms: int = -1
    probe: Probe | None = None
    probed: Sequence[Probe] = ()
