"""Topics with their partitions: a structure of compact requests and responses about partitions.

The caller reads the fields after a partition's index; tags are skipped.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from protocol.errors import MalformedFieldError, OversizedError
from protocol.primitives import Buffer, count, int32, skip_tags, string

__all__ = ["PARTITIONS_MAX", "Partition", "check_ended", "read_partitions"]

# The most partitions of one message. With three replicas each they take more than 8 MiB of a response; one without
# any has six bytes, of which 4 MiB took 4 s to read and 107 MB to keep.
PARTITIONS_MAX: Final = 250_000

Partition: TypeAlias = tuple[str, int]
T = TypeVar("T")


def read_partitions(
    frame: Buffer, pos: int, end: int, read: Callable[[Buffer, int, int], tuple[T, int]]
) -> tuple[list[tuple[Partition, T]], int]:
    """Read all topics; returns each partition with the result of `read`, in order, and the position after them.

    Raises:
        WireError: there are no topics, or more partitions than PARTITIONS_MAX.
    """
    topics, pos = count(frame, pos, end, True)
    found: list[tuple[Partition, T]] = []
    for _ in range(topics):
        name, pos = string(frame, pos, end, True)
        partitions, pos = count(frame, pos, end, True)
        if len(found) + partitions > PARTITIONS_MAX:
            raise OversizedError(f"more than {PARTITIONS_MAX} partitions, at byte {pos}")
        for _ in range(partitions):
            index = int32(frame, pos, end)
            one, pos = read(frame, pos + 4, end)
            pos = skip_tags(frame, pos, end)
            found.append(((name or "", index), one))
        pos = skip_tags(frame, pos, end)
    return found, pos


def check_ended(pos: int, end: int) -> None:
    """Refuse bytes after the fields.

    Raises:
        MalformedFieldError: there are such bytes.
    """
    if pos != end:
        raise MalformedFieldError(f"{end - pos} bytes follow the fields, which end at byte {pos}")
