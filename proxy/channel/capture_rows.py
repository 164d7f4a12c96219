"""The row of a captured request under construction, and its recorder (issue 7).

A row is one list; `Row` names its indices, and `protocol.capture` defines what is written of it. The values that all
rows of one client share are one tuple, `RowOrigin`. Connections without capture do not use this module.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from protocol.api import (
    API_NAMES,
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    PRODUCE,
    RENEW_DELEGATION_TOKEN,
    SASL_AUTHENTICATE,
)
from protocol.capture import NONE
from protocol.header import RequestHead
from proxy.channel.in_flight import Buffer

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


# ----------------------------------------------------------------------------------------------------
# Whole requests kept with their rows, for replay, without secrets (issue 7).
#
#     blank    every request unchanged, except Produce, whose payload is generated from its row
#     keep     also Produce with its payload
#
# Secrets are never kept: in requests that contain any (SASL tokens, SCRAM credentials, delegation tokens,
# configs that
# may be passwords, requests in an Envelope), and in unknown APIs, all bytes after the client id are replaced
# by zeros.
# Tokens without a Kafka header have no rows. Responses are not kept.
#
# A request larger than one read is only kept in mode `keep`, which assembles it as it is forwarded. A request
# is not kept
# if it is larger than FRAME_BYTES_MAX, if RESERVED_ROWS_MAX others of its connection await responses, or if
# the recorder
# has no room: its row has no frame. Room for the whole request is reserved when it begins, and released when
# its row is
# written, with or without the frame.


KEEP: Final = "keep"
NOT_KEPT: Final = b""
FRAME_BYTES_MAX: Final = 2 * 1024 * 1024  # twice Java's max.request.size
RESERVED_ROWS_MAX: Final = 64

_ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS, _ALTER_SCRAM, _ENVELOPE = 33, 44, 51, 58
_SECRET: Final = frozenset(
    (
        SASL_AUTHENTICATE, CREATE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN,
        DESCRIBE_DELEGATION_TOKEN, _ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS, _ALTER_SCRAM, _ENVELOPE,
    )
)  # fmt: skip


class Keeper:
    """Keeps the requests of one connection.

    Args:
        reserve: reserves memory.
    """

    __slots__ = ("_frame_bytes", "_partial", "_reserve", "payloads")

    def __init__(self, mode: str, reserve: Callable[[int], bool]) -> None:
        self.payloads = mode == KEEP
        self._reserve = reserve
        self._partial: bytearray | None = None  # the part of the current request that was forwarded
        self._frame_bytes = 0

    def keep(
        self, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, owed: int
    ) -> bytes | bytearray:
        """Return the kept bytes of the request at `pos`, which may still grow; NOT_KEPT if it is not kept."""
        length, key, _, _, _ = head
        frame_end = pos + 4 + length
        self._partial = None
        if length > FRAME_BYTES_MAX or owed >= RESERVED_ROWS_MAX or (key == PRODUCE and not self.payloads):
            return NOT_KEPT
        secret = key in _SECRET or key not in API_NAMES
        if frame_end > end and not self.payloads and not secret:
            return NOT_KEPT
        if not self._reserve(4 + length):
            return NOT_KEPT
        if secret:
            return bytes(buf[pos : min(body, frame_end)]) + bytes(max(frame_end - body, 0))
        if frame_end <= end:
            return bytes(buf[pos:frame_end])
        self._partial = bytearray()
        self._frame_bytes = 4 + length
        return self._partial

    def incomplete(self) -> bool:
        """Whether a kept request is incomplete."""
        return self._partial is not None

    def passed(self, buf: Buffer, start: int, stop: int) -> None:
        """Add forwarded bytes to the incomplete request; bytes after its end belong to the next one."""
        partial = self._partial
        if partial is None:
            return
        partial += memoryview(buf)[start : min(stop, start + self._frame_bytes - len(partial))]
        if len(partial) >= self._frame_bytes:
            self._partial = None


def complete_frame(frame: Any, request_bytes: int) -> bytes:
    """Return the kept bytes if they are complete; the connection may have ended before."""
    return bytes(frame) if len(frame) == request_bytes + 4 else b""
