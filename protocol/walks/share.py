"""The walk through ShareFetch and ShareAcknowledge responses (KIP-932), and the fields of a ShareFetch request.

The walk rewrites the addresses after the topics, and counts the bytes of each topic.
Both APIs are flexible and use topic ids. Records are skipped by their length; the acquired ranges after them are read
because of their tags. NodeEndpoints is an array before the body's tags. `protocol.walks.walk` describes how to feed a
walk. Share sessions are not kept: a ShareFetch never has a local response.
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.api import SHARE_ACKNOWLEDGE, SHARE_FETCH
from protocol.errors import UnknownVersionError
from protocol.header import response_body_start
from protocol.messages.addresses import fit_array
from protocol.primitives import Buffer, int32, skip, skip_string, skip_tags, uvarint
from protocol.walks.walk import PARTITION_TAGS, Sizes, Walk

# The states in addition to those of every walk.
_ACQUIRED, _ACQUIRED_RANGES = 6, 7

_LOCK_TIMEOUT_SINCE: Final = {SHARE_FETCH: 1, SHARE_ACKNOWLEDGE: 2}
_VERSIONS: Final = range(1, 3)

# Session epoch, max_wait_ms, min_bytes, max_bytes, max_records, batch_size.
_NUMBERS: Final = Struct(">6i")
_WAIT_AT: Final = 4
_MAX_RECORDS_AT: Final = 16
_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")
_THREE_INT32: Final = Struct(">iii")
_ACQUIRE_MODE_SINCE: Final = 2
_FINAL_EPOCH: Final = -1
# The most partitions searched for acknowledgements: 2 ms. A request with more counts as one with acknowledgements.
PARTITIONS_MAX: Final = 10_000


class ShareFetchFields(NamedTuple):
    """The fields of a ShareFetch request that Sluice uses.

    Attributes:
        numbers_at: the position of the session epoch and the numbers after it, which `limit` and `request_no_records`
            change.
        acknowledges: whether it acknowledges or renews records, or ends its session, and so must reach the broker.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    numbers_at: int
    acknowledges: bool


def fetch_waits(buf: Buffer, body_pos: int, end: int) -> tuple[int, int]:
    """Return max_wait_ms and min_bytes of a ShareFetch request whose fields begin at `body_pos`.

    Raises:
        WireError: the frame ends before them.
    """
    # After group, member and session epoch, in every version.
    pos = skip_string(buf, skip_string(buf, body_pos, end, True), end, True)
    return int32(buf, pos + 4, end), int32(buf, pos + 8, end)


def read_fetch(buf: Buffer, body_pos: int, end: int, version: int) -> ShareFetchFields:
    """Return the fields of a complete ShareFetch request, which begin at `body_pos`.

    Raises:
        WireError: the frame ends before them.
    """
    numbers_at = skip_string(buf, skip_string(buf, body_pos, end, True), end, True)
    pos = skip(numbers_at, _NUMBERS.size, end)
    epoch, max_wait_ms, min_bytes, max_bytes, _, _ = _NUMBERS.unpack_from(buf, numbers_at)
    renews = False
    if version >= _ACQUIRE_MODE_SINCE:
        pos = skip(pos, 2, end)
        renews = bool(buf[pos - 1])
    acknowledges = epoch == _FINAL_EPOCH or renews or _acknowledges(buf, pos, end)
    return ShareFetchFields(max_wait_ms, min_bytes, max_bytes, numbers_at, acknowledges)


def limit(buf: bytearray, fields: ShareFetchFields, max_bytes: int, max_wait_ms: int) -> None:
    """Set max_bytes and max_wait_ms of a ShareFetch request to these smaller values, in place."""
    min_bytes = min(fields.min_bytes, max_bytes)
    _THREE_INT32.pack_into(buf, fields.numbers_at + _WAIT_AT, max_wait_ms, min_bytes, max_bytes)


