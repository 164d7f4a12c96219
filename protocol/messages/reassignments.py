"""ListPartitionReassignments 0-1: the reassignments under way (KIP-455), and KIP-435's current batch.

Sluice requests them itself (version 0), and shows reassignments in steps to clients as the one that was requested.
Version 1 is KIP-435's, and no broker's: a second list, of the current steps, follows version 0's fields. The proposal's
draft has two lists per partition where Kafka released three in version 0; the first list here is Kafka's, the second
the proposal's.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from protocol.api import LIST_PARTITION_REASSIGNMENTS
from protocol.header import RESPONSE_HEAD, response_body_start
from protocol.messages.by_partition import Partition, check_ended, read_partitions
from protocol.primitives import (
    Buffer,
    count,
    count_bytes,
    int16,
    int32,
    int32s,
    int32s_bytes,
    nullable_int32s,
    skip,
    skip_tags,
    string,
    string_bytes,
)

__all__ = [
    "BATCH_VERSION",
    "EVERYTHING",
    "LIST_PARTITION_REASSIGNMENTS",
    "VERSION",
    "Ongoing",
    "Reassignments",
    "Stepping",
    "Wanted",
    "read_batch",
    "read_request",
    "read_response",
    "write_response",
]

VERSION: Final = 0
BATCH_VERSION: Final = 1
# A request's fields: a minute's time, all topics, no tags.
EVERYTHING: Final = (60_000).to_bytes(4, "big") + b"\0\0"
_ONE_BYTE_COUNT_MAX: Final = 126


class Ongoing(NamedTuple):
    """A partition's reassignment. `replicas` are the target replicas, then those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Stepping(NamedTuple):
    """A partition's current step: the proposal's CurrentPartitionReassignmentBatch."""

    current: tuple[int, ...]
    target: tuple[int, ...]


class Reassignments(NamedTuple):
    """The reassignments under way."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    ongoing: dict[Partition, Ongoing]

    @property
    def adding(self) -> dict[Partition, frozenset[int]]:
        """The brokers being added, of those partitions that have any."""
        return {key: frozenset(one.adding) for key, one in self.ongoing.items() if one.adding}


class Wanted(NamedTuple):
    """The partitions that a request asks for; None for all."""

    partitions: frozenset[Partition] | None


def read_request(frame: Buffer, body: int) -> Wanted:
    """Decode a whole request of version 0 or 1.

    Raises:
        WireError: it is not such a request.
    """
    end = len(frame)
    topics, pos = count(frame, skip(body, 4, end), end, True)
    wanted: set[Partition] = set()
    for _ in range(topics):
        name, pos = string(frame, pos, end, True)
        partitions, pos = nullable_int32s(frame, pos, end, True)
        wanted.update((name or "", index) for index in partitions or ())
        pos = skip_tags(frame, pos, end)
    check_ended(skip_tags(frame, pos, end), end)
    return Wanted(None if topics < 0 else frozenset(wanted))


def read_response(frame: Buffer) -> Reassignments:
    """Decode a whole response of version 0, or the same fields of version 1.

    Raises:
        WireError: it is not such a response.
    """
    return _read(frame)[0]


def read_batch(frame: Buffer) -> tuple[Reassignments, dict[Partition, Stepping]]:
    """Decode a whole response of version 1.

    Raises:
        WireError: it is not such a response.
    """
    end = len(frame)
    found, pos = _read(frame)
    batch, pos = read_partitions(frame, pos, end, _stepping)
    check_ended(skip_tags(frame, pos, end), end)
    return found, dict(batch)


def write_response(
    found: Reassignments, correlation_id: int, batch: Mapping[Partition, Stepping] | None = None
) -> bytes:
    """Encode a whole response: of version 1 if `batch` is given, even if it is empty; otherwise of version 0."""
    body = (
        RESPONSE_HEAD.pack(0, correlation_id)[4:]
        + b"\0"
        + found.throttle_time_ms.to_bytes(4, "big", signed=True)
        + found.error_code.to_bytes(2, "big", signed=True)
        + string_bytes(found.error_message, True)
        + _topics((key, (one.replicas, one.adding, one.removing)) for key, one in found.ongoing.items())
    )
    if batch is not None:
        body += _topics((key, (step.current, step.target)) for key, step in batch.items())
    body += b"\0"
    return len(body).to_bytes(4, "big") + body


def _read(frame: Buffer) -> tuple[Reassignments, int]:
    end = len(frame)
    pos = response_body_start(frame, 0, end, LIST_PARTITION_REASSIGNMENTS, VERSION)
    throttle_time_ms = int32(frame, pos, end)
    error_code = int16(frame, pos + 4, end)
    message, pos = string(frame, pos + 6, end, True)
    ongoing, pos = read_partitions(frame, pos, end, _ongoing)
    skip(pos, 1, end)  # what follows the fields is the other reader's, but it must be there
    return Reassignments(throttle_time_ms, error_code, message, dict(ongoing)), pos


def _ongoing(frame: Buffer, pos: int, end: int) -> tuple[Ongoing, int]:
    replicas, pos = int32s(frame, pos, end, True)
    adding, pos = int32s(frame, pos, end, True)
    removing, pos = int32s(frame, pos, end, True)
    return Ongoing(replicas, adding, removing), pos


def _stepping(frame: Buffer, pos: int, end: int) -> tuple[Stepping, int]:
    current, pos = int32s(frame, pos, end, True)
    target, pos = int32s(frame, pos, end, True)
    return Stepping(current, target), pos


def _topics(entries: Iterable[tuple[Partition, Sequence[Sequence[int]]]]) -> bytes:
    """Encode topics with their partitions: an index and lists of brokers each."""
    topics: dict[str, list[bytes]] = {}
    for (name, index), lists in entries:
        topics.setdefault(name, []).append(_partition(index, lists))
    parts = [count_bytes(len(topics), True)]
    for name, partitions in topics.items():
        parts += [string_bytes(name, True), count_bytes(len(partitions), True), *partitions, b"\0"]
    return b"".join(parts)


def _partition(index: int, lists: Sequence[Sequence[int]]) -> bytes:
    """Encode a partition: an index, lists of brokers, no tags. In one expression: thousands block the loop."""
    sizes = tuple(map(len, lists))
    if max(sizes) > _ONE_BYTE_COUNT_MAX:
        brokers = b"".join(int32s_bytes(one, True) for one in lists)
        return index.to_bytes(4, "big", signed=True) + brokers + b"\0"
    fields = [index]
    for size, one in zip(sizes, lists, strict=True):
        fields.append(size + 1)
        fields += one
    return _layout(sizes).pack(*fields)


@lru_cache(maxsize=256)
def _layout(sizes: tuple[int, ...]) -> Struct:
    return Struct(f">i{''.join(f'B{size}i' for size in sizes)}x")
