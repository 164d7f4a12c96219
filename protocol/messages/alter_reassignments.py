"""AlterPartitionReassignments 0-1: the target replicas of partitions, or the cancellation of a reassignment (KIP-455).

Behavior: null replicas cancel a reassignment. Requests and responses are both read and written: a caller's request is
forwarded with other targets, and its response combines the broker's with Sluice's own decisions (KIP-435).

Version notes: 1 adds AllowReplicationFactorChange to both directions (KIP-860); version 0 always allows a change.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from protocol.api import ALTER_PARTITION_REASSIGNMENTS
from protocol.errors import UnknownVersionError
from protocol.header import REQUEST_HEAD, RESPONSE_HEAD, response_body_start
from protocol.messages.by_partition import Partition, check_ended, read_partitions
from protocol.primitives import (
    Buffer,
    count_bytes,
    int16,
    int32,
    int32s_bytes,
    nullable_int32s,
    skip,
    skip_tags,
    string,
    string_bytes,
)

__all__ = [
    "ALTER_PARTITION_REASSIGNMENTS",
    "VERSION",
    "AlterRequest",
    "AlterResponse",
    "Outcome",
    "Target",
    "read_head",
    "read_request",
    "read_response",
    "request_body",
    "request_frame",
    "write_response",
]

# The version of Sluice's own requests: brokers before 4.1 support no other.
VERSION: Final = 0
_ALLOW_SINCE: Final = 1
_VERSION_MAX: Final = 1

Target: TypeAlias = tuple[int, ...] | None


class AlterRequest(NamedTuple):
    """The request, in its order; a partition may occur twice. Null replicas cancel."""

    timeout_ms: int
    allow_factor_change: bool
    wanted: Sequence[tuple[Partition, Target]]


class Outcome(NamedTuple):
    """The result for one partition."""

    error_code: int = 0
    error_message: str | None = None


class AlterResponse(NamedTuple):
    """The result of a request: its error, and the outcome of each partition in the response's order."""

    throttle_time_ms: int
    allow_factor_change: bool
    outcome: Outcome
    partitions: Sequence[tuple[Partition, Outcome]]


def read_head(frame: Buffer, body: int, version: int) -> AlterRequest:
    """Decode the fields before the partitions; the returned request has no partitions.

    Raises:
        WireError: the request is incomplete, or its version is unknown.
    """
    return _head(frame, body, version)[0]


def read_request(frame: Buffer, body: int, version: int) -> AlterRequest:
    """Decode a whole request whose fields begin at `body`.

    Raises:
        WireError: it is not such a request, or its version is unknown.
    """
    end = len(frame)
    head, pos = _head(frame, body, version)
    wanted, pos = read_partitions(frame, pos, end, _target)
    check_ended(skip_tags(frame, pos, end), end)
    return head._replace(wanted=wanted)


def request_body(asked: AlterRequest, version: int) -> bytes:
    """Encode a request's fields."""
    _check(version)
    parts = [asked.timeout_ms.to_bytes(4, "big", signed=True)]
    if version >= _ALLOW_SINCE:
        parts.append(bytes((asked.allow_factor_change,)))
    parts.append(_topics((key, int32s_bytes(replicas, True) + b"\0") for key, replicas in asked.wanted))
    return b"".join(parts)


def request_frame(asked: AlterRequest, version: int, correlation_id: int, client_id: bytes | None) -> bytes:
    """Encode a whole request."""
    size = -1 if client_id is None else len(client_id)
    head = REQUEST_HEAD.pack(0, ALTER_PARTITION_REASSIGNMENTS, version, correlation_id, size)[4:]
    body = head + (client_id or b"") + b"\0" + request_body(asked, version)
    return len(body).to_bytes(4, "big") + body


def read_response(frame: Buffer, version: int) -> AlterResponse:
    """Decode a whole response.

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


def write_response(response: AlterResponse, version: int, correlation_id: int) -> bytes:
    """Encode a whole response; consecutive partitions of one topic share an entry."""
    _check(version)
    flag = bytes((response.allow_factor_change,)) if version >= _ALLOW_SINCE else b""
    body = (
        RESPONSE_HEAD.pack(0, correlation_id)[4:]
        + b"\0"
        + response.throttle_time_ms.to_bytes(4, "big", signed=True)
        + flag
        + _outcome_bytes(response.outcome)
        + _topics((key, _outcome_bytes(outcome) + b"\0") for key, outcome in response.partitions)
    )
    return len(body).to_bytes(4, "big") + body


def _topics(entries: Iterable[tuple[Partition, bytes]]) -> bytes:
    """Encode topics with their partitions, in order, with tags."""
    topics: list[tuple[str, list[bytes]]] = []
    for (name, index), rest in entries:
        if not topics or topics[-1][0] != name:
            topics.append((name, []))
        topics[-1][1].append(index.to_bytes(4, "big", signed=True) + rest)
    parts = [count_bytes(len(topics), True)]
    for name, partitions in topics:
        parts += [string_bytes(name, True), count_bytes(len(partitions), True), *partitions, b"\0"]
    return b"".join(parts) + b"\0"


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
