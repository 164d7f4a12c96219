"""Reads the partition of an ordinary Produce request in one `unpack`, for capture. Versions 9 to 13.

Most requests of a producer differ from the one before only in the partition's index and the batch. So the bytes before
these are compared with those of the last request, and the fields after them are at known offsets. Every other request
is walked (`captured`), which reads it part by part.
"""

from struct import Struct
from typing import Final

from protocol.walks.captured import UNCOUNTED, PartitionRecords

__all__ = ["PlainProduce"]

_FLEXIBLE_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 13
_MAGIC: Final = 2
_BATCH_PREFIX: Final = 12  # base offset and length, not included in the length
_BATCH_HEADER_BYTES: Final = 61
# A partition with one batch, by the number of bytes that its size takes: index; length, magic, number of records.
_ONE_BATCH: Final = Struct(">i1x8xi4xb40xi").unpack_from
_ONE_BATCH_SIZE_2: Final = Struct(">i2x8xi4xb40xi").unpack_from
_ONE_BATCH_SIZE_3: Final = Struct(">i3x8xi4xb40xi").unpack_from
_ONE_BATCH_BYTES: Final = 4 + 3 + _BATCH_HEADER_BYTES


class PlainProduce:
    """Reads the ordinary Produce requests of one connection, with the same result as a walk.

    An ordinary request has one partition with one batch, whose header has arrived, and begins like the last one: no
    tags, no transactional id, and the same acks, timeout and topic.
    """

    __slots__ = ("_name", "_prefix", "_version")

    def __init__(self) -> None:
        self._version = UNCOUNTED
        self._prefix = self._name = b""

    def read(
        self, buf: bytes | bytearray, body: int, end: int, frame_end: int, version: int
    ) -> list[PartitionRecords] | None:
        """Return the partition, as a list of one; None if the request must be walked.

        Args:
            body: the end of the client id.
        """
        if (version != self._version or not buf.startswith(self._prefix, body)) and not self._learn_prefix(
            buf, body, min(end, frame_end), version
        ):
            return None
        start = body + len(self._prefix)
        if start + _ONE_BATCH_BYTES > end:
            return None
        # Before the batch is its length plus one, as a varint; after it are three counts of tags, all 0.
        unpack = _ONE_BATCH
        size = frame_end - start - 8
        if size > 126:
            unpack = _ONE_BATCH_SIZE_2
            size -= 1
            if size > 0x3FFE:
                unpack = _ONE_BATCH_SIZE_3
                size -= 1
        index, length, magic, records = unpack(buf, start)
        if length + _BATCH_PREFIX == size and magic == _MAGIC and records >= 0:
            return [(self._name, index, size, records)]
        return None

    def _learn_prefix(self, buf: bytes | bytearray, body: int, limit: int, version: int) -> bool:
        """Note the bytes before the partition if the request is an ordinary one; returns whether it is."""
        self._version = UNCOUNTED
        topic_at = body + 9
        if version < _FLEXIBLE_SINCE or topic_at >= limit or buf[body] or buf[body + 1]:
            return False
        by_id = version >= _TOPIC_IDS_SINCE
        after = topic_at + (16 if by_id else buf[topic_at])
        plain = buf[topic_at - 1] == 2 and after < limit and buf[after] == 2  # one topic, one partition
        if not plain or not (by_id or 1 < buf[topic_at] <= 127):
            return False
        self._version = version
        self._name = bytes(buf[topic_at + (not by_id) : after])
        self._prefix = bytes(buf[body : after + 1])
        return True
