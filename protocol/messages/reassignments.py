"""ListPartitionReassignments 0: the reassignments under way, asked for by Sluice itself (KIP-455).

Only what is being added is read (KIP-73 throttles that); the rest of a partition's replicas is passed over.
"""

from typing import Final, NamedTuple

from protocol.header import response_body_start
from protocol.primitives import Buffer, count, int16, int32, skip, skip_tags, string

__all__ = ["EVERYTHING", "LIST_PARTITION_REASSIGNMENTS", "VERSION", "Reassignments", "read_answer"]

LIST_PARTITION_REASSIGNMENTS: Final = 46
VERSION: Final = 0
# A request's fields: a minute's time, all topics, no tags.
EVERYTHING: Final = (60_000).to_bytes(4, "big") + b"\0\0"


class Reassignments(NamedTuple):
    """What is under way: (topic, partition) -> brokers being added."""

    error_code: int
    error_message: str
    adding: dict[tuple[str, int], frozenset[int]]


def read_answer(frame: Buffer) -> Reassignments:
    """Read a whole answer.

    Raises:
        WireError: it is none.
    """
    end = len(frame)
    pos = skip(response_body_start(frame, 0, end, LIST_PARTITION_REASSIGNMENTS, VERSION), 4, end)
    error_code = int16(frame, pos, end)
    message, pos = string(frame, pos + 2, end, True)
    topics, pos = count(frame, pos, end, True)
    adding: dict[tuple[str, int], frozenset[int]] = {}
    for _ in range(topics):
        name, pos = string(frame, pos, end, True)
        partitions, pos = count(frame, pos, end, True)
        for _ in range(partitions):
            index = int32(frame, pos, end)
            _, pos = _brokers(frame, pos + 4, end)
            added, pos = _brokers(frame, pos, end)
            _, pos = _brokers(frame, pos, end)
            pos = skip_tags(frame, pos, end)
            if added:
                adding[name or "", index] = frozenset(added)
        pos = skip_tags(frame, pos, end)
    return Reassignments(error_code, message or "", adding)


def _brokers(frame: Buffer, pos: int, end: int) -> tuple[list[int], int]:
    size, pos = count(frame, pos, end, True)
    after = skip(pos, 4 * max(size, 0), end)
    return [int32(frame, at, end) for at in range(pos, after, 4)], after
