"""Where replicas are and how large: Metadata 1 and DescribeLogDirs 1, asked for by Sluice's own commands (KIP-113).

Both are the newest versions without compact lengths that every broker still speaks. A broker's log directories are
described by that broker alone. Replicas that move between directories of one broker ("future") are left out.
"""

from typing import Final, NamedTuple

from protocol.api import METADATA
from protocol.header import response_body_start
from protocol.primitives import Buffer, count, int16, int32, skip, skip_string, string

__all__ = [
    "ALL_LOG_DIRS",
    "ALL_TOPICS",
    "DESCRIBE_LOG_DIRS",
    "LOG_DIRS_VERSION",
    "METADATA_VERSION",
    "Placed",
    "read_log_dirs",
    "read_metadata",
]

METADATA_VERSION: Final = 1
DESCRIBE_LOG_DIRS: Final = 35
LOG_DIRS_VERSION: Final = 1
# Null arrays: everything.
ALL_TOPICS: Final = b"\xff\xff\xff\xff"
ALL_LOG_DIRS: Final = b"\xff\xff\xff\xff"


class Placed(NamedTuple):
    """A partition's leader, -1 for none, and its replicas."""

    leader: int
    replicas: tuple[int, ...]


def read_metadata(frame: Buffer) -> tuple[dict[int, tuple[str, int]], dict[tuple[str, int], Placed]]:
    """The brokers' addresses and every partition of a whole answer.

    Raises:
        WireError: it is none.
    """
    end = len(frame)
    pos = response_body_start(frame, 0, end, METADATA, METADATA_VERSION)
    brokers: dict[int, tuple[str, int]] = {}
    entries, pos = count(frame, pos, end, False)
    for _ in range(entries):
        broker = int32(frame, pos, end)
        host, pos = string(frame, pos + 4, end, False)
        brokers[broker] = (host or "", int32(frame, pos, end))
        pos = skip_string(frame, pos + 4, end, False)
    topics, pos = count(frame, skip(pos, 4, end), end, False)
    placed: dict[tuple[str, int], Placed] = {}
    for _ in range(topics):
        name, pos = string(frame, skip(pos, 2, end), end, False)
        partitions, pos = count(frame, skip(pos, 1, end), end, False)
        for _ in range(partitions):
            index, leader = int32(frame, skip(pos, 2, end), end), int32(frame, skip(pos, 6, end), end)
            replicas, pos = _int32s(frame, pos + 10, end)
            _, pos = _int32s(frame, pos, end)
            placed[name or "", index] = Placed(leader, replicas)
    return brokers, placed


def read_log_dirs(frame: Buffer) -> dict[tuple[str, int], int]:
    """The bytes of each replica that a broker holds, from a whole answer.

    Raises:
        WireError: it is none.
    """
    end = len(frame)
    pos = skip(response_body_start(frame, 0, end, DESCRIBE_LOG_DIRS, LOG_DIRS_VERSION), 4, end)
    directories, pos = count(frame, pos, end, False)
    sizes: dict[tuple[str, int], int] = {}
    for _ in range(directories):
        int16(frame, pos, end)  # a directory that has failed names nothing
        pos = skip_string(frame, pos + 2, end, False)
        topics, pos = count(frame, pos, end, False)
        for _ in range(topics):
            name, pos = string(frame, pos, end, False)
            partitions, pos = count(frame, pos, end, False)
            for _ in range(partitions):
                after = skip(pos, 21, end)
                if not frame[after - 1]:
                    size = int.from_bytes(frame[pos + 4 : pos + 12], "big", signed=True)
                    sizes[name or "", int32(frame, pos, end)] = max(size, 0)
                pos = after
    return sizes


def _int32s(frame: Buffer, pos: int, end: int) -> tuple[tuple[int, ...], int]:
    size, pos = count(frame, pos, end, False)
    after = skip(pos, 4 * max(size, 0), end)
    return tuple(int32(frame, at, end) for at in range(pos, after, 4)), after
