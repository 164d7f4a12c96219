"""The walk through a Produce request, versions 0 to 13: counts the bytes of each topic.

Kafka has no topic quotas, so there is no KIP for this. Lengths and the topics' names are read, or their ids since
version 13 (KIP-516); records are skipped by their length, and nothing is changed or copied.
`protocol.walks.walk` describes how to feed a walk; the first byte is that of the length prefix, as in responses.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Final

from protocol.api import MAX_VERSION, PRODUCE
from protocol.errors import UnknownVersionError
from protocol.header import REQUEST_HEAD, skip_header_tags
from protocol.primitives import bytes_size, int16, int32, skip, skip_string, streamed_count
from protocol.walks.walk import PartitionSink, Sizes, Walk

# The state in addition to those of every walk.
_FIELDS = 6

_CLIENT_ID_AT: Final = REQUEST_HEAD.size
_TRANSACTIONS_SINCE: Final = 3
_FLEXIBLE_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 13


class ProduceWalk(Walk):
    """A walk through one Produce request, which can count each topic's bytes and report each partition."""

    __slots__ = ("_version",)

    def __init__(
        self, version: int, frame_length: int, sizes: Sizes | None, sink: PartitionSink | None = None
    ) -> None:
        """Create a walk from the request's version and its length prefix."""
        if not 0 <= version <= MAX_VERSION[PRODUCE]:
            raise UnknownVersionError(f"the layout of Produce version {version} is not known")
        compact, by_id = version >= _FLEXIBLE_SINCE, version >= _TOPIC_IDS_SINCE
        super().__init__(frame_length + 4, compact, sizes, sink, by_id)
        self._version = version

    def _head(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        """Pass the header: its fixed part, the client id, and tags."""
        size = int16(buf, pos + _CLIENT_ID_AT - 2, limit)
        pos = skip(pos, _CLIENT_ID_AT + max(size, 0), limit)
        if self._compact:
            pos = skip_header_tags(buf, pos, limit)
        self._state = _FIELDS
        return pos

    def _fields(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        if self._version >= _TRANSACTIONS_SINCE:
            pos = skip_string(buf, pos, limit, self._compact)
        # After acks and timeout.
        topics, pos = streamed_count(buf, skip(pos, 6, limit), limit, self._compact)
        self._begin_topics(topics)
        return pos

    def _partition(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        index = int32(buf, pos, limit)
        size, pos = bytes_size(buf, pos + 4, limit, self._compact)
        return self._records_at((index, 0, -1), buf, pos, size, limit)

    def _tail(self, _buf: bytearray | memoryview, _pos: int, _limit: int) -> int:
        """Pass the tags; none is defined."""
        self.done = True
        return self._frame_end

    STEPS: ClassVar[tuple[Callable[[Any, bytearray | memoryview, int, int], int], ...]] = (
        _head,
        Walk._topic_at,
        _partition,
        Walk._partition_tags,
        Walk._topic_tags,
        _tail,
        _fields,
    )
