"""The observer of a channel: none or one, chosen when the connection is made.

A channel has one if its requests are captured (`captured`) or if it belongs to a follower (`replication`). The two
directions report events to it; it makes no decisions about bytes. A plain client's channel has none, which costs one
comparison per response.
"""

from collections.abc import Iterator
from typing import Protocol, TypeAlias

from protocol.walks.walk import Walk
from proxy.channel.in_flight import ENTRY_BYTES, Entry
from quotas.throttles.bandwidth import Throttle
from quotas.throttles.connections import UserThrottle
from quotas.throttles.mutation import MutationThrottle
from quotas.throttles.request import RequestThrottle
from quotas.throttles.topic_quotas import TopicThrottle

# Any throttle that may mute a channel.
Muting: TypeAlias = Throttle | MutationThrottle | TopicThrottle | UserThrottle | RequestThrottle


class ObservedDirection(Protocol):
    """The part of a direction that an observer reads.

    Attributes:
        frame_bytes: the size of the response being decided on, with its length prefix.
        walk: the walk through the current frame; None if it is not walked.
    """

    frame_bytes: int
    walk: Walk | None


class Observer:
    """Ignores all events; a subclass overrides some.

    Attributes:
        entry_bytes: the largest memory of one owed response, with the observer's data for it.
    """

    __slots__ = ()

    entry_bytes = ENTRY_BYTES

    def waits(self, held: bool) -> None:
        """Note that the next request waits: it is held before its slot, or the channel is muted."""

    def muted(self, throttle: Muting, throttle_ms: int, mute_ms: int) -> None:
        """Note that the channel is muted for `mute_ms`, by a throttle that asked for `throttle_ms`."""

    def walked(self, direction: ObservedDirection, walk: Walk, now_ms: int) -> None:
        """Note that a part of a frame was walked; after the last part, the direction has no walk any more."""

    def response_begun(self, direction: ObservedDirection, entry: Entry) -> None:
        """Note that a broker's response has begun to pass, and is no longer owed."""

    def local_response_sent(self, entry: Entry, response: bytes | bytearray | memoryview) -> None:
        """Note that a local response is sent to the client."""

    def broker_changed(self, broker: int) -> None:
        """Note that the connection leads to a different broker than intended."""

    def close(self, now_ms: int) -> Iterator[None]:  # noqa: ARG002 - a subclass gives back what it has reserved
        """Note that the connection has ended; iterate over the result to free the observer's memory in portions."""
        return iter(())