def request_no_records(buf: bytearray, fields: ShareFetchFields) -> None:
    """Set max_records and max_wait_ms of a ShareFetch to 0, in place: the broker only handles its acknowledgements."""
    _TWO_INT32.pack_into(buf, fields.numbers_at + _WAIT_AT, 0, 0)  # max_wait_ms, min_bytes
    _INT32.pack_into(buf, fields.numbers_at + _MAX_RECORDS_AT, 0)


def _acknowledges(buf: Buffer, pos: int, end: int) -> bool:
    """Whether any of the partitions from `pos` on has acknowledgements."""
    topics, pos = uvarint(buf, pos, end)
    left = PARTITIONS_MAX
    for _ in range(topics - 1):
        partitions, pos = uvarint(buf, skip(pos, 16, end), end)
        left -= max(partitions, 1)
        if left < 0:
            return True
        for _ in range(partitions - 1):
            batches, pos = uvarint(buf, skip(pos, 4, end), end)
            if batches > 1:
                return True
            pos = skip_tags(buf, pos, end)
        pos = skip_tags(buf, pos, end)
    return False


class ShareWalk(Walk):
    """A walk through one ShareFetch or ShareAcknowledge response, to count topics' bytes and rewrite addresses."""

    __slots__ = ("_acquired", "_api_key", "_head_size")

    def __init__(self, api_key: int, version: int, frame_length: int, sizes: Sizes | None = None) -> None:
        """Create a walk from the request's API key and version, and the response's length prefix."""
        if api_key not in _LOCK_TIMEOUT_SINCE or version not in _VERSIONS:
            raise UnknownVersionError(f"the layout of version {version} of API {api_key} is not known")
        super().__init__(frame_length + 4, True, sizes, None, True)
        self._api_key = api_key
        # The bytes between the error message and the topics.
        self._head_size = 4 if version >= _LOCK_TIMEOUT_SINCE[api_key] else 0
        self._acquired = 0

    def _head(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        pos = response_body_start(buf, pos, limit, self._api_key, _VERSIONS.start)
        # Throttle time, error code, error message; then the acquisition lock timeout.
        pos = skip_string(buf, skip(pos, 6, limit), limit, True)
        topics, pos = uvarint(buf, skip(pos, self._head_size, limit), limit)
        self._begin_topics(topics - 1)
        return pos

    def _topic(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        stop = skip(pos, 16, limit)
        partitions, after = uvarint(buf, stop, limit)
        if self.sizes is not None:
            self._open_topic(buf, pos, stop, pos)
        self._begin_partitions(partitions - 1)
        return after

    def _partition(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        # Index, error code, error message; for ShareFetch the same of the acknowledgement, without an index.
        pos = skip_string(buf, skip(pos, 6, limit), limit, True)
        if self._api_key == SHARE_FETCH:
            pos = skip_string(buf, skip(pos, 2, limit), limit, True)
        # The current leader's id and epoch.
        pos = skip_tags(buf, skip(pos, 8, limit), limit)
        if self._api_key != SHARE_FETCH:
            self._state = PARTITION_TAGS
            return pos
        size, pos = uvarint(buf, pos, limit)
        self._state = _ACQUIRED
        return pos + max(size - 1, 0)

    def _acquired_count(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        size, pos = uvarint(buf, pos, limit)
        self._acquired = size - 1
        self._state = _ACQUIRED_RANGES if size > 1 else PARTITION_TAGS
        return pos

    def _acquired_ranges(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        """Pass acquired ranges: first offset, last offset, delivery count and tags. There may be thousands."""
        left = self._acquired
        while left and pos + 19 <= limit and not buf[pos + 18]:
            pos += 19
            left -= 1
        if left == self._acquired:
            pos = skip_tags(buf, skip(pos, 18, limit), limit)
            left -= 1
        self._acquired = left
        if not left:
            self._state = PARTITION_TAGS
        return pos

    def _tail(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        return self._replace_tail(buf, pos, limit, fit_array)

    STEPS = (
        _head,
        _topic,
        _partition,
        Walk._partition_tags,
        Walk._topic_tags,
        _tail,
        _acquired_count,
        _acquired_ranges,
    )
