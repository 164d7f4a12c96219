"""ListPartitionReassignments 0-1 and AlterPartitionReassignments 0-1 (KIP-455), with KIP-435's current batch.

List: Sluice requests the reassignments under way itself (version 0), and shows reassignments in steps to clients as the
one that was requested. Version 1 is KIP-435's, and no broker's: a second list, of the current steps, follows version
0's fields. The proposal's draft has two lists per partition where Kafka released three in version 0; the first list
here is Kafka's, the second the proposal's.

Alter: null replicas cancel a reassignment. Requests and responses are both read and written: a caller's request is
forwarded with other targets, and its response combines the broker's with Sluice's own decisions (KIP-435). Version 1
adds AllowReplicationFactorChange to both directions (KIP-860); version 0 always allows a change.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, TypeVar

from protocol.api import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from protocol.errors import UnknownVersionError
from protocol.header import REQUEST_HEAD, RESPONSE_HEAD, response_body_start
from protocol.messages.replica_session import Partition, check_ended, read_partitions
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

T = TypeVar("T")

VERSION: Final = 0
BATCH_VERSION: Final = 1
# A request's fields: a minute's time, all topics, no tags.
EVERYTHING: Final = (60_000).to_bytes(4, "big") + b"\0\0"
_ONE_BYTE_COUNT_MAX: Final = 126
_INT32: Final = Struct(">i")

# The version of Sluice's own requests: brokers before 4.1 support no other.

_ALLOW_SINCE: Final = 1
_VERSION_MAX: Final = 1

Target: TypeAlias = tuple[int, ...] | None


class Ongoing(NamedTuple):
    """The reassignment of one partition; `replicas` are the target replicas, followed by those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Stepping(NamedTuple):
    """The present step of a partition's reassignment, from `current` to `target` replicas.

    KIP-435 calls it CurrentPartitionReassignmentBatch.
    """

    current: tuple[int, ...]
    target: tuple[int, ...]


class Reassignments(NamedTuple):
    """A ListPartitionReassignments response: the reassignments under way, by partition."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    ongoing: dict[Partition, Ongoing]

    @property
    def adding(self) -> dict[Partition, frozenset[int]]:
        """The brokers that are being added, by partition; partitions without any are left out."""
        return {key: frozenset(one.adding) for key, one in self.ongoing.items() if one.adding}


class Wanted(NamedTuple):
    """The partitions that a ListPartitionReassignments request asks for; None for all."""

    partitions: frozenset[Partition] | None


def read_list_request(frame: Buffer, body: int) -> Wanted:
    """Decode a whole ListPartitionReassignments request of version 0 or 1.

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


def read_list_response(frame: Buffer) -> Reassignments:
    """Decode a whole ListPartitionReassignments response of version 0, or the same fields of version 1.

    Raises:
        WireError: it is not such a response.
    """
    return _read(frame)[0]


def read_batch(frame: Buffer) -> tuple[Reassignments, dict[Partition, Stepping]]:
    """Decode a complete ListPartitionReassignments response of version 1, which also lists present steps (KIP-435).

    Raises:
        WireError: it is not such a response.
    """
    end = len(frame)
    found, pos = _read(frame)
    batch, pos = read_partitions(frame, pos, end, _stepping)
    check_ended(skip_tags(frame, pos, end), end)
    return found, dict(batch)


def write_list_response(
    found: Reassignments, correlation_id: int, batch: Mapping[Partition, Stepping] | None = None
) -> bytes:
    """Encode a complete ListPartitionReassignments response.

    Args:
        batch: the present steps, with which the response has version 1 (KIP-435); None for version 0.
    """
    body = (
        RESPONSE_HEAD.pack(0, correlation_id)[4:]
        + b"\0"
        + found.throttle_time_ms.to_bytes(4, "big", signed=True)
        + found.error_code.to_bytes(2, "big", signed=True)
        + string_bytes(found.error_message, True)
        + _topics(
            (key, _partition(key[1], (one.replicas, one.adding, one.removing)))
            for key, one in _by_topic(found.ongoing)
        )
    )
    if batch is not None:
        body += _topics((key, _partition(key[1], step)) for key, step in _by_topic(batch))
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


def _topics(entries: Iterable[tuple[Partition, bytes]]) -> bytes:
    """Encode topics with their partitions, whose bytes begin with the index, in order: a topic may come again."""
    topics: list[tuple[str, list[bytes]]] = []
    for (name, _), partition in entries:
        if not topics or topics[-1][0] != name:
            topics.append((name, []))
        topics[-1][1].append(partition)
    parts = [count_bytes(len(topics), True)]
    for name, partitions in topics:
        parts += [string_bytes(name, True), count_bytes(len(partitions), True), *partitions, b"\0"]
    return b"".join(parts)


def _by_topic(moves: Mapping[Partition, T]) -> Iterator[tuple[Partition, T]]:
    """Yield moves with all partitions of a topic in a row, topics in the order of their first partition."""
    topics: dict[str, list[tuple[Partition, T]]] = {}
    for item in moves.items():
        topics.setdefault(item[0][0], []).append(item)
    for items in topics.values():
        yield from items


def _partition(index: int, lists: Sequence[Sequence[int]]) -> bytes:
    """Encode a partition: its index, then lists of brokers. One expression, since thousands are encoded in one turn."""
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


