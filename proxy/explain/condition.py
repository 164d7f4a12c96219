"""The state of a connection at one instant, from the shell and the channel, as one value."""

from typing import Final, NamedTuple

from proxy.channel import NONE_PROBED, Muting, Probe, Probed, ReplicaThrottle
from quotas.limiters.virtual_time import ConnectionTime
from quotas.throttles.client import ClientQuota

UNREAD: Final = "unread"  # the client does not read its responses
AT_CLIENT: Final = "client"  # a request of it is partly here
IN_SLUICE: Final = "sluice"  # a thread, or another process, has its request
AT_BROKER: Final = "broker"  # the broker connection is being opened, or takes no bytes
ASKED: Final = "asked"  # a broker owes a response
UNASKED: Final = "unasked"


class Condition(NamedTuple):
    """One connection at one instant.

    Args:
        quota: its client's quotas; None before the first request, and for a follower.
        broker: the id of its broker; -1 if that is unknown.
        activity: what it does; during a hold or mute, whether a response is owed.
        held_ms, muted_ms: the time that it has been held and muted since it began.
        muting: the throttle of the present or last mute.
        asked_ms: how long its broker has had its oldest request, at least; -1 without any.
        probe: the last timed request; None if there is none.
        probed: the timed requests whose responses have begun since the last visit.
        follower: the id of the broker that fetches as a follower; -1 for a client.
        leaving_out: the limit for which a follower's present Fetch leaves replicas out.
        virtual_time: its waits if quotas were enforced; None if there are none.
        waits_until_ms: when the present hold or mute ends; 0 without one.
        owed: the number of responses owed.
        library: the name and version of its client's software.
    """

    quota: ClientQuota | None
    broker: int
    activity: str
    held_ms: int
    muted_ms: int
    muting: Muting | None
    asked_ms: int = -1
    probe: Probe | None = None
    probed: Probed = NONE_PROBED
    follower: int = -1
    leaving_out: ReplicaThrottle | None = None
    virtual_time: ConnectionTime | None = None
    waits_until_ms: int = 0
    owed: int = 0
    library: str = ""
