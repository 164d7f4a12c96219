"""The partition of a Produce request that is as plain as nearly all are, in one `unpack`, for capture.

Versions 9 to 13. A walk (`captured`) reads any request part by part; most of a producer's are alike but for the
index of the partition and the batch, so what stands before is compared with the last one's, and the rest lies at known
places. Whatever does not fit exactly is left to the walk.
"""

from struct import Struct
from typing import Final

from protocol.walks.captured import UNCOUNTED, Found

__all__ = ["PlainProduce"]

_FLEXIBLE_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 13
_MAGIC: Final = 2
_BATCH_PREFIX: Final = 12  # base offset and length, which the length does not count
_BATCH_HEADER_BYTES: Final = 61
# A partition with its only batch, by how many bytes the size of that takes: index; length, magic, records.
_ONE_BATCH: Final = Struct(">i1x8xi4xb40xi").unpack_from
_ONE_BATCH_SIZE_2: Final = Struct(">i2x8xi4xb40xi").unpack_from
_ONE_BATCH_SIZE_3: Final = Struct(">i3x8xi4xb40xi").unpack_from
_ONE_BATCH_BYTES: Final = 4 + 3 + _BATCH_HEADER_BYTES


class PlainProduce:
    """Finds what a walk would, in those Produces of a connection that are like nearly all.

    They name one partition, with one batch whose header is at hand, and begin as the last one did: without tags and
    transaction, with the same acks, timeout and topic.
    """

    __slots__ = ("_name", "_prefix", "_version")

    def __init__(self) -> None:
        self._version = UNCOUNTED
        self._prefix = self._name = b""

    def found(
        self, buf: bytes | bytearray, body: int, end: int, frame_end: int, version: int
    ) -> list[Found] | None:
        """The partition; None where the request has to be walked.

        Args:
            body: where the client id ends.
        """
        if (version != self._version or not buf.startswith(self._prefix, body)) and not self._learned(
            buf, body, min(end, frame_end), version
        ):
            return None
        start = body + len(self._prefix)
        if start + _ONE_BATCH_BYTES > end:
            return None
        # The batch lies between its length, a varint that is one more, and three counts of tags, all 0.
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

    def _learned(self, buf: bytes | bytearray, body: int, limit: int, version: int) -> bool:
        """Take what stands before the partition, if that is plain."""
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
