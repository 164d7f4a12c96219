"""ElectLeaders 1: the preferred replica of a partition becomes its leader, asked for by Sluice itself (KIP-183).

Version 1 is the last without compact lengths; every broker since 2.4 speaks it, 4.x too. Unclean elections (type 1)
are not asked for: they lose records.
"""

from collections.abc import Sequence
from typing import Final

from protocol.header import response_body_start
from protocol.messages.by_partition import Partition
from protocol.primitives import Buffer, count, int16, int32, skip, string, string_bytes

__all__ = ["ELECTION_NOT_NEEDED", "ELECT_LEADERS", "VERSION", "read_answer", "request_body"]

ELECT_LEADERS: Final = 43
VERSION: Final = 1
ELECTION_NOT_NEEDED: Final = 84
_PREFERRED: Final = 0
_INT32_BYTES: Final = 4


def request_body(partitions: Sequence[Partition], timeout_ms: int) -> bytes:
    """A request's fields."""
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    parts = [bytes((_PREFERRED,)), len(topics).to_bytes(_INT32_BYTES, "big")]
    for name, indexes in topics.items():
        parts += [string_bytes(name, False), len(indexes).to_bytes(_INT32_BYTES, "big")]
        parts += [index.to_bytes(_INT32_BYTES, "big", signed=True) for index in indexes]
    parts.append(timeout_ms.to_bytes(_INT32_BYTES, "big"))
    return b"".join(parts)


def read_answer(frame: Buffer) -> tuple[int, dict[Partition, tuple[int, str]]]:
    """The error of all of it, and error and message of each partition; ELECTION_NOT_NEEDED is success.

    Raises:
        WireError: it is none.
    """
    end = len(frame)
    pos = skip(response_body_start(frame, 0, end, ELECT_LEADERS, VERSION), 4, end)
    error_code = int16(frame, pos, end)
    topics, pos = count(frame, pos + 2, end, False)
    found: dict[Partition, tuple[int, str]] = {}
    for _ in range(topics):
        name, pos = string(frame, pos, end, False)
        partitions, pos = count(frame, pos, end, False)
        for _ in range(partitions):
            index, code = int32(frame, pos, end), int16(frame, pos + 4, end)
            message, pos = string(frame, pos + 6, end, False)
            found[name or "", index] = (0 if code == ELECTION_NOT_NEEDED else code, message or "")
    return error_code, found
