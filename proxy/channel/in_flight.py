"""Answers owed on a channel, oldest first: Kafka answers in request order, and so does Sluice.

One entry is a plain tuple, the only object made for an ordinary request:
    (correlation id, responder, version, detail)
The responder is None where the answer passes as it is; where it is `LOCAL`, `detail` is the answer itself. `LATER`
stands where the answer is made here and not ready yet: the shell was given a `Question`, and replaces the entry by a
`LOCAL` one; or it has another request go to the broker first (`Forward`), whose answer is the responder's in `detail`.
While it is owed no further request is taken, so it is the last entry, and no broker's answer can come behind it: the
order needs no other care, as in a broker, which handles one request of a connection at a time.
Where the correlation id is `RAW_TOKEN` the answer is a SASL token without a Kafka header, and there may be none.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from proxy.channel.errors import PeerError

__all__ = [
    "ENTRY_BYTES",
    "LATER",
    "LOCAL",
    "RAW_TOKEN",
    "REST",
    "Buffer",
    "Entry",
    "Forward",
    "InFlight",
    "Question",
    "Responder",
    "Shared",
]

Buffer = bytearray

# A responder decides over an answer that starts at a position of a buffer: (side, buf, pos, end, entry,
# now_ms) -> 0 to pass it, or an order. `Any`: the side's own type would be a cycle, and the detail is what
# the same module put there.
Responder = Callable[[Any, Buffer, int, int, Any, int], int]
# What an entry takes in memory: the tuple, its numbers and its detail, a request that is measured included.
ENTRY_BYTES: Final = 384
Entry = tuple[int, Responder | None, int, Any]
InFlight = deque[Entry]


def _never_called(_side: Any, _buf: Buffer, _pos: int, _end: int, _entry: Any, _now_ms: int) -> int:
    raise AssertionError("a local answer has no broker's frame")


LOCAL: Final[Responder] = _never_called

RAW_TOKEN: Final = 1 << 40  # no int32: no answer with a correlation id can be taken for it


REST: Final = RAW_TOKEN + 1  # the rest of an answer whose head stands before it


def _nothing_is_owed(_side: Any, _buf: Buffer, _pos: int, _end: int, entry: Any, _now_ms: int) -> int:
    raise PeerError(
        "broker_out_of_order", f"a response with correlation id {entry[0]}, which belongs to no request"
    )


LATER: Final[Responder] = _nothing_is_owed


class Question(NamedTuple):
    """A request that the shell answers, away from the loop.

    Args:
        body_at: where the fields begin in the frame, which begins with its length prefix.
        user: the principal who asks.
        trusted: who asks needs no permission: nobody but this machine's users reaches the listener.
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
