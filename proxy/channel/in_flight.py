"""The responses owed on a channel, oldest first: Kafka responds in request order, and so does Sluice.

An entry is a plain tuple, the only object that an ordinary request creates:
    (correlation id, version, owed)
`owed` is None if the broker's response is forwarded unchanged, otherwise one of these:
    LocalResponse      a response made in Sluice, sent in its turn
    PendingResponse    a response that the shell has not made yet
    any other `Owed`, which decides on the broker's response when it arrives; defined in the module of its API
A `PendingResponse` is always the last entry: no further request is taken before its response, and no broker's response
can follow it, so the order is preserved, as in a broker, which handles one request per connection at a time. The shell
replaces it by a `LocalResponse`, or sends another request to the broker first (`Forward`); the API's handler then makes
the owed response. With the correlation id `BARE_TOKEN` the response is a SASL token without a Kafka header; it may be
missing.

Non-obvious:

- Local responses wait their turn. Clients match responses by order, so a response made in Sluice stands in the same
  queue as those that a broker owes.
- A response may be owed later. Another thread responds to the quota API. Until the response is there, no further
  request of that connection is taken (its intake is `AWAIT_SHELL`), so it is the last response owed.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias

from proxy.channel.errors import PeerError

if TYPE_CHECKING:
    from proxy.channel.direction import ChannelDirection  # which has the state, and so the owed responses


Buffer = bytearray

# The memory of an entry: the tuple, its numbers, and the owed response with that of a measured request.
ENTRY_BYTES: Final = 384

BARE_TOKEN: Final = 1 << 40  # not an int32: no response has this correlation id
RESPONSE_REST: Final = BARE_TOKEN + 1  # the rest of a response whose head has been inserted before it


class Owed:
    """An owed response that is not just forwarded, and its handling.

    Not an abstract class: `isinstance` for each response would be several times slower.
    """

    __slots__ = ()
    made: ClassVar[bool] = False  # whether the response is local

    def respond(
        self, direction: "ChannelDirection", buf: Buffer, pos: int, end: int, entry: "Entry", now_ms: int
    ) -> int:
        """Decide on the broker's response at `pos`: 0 to forward it, or an order of the direction."""
        raise NotImplementedError

    def muted(self, until_ms: int) -> "Owed":  # noqa: ARG002 - only the response to a Produce reports it
        """Return an owed response that also reports a mute until `until_ms`."""
        return self


Entry: TypeAlias = tuple[int, int, Owed | None]
# Not a deque, whose first block alone is 600 bytes. Nearly always it is short.
InFlight: TypeAlias = list[Entry]


class LocalResponse(Owed):
    """A local response, or a part of one. There is no broker's response for it."""

    __slots__ = ("response",)
    made = True

    def __init__(self, response: bytes | bytearray | memoryview) -> None:
        self.response = response


class PendingResponse(Owed):
    """A response that the shell makes.

    Attributes:
        forwarded: makes the owed response if the shell sends a request to the broker first; None if it sends none.
    """

    __slots__ = ("forwarded",)

    def __init__(self, forwarded: "Callable[[Forward], Owed] | None") -> None:
        self.forwarded = forwarded

    def respond(
        self, _direction: "ChannelDirection", _buf: Buffer, _pos: int, _end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Refuse a broker's response, since none is owed.

        Raises:
            PeerError: always.
        """
        raise PeerError(
            "broker_out_of_order", f"a response with correlation id {entry[0]}, which belongs to no request"
        )


class Question(NamedTuple):
    """A request that the shell responds to, outside of the loop.

    Args:
        body_at: the offset of the fields in the frame, which begins with its length prefix.
        user: the requesting principal.
        trusted: whether no permission is needed, since only users of this machine reach the listener.
        plan: the `Forward`'s plan if `frame` is the broker's response to it; None if `frame` is a client's request.
        address: the client's address, as in `ChannelSettings`.
        peer: the client's address and port, for the audit log; the shell fills it in.
    """

    api_key: int
    version: int
    correlation_id: int
    frame: bytes
    body_at: int
    user: str
    trusted: bool
    plan: object = None
    address: str = ""
    peer: str = ""


class SharedResponse(NamedTuple):
    """A response whose rest may be shared with other responses, so that it is in memory once.

    Args:
        head: the length prefix and the correlation id.
        rest: all bytes after the head.
    """

    head: bytes
    rest: memoryview

    def __bytes__(self) -> bytes:
        return self.head + bytes(self.rest)


class Forward(NamedTuple):
    """A request to send to the broker in place of the one that the shell was asked about.

    Args:
        frame: a whole request with the client's own correlation id.
        plan: the shell's state, returned with the broker's response.
    """

    api_key: int
    frame: bytes
    plan: object
