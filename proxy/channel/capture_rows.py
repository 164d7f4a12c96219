"""The row of a captured request while it is made, and where it goes (issue 7).

A row is one list, whose places `Row` names; `protocol.capture` says what is written of it. What all rows of one speaker
share is one tuple, `Place`. Nothing here is done for a connection that is not captured.
"""

from typing import Any, Final, NamedTuple, Protocol

from protocol.capture import NONE

__all__ = [
    "BATCH_WEIGHT",
    "FRAME_BYTES",
    "INT32_MAX",
    "NAME_CHARACTERS",
    "NONE_NS",
    "ROW_BYTES",
    "Head",
    "Place",
    "Recorder",
    "Row",
    "Tap",
]

# What is handed over at a time. A row weighs as many as it has partitions, at least 1, which is up to a kilobyte: so
# few that making columns of them keeps the loop from its turn for less than a millisecond, and so many that handing
# over costs nothing. So many characters of a new client id, and so many bytes of a frame, weigh 1 more.
BATCH_WEIGHT: Final = 1024
NAME_CHARACTERS: Final = 256
FRAME_BYTES: Final = 2048

INT32_MAX: Final = 0x7FFFFFFF  # the largest number of a column
NONE_NS: Final = 1000 * NONE  # which is NONE in microseconds


class Place(NamedTuple):
    """What all rows of a connection share, as long as its user and client id stay the same."""

    connection: int
    ip: str
    listener: str
    broker: int
    principal: str
    client_id: str


# What a row takes in memory, with one partition: the list, its numbers, the head, the partition's own tuple.
ROW_BYTES: Final = 1024


class Row:
    """Places in a row's list."""

    (
        HEAD,  # of the request, as `RequestSide` unpacks it: see `Head`
        PLACE,
        SEQ,
        HANDLED_NS,
        SENT_NS,
        RESPONSE_BYTES,
        UPSTREAM_NS,
        THROTTLE_MS,
        DELAY_MS,
        QUOTA,
        MUTATIONS,
        PARTITIONS,
    ) = range(12)
    FRAME = 12  # only where frames are captured


class Head:
    """Places in a request's head."""

    REQUEST_BYTES, API_KEY, API_VERSION, CORRELATION_ID = range(4)


class Recorder(Protocol):
    """Takes rows; see `proxy.capture`.

    Attributes:
        rows: those of the batch under way.
        left: of its weight; the row that takes the last of it has `full` called.
    """

    rows: list[list[Any]]
    left: int

    def full(self) -> None:
        """Begin another batch."""

    def reserve(self, size: int) -> bool:
        """Ask to keep a frame of so many bytes until its row is written; False where there is no room."""


class Tap(NamedTuple):
    """Where a channel's rows go, and whose they are.

    Attributes:
        frames: what is kept of its requests (`kept_frames`).
        partition_sample: which share of large frames is walked to the end, to tell all partitions apart.
    """

    recorder: Recorder
    connection: int
    ip: str
    listener: str
    frames: str = "off"
    partition_sample: float = 1.0