class AlterRequest(NamedTuple):
    """The fields of an AlterPartitionReassignments request.

    Attributes:
        wanted: partitions with their target replicas (None cancels), in the request's order; one may occur twice.
    """

    timeout_ms: int
    allow_factor_change: bool
    wanted: Sequence[tuple[Partition, Target]]


class Outcome(NamedTuple):
    """An error code, 0 for success, and a message, of one partition or of a whole request."""

    error_code: int = 0
    error_message: str | None = None


class AlterResponse(NamedTuple):
    """The fields of an AlterPartitionReassignments response.

    Attributes:
        outcome: the error of the whole request.
        partitions: the outcome of each partition, in the response's order.
    """

    throttle_time_ms: int
    allow_factor_change: bool
    outcome: Outcome
    partitions: Sequence[tuple[Partition, Outcome]]


def read_head(frame: Buffer, body: int, version: int) -> AlterRequest:
    """Decode the first fields of an AlterPartitionReassignments request; the returned one has no partitions.

    Raises:
        WireError: the request is incomplete, or its version is unknown.
    """
    return _head(frame, body, version)[0]


def read_alter_request(frame: Buffer, body: int, version: int) -> AlterRequest:
    """Decode a whole AlterPartitionReassignments request whose fields begin at `body`.

    Raises:
        WireError: it is not such a request, or its version is unknown.
    """
    end = len(frame)
    head, pos = _head(frame, body, version)
    wanted, pos = read_partitions(frame, pos, end, _target)
    check_ended(skip_tags(frame, pos, end), end)
    return head._replace(wanted=wanted)


def request_body(asked: AlterRequest, version: int) -> bytes:
    """Encode the fields of an AlterPartitionReassignments request, without a header."""
    _check(version)
    parts = [asked.timeout_ms.to_bytes(4, "big", signed=True)]
    if version >= _ALLOW_SINCE:
        parts.append(bytes((asked.allow_factor_change,)))
    parts.append(
        _topics(
            (key, _INT32.pack(key[1]) + int32s_bytes(replicas, True) + b"\0")
            for key, replicas in asked.wanted
        )
    )
    parts.append(b"\0")
    return b"".join(parts)


def request_frame(asked: AlterRequest, version: int, correlation_id: int, client_id: bytes | None) -> bytes:
    """Encode a complete AlterPartitionReassignments request, with length prefix and header."""
    size = -1 if client_id is None else len(client_id)
    head = REQUEST_HEAD.pack(0, ALTER_PARTITION_REASSIGNMENTS, version, correlation_id, size)[4:]
    body = head + (client_id or b"") + b"\0" + request_body(asked, version)
    return len(body).to_bytes(4, "big") + body


def read_alter_response(frame: Buffer, version: int) -> AlterResponse:
    """Decode a whole AlterPartitionReassignments response.

    Raises:
        WireError: it is not such a response, or its version is unknown.
    """
    _check(version)
    end = len(frame)
    pos = response_body_start(frame, 0, end, ALTER_PARTITION_REASSIGNMENTS, version)
    throttle_time_ms = int32(frame, pos, end)
    pos, allow = _flag(frame, pos + 4, end, version)
    whole, pos = _outcome(frame, pos, end)
    found, pos = read_partitions(frame, pos, end, _outcome)
    check_ended(skip_tags(frame, pos, end), end)
    return AlterResponse(throttle_time_ms, allow, whole, found)


def write_alter_response(response: AlterResponse, version: int, correlation_id: int) -> bytes:
    """Encode a whole AlterPartitionReassignments response; partitions of one topic share an entry."""
    _check(version)
    flag = bytes((response.allow_factor_change,)) if version >= _ALLOW_SINCE else b""
    body = (
        RESPONSE_HEAD.pack(0, correlation_id)[4:]
        + b"\0"
        + response.throttle_time_ms.to_bytes(4, "big", signed=True)
        + flag
        + _outcome_bytes(response.outcome)
        + _topics(
            (key, _INT32.pack(key[1]) + _outcome_bytes(outcome) + b"\0")
            for key, outcome in response.partitions
        )
        + b"\0"
    )
    return len(body).to_bytes(4, "big") + body


def _head(frame: Buffer, body: int, version: int) -> tuple[AlterRequest, int]:
    _check(version)
    end = len(frame)
    timeout_ms = int32(frame, body, end)
    pos, allow = _flag(frame, body + 4, end, version)
    return AlterRequest(timeout_ms, allow, ()), pos


def _flag(frame: Buffer, pos: int, end: int, version: int) -> tuple[int, bool]:
    if version < _ALLOW_SINCE:
        return pos, True
    after = skip(pos, 1, end)
    return after, bool(frame[pos])


def _target(frame: Buffer, pos: int, end: int) -> tuple[Target, int]:
    return nullable_int32s(frame, pos, end, True)


def _outcome(frame: Buffer, pos: int, end: int) -> tuple[Outcome, int]:
    error_code = int16(frame, pos, end)
    message, pos = string(frame, pos + 2, end, True)
    return Outcome(error_code, message), pos


def _outcome_bytes(outcome: Outcome) -> bytes:
    return outcome.error_code.to_bytes(2, "big", signed=True) + string_bytes(outcome.error_message, True)


def _check(version: int) -> None:
    if not 0 <= version <= _VERSION_MAX:
        raise UnknownVersionError(f"the layout of AlterPartitionReassignments version {version} is not known")
