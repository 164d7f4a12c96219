"""What may look on at a channel: one observer, chosen when the connection is made, or none.

A channel has one where its requests are captured (`captured`) or where it belongs to a follower (`replication`). The
directions tell it what has happened; it decides nothing about bytes. A plain client's channel has none and pays one
comparison a response for that.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from protocol.walks.walk import Walk
from proxy.channel.in_flight import ENTRY_BYTES, Entry
from quotas.throttles.bandwidth import Throttle
from quotas.throttles.mutation import MutationThrottle
from quotas.throttles.request import RequestThrottle
from quotas.throttles.topic_quotas import TopicThrottle
from quotas.throttles.user_connections import UserThrottle

__all__ = ["Muting", "Observer"]

# Whatever may mute a channel.
Muting: TypeAlias = Throttle | MutationThrottle | TopicThrottle | UserThrottle | RequestThrottle


class Observer:
    """Sees nothing; a subclass says what it looks at. A side is `Any` here, since its state has the observer.

    Attributes:
        entry_bytes: what one response owed takes in memory, at most, what is noted for it included.
    """

    __slots__ = ()

    entry_bytes = ENTRY_BYTES

    def waits(self, held: bool) -> None:
        """The next request waits for some time: held before its slot, or because the channel is muted."""

    def muted(self, throttle: Muting, throttle_ms: int, told_ms: int) -> None:
        """The channel is muted for `told_ms`, by a throttle that asked for `throttle_ms`."""

    def walked(self, side: Any, walk: Walk, now_ms: int) -> None:
        """A part of a frame was walked; the side has no walk any more where that was its end."""

    def answered(self, side: Any, entry: Entry) -> None:
        """A broker's response has begun to pass, and is owed no more."""

    def answered_here(self, entry: Entry, response: bytes | bytearray | memoryview) -> None:
        """A response that was made here goes to the client."""

    def joined(self, broker: int) -> None:
        """Another broker is behind the bootstrap port than was meant to be."""

    def close(self, now_ms: int) -> Iterator[None]:  # noqa: ARG002 - a subclass gives back what it has reserved
        """The connection is over; what is given frees what was known, a portion at a time."""
        return iter(())
