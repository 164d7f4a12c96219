"""Responses owed on a channel, oldest first: Kafka answers in request order, and so does Sluice.

One entry is a plain tuple, the only object made for an ordinary request:
    (correlation id, version, what is owed)
What is owed is None where the broker's response passes as it is, and else one of these:
    Made      a response that was made here, given in its turn
    Later     a response that the shell makes and has not made yet
    any other `Owed`, which decides over the broker's response when it comes; the module of the API has its class
A `Later` is the last entry, since no further request is taken while one is owed, and no broker's response can come
behind it: the order needs no other care, as in a broker, which handles one request of a connection at a time. The shell
replaces it by a `Made`; or it has another request go to the broker first (`Forward`), and what is owed then is what the
API makes of that.
Where the correlation id is `RAW_TOKEN` the response is a SASL token without a Kafka header, and there may be none.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from proxy.channel.errors import PeerError

__all__ = [
    "ENTRY_BYTES",
    "RAW_TOKEN",
    "REST",
    "Buffer",
    "Entry",
    "Forward",
    "InFlight",
    "Later",
    "Made",
    "Owed",
    "Question",
    "Shared",
]

Buffer = bytearray

# What an entry takes in memory: the tuple, its numbers and what is owed, a request that is measured included.
ENTRY_BYTES: Final = 384

RAW_TOKEN: Final = 1 << 40  # no int32: no response with a correlation id can be taken for it
REST: Final = RAW_TOKEN + 1  # the rest of a response whose head stands before it


class Owed:
    """What a response that does not pass as it is means, and what is done with it.

    No abstract class: what is asked of each response with `isinstance` would cost several times as much. A side is
    `Any` here, since a side has what is owed.
    """

    __slots__ = ()
    made: ClassVar[bool] = False  # here

    def respond(self, side: Any, buf: Buffer, pos: int, end: int, entry: "Entry", now_ms: int) -> int:
        """Decide over the broker's response at `pos`: 0 to pass it, or an order of the side."""
        raise NotImplementedError

    def muted(self, until_ms: int) -> "Owed":  # noqa: ARG002 - only a Produce's tells it
        """The same where the response tells a mute until then, besides what it tells already."""
        return self


Entry: TypeAlias = tuple[int, int, Owed | None]
InFlight: TypeAlias = deque[Entry]


class Made(Owed):
    """A response that was made here, or a part of one. No broker's response comes for it."""

    __slots__ = ("response",)
    made = True

    def __init__(self, response: bytes | bytearray | memoryview) -> None:
        self.response = response


class Later(Owed):
    """A response that the shell makes.

    Attributes:
        forwarded: makes what is owed of the broker's response where the shell has one asked first; None where none is.
    """

    __slots__ = ("forwarded",)

    def __init__(self, forwarded: "Callable[[Forward], Owed] | None") -> None:
        self.forwarded = forwarded

    def respond(self, side: Any, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int) -> int:  # noqa: ARG002 - see Owed
        """Refuse a broker's response: none is owed.

        Raises:
            PeerError: always.
        """
        raise PeerError(
            "broker_out_of_order", f"a response with correlation id {entry[0]}, which belongs to no request"
        )


class Question(NamedTuple):
    """A request that the shell answers, away from the loop.

    Args:
        body_at: where the fields begin in the frame, which begins with its length prefix.
        user: the principal who asks.
        trusted: no permission is needed: only this machine's users reach the listener.
        plan: of the `Forward` to which `frame` is the broker's answer; None where `frame` is a client's request.
        address: the client's, as in `ChannelSettings`.
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


class Shared(NamedTuple):
    """An answer most of which several answers may share, so that it is in memory once.

    Args:
        head: the length prefix and the correlation id.
        rest: all that follows.
    """

    head: bytes
    rest: memoryview

    def __bytes__(self) -> bytes:
        return self.head + bytes(self.rest)


class Forward(NamedTuple):
    """What goes to the broker in place of a request that the shell was asked about.

    Args:
        frame: a whole request with the client's own correlation id.
        plan: the shell's, handed back with the broker's answer.
    """

    api_key: int
    frame: bytes
    plan: object
