"""The row of a captured request under construction, and its recorder (issue 7).

A row is one list; `Row` names its indices, and `protocol.capture` defines what is written of it. The values that all
rows of one client share are one tuple, `RowOrigin`. Connections without capture do not use this module.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from protocol.capture import NONE

# The weight of one batch. A row weighs as much as it has partitions, at least 1 (up to a kilobyte). The batch is small
# enough that converting it to columns blocks the loop for less than a millisecond, and large enough that the handover
# costs nothing. NAME_CHARACTERS of a new client id, and FRAME_BYTES of a frame, add a weight of 1.
BATCH_WEIGHT: Final = 1024
NAME_CHARACTERS: Final = 256
FRAME_BYTES: Final = 2048

INT32_MAX: Final = 0x7FFFFFFF  # the largest number of a column
NONE_NS: Final = 1000 * NONE  # which is NONE in microseconds


class RowOrigin(NamedTuple):
    """The values that all rows of a connection share, as long as its user and client id stay the same."""

    connection: int
    ip: str
    listener: str
    broker: int
    principal: str
    client_id: str


# The memory of a row with one partition: the list, its numbers, the head, the partition's own tuple.
ROW_BYTES: Final = 1024


class Row:
    """The indices of a row's list."""

    (
        HEAD,  # of the request, as `RequestDirection` unpacks it: see `Head`
        ORIGIN,
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
    """The indices of a request's head."""

    REQUEST_BYTES, API_KEY, API_VERSION, CORRELATION_ID = range(4)


class Recorder(Protocol):
    """Takes rows; see `proxy.capture`.

    Attributes:
        add: adds a finished row to the current batch; its partitions do not grow any more.
        left: the remaining weight of the batch; the row that uses it up calls `full`.
    """

    add: Callable[[list[Any]], None]
    left: int

    def full(self) -> None:
        """Begin another batch."""

    def reserve(self, size: int) -> bool:
        """Reserve memory for a frame of this size until its row is written; False if there is no room."""


class Tap(NamedTuple):
    """The destination of a channel's rows, and what is captured.

    Attributes:
        frames: which requests are kept whole (`kept_frames`).
        partition_sample: the share of large frames that are walked to the end, for all of their partitions.
    """

    recorder: Recorder
    connection: int
    ip: str
    listener: str
    frames: str = "off"
    partition_sample: float = 1.0
