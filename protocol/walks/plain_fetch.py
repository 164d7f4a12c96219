"""Reads the partitions of an ordinary Fetch response in one loop, for capture. Versions 12 to 18.

A *plain* response has few partitions, no aborted transactions and no tags, and the headers of its partitions have
arrived together; nearly every response is plain. Every other response is walked (`captured`), which reads it part by
part, however the stream is cut.
"""

from struct import Struct
from typing import Final

from protocol.messages.fetch import FLEXIBLE, VERSION_MAX
from protocol.walks.captured import PartitionRecords, records_in

__all__ = ["read_plain_fetch"]

_TOPIC_IDS_SINCE: Final = 13
_TOPIC_ID_BYTES: Final = 16
_HEADER_TAGS_AT: Final = 8  # after length and correlation id
_TOPICS_AT: Final = 19  # after those tags, throttle time, error code and session id
# At most 32 topics of 32 partitions, so that the time is bounded; a count is one more than the number.
_COUNT_MAX: Final = 33
_INDEX: Final = Struct(">i").unpack_from
# A partition: 30 bytes to the count of aborted transactions, that count, 4 bytes, the length of the records.
_ABORTED_AT: Final = 30
_RECORDS_AT: Final = 35
# After the last partition's records: its tags, those of its topic, and those of the response, all without any.
_TAIL_BYTES: Final = 3
_NOT_PLAIN: Final = -1


def read_plain_fetch(
    buf: bytes | bytearray, pos: int, end: int, frame_end: int, version: int
) -> list[PartitionRecords] | None:
    """Return the partitions, with the same result as a walk; None if the response must be walked.

    Args:
        pos: where the response begins, with its length prefix.
    """
    limit = min(end, frame_end)
    at = pos + _TOPICS_AT
    if not FLEXIBLE <= version <= VERSION_MAX or at >= limit or buf[pos + _HEADER_TAGS_AT]:
        return None
    topics = buf[at]
    at += 1
    if not 1 <= topics <= _COUNT_MAX:
        return None
    found: list[PartitionRecords] = []
    while topics > 1 and at < limit:
        topics -= 1
        name_at = at
        if version >= _TOPIC_IDS_SINCE:
            at += _TOPIC_ID_BYTES
        else:
            name_at += 1
            at += buf[at]
        at = _partitions(buf, name_at, at, limit, frame_end if topics == 1 else 0, found)
        if at == _NOT_PLAIN:
            return None
        if at >= limit:
            break  # the records of the last partition have not arrived
    # Without topics the tags of the response have arrived; otherwise `_partitions` has seen where they are.
    return found if topics == 1 and at == frame_end - 1 and (at >= end or not buf[at]) else None


def _partitions(
    buf: bytes | bytearray, name_at: int, at: int, limit: int, frame_end: int, found: list[PartitionRecords]
) -> int:
    """Read the partitions of a topic whose name ends at `at`; returns where the topic ends, or _NOT_PLAIN.

    Args:
        frame_end: the end of the response if it is the last topic; its last records need not have arrived.
    """
    if not name_at < at <= name_at + 127 or at >= limit or not 1 <= buf[at] <= _COUNT_MAX:
        return _NOT_PLAIN
    name = bytes(buf[name_at:at])
    left = buf[at]
    at += 1
    while left > 1:
        left -= 1
        last = at + _RECORDS_AT
        if last + 2 >= limit or buf[at + _ABORTED_AT] > 1:
            return _NOT_PLAIN
        # One more than the length, in at most three bytes (2 MiB); `last` is the last of them.
        size = buf[last]
        if size > 127:
            last += 1
            byte = buf[last]
            size += (byte << 7) - 128
            if byte > 127:
                last += 1
                byte = buf[last]
                size += (byte << 14) - (128 << 7)
                if byte > 127:
                    return _NOT_PLAIN
        if not size:
            return _NOT_PLAIN
        stop = last + size
        records = records_in(buf, last + 1, stop, min(stop, limit)) if size > 1 else 0
        found.append((name, _INDEX(buf, at)[0], size - 1, records))
        if stop >= limit:
            plain = left == 1 and stop + _TAIL_BYTES == frame_end
            return stop + _TAIL_BYTES - 1 if plain else _NOT_PLAIN
        if buf[stop]:
            return _NOT_PLAIN
        at = stop + 1
    return at + 1 if at < limit and not buf[at] else _NOT_PLAIN
