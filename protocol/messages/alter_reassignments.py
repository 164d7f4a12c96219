"""AlterPartitionReassignments 0-1: what a partition's replicas are to become, or that it is to stay (KIP-455).

Behavior: null replicas cancel a reassignment. Both directions are read and written: a caller's request is sent on with
other targets, and its answer is put together from the broker's and from what was decided here (KIP-435).

Version notes: 1 adds AllowReplicationFactorChange to both directions (KIP-860); version 0 always allows it.
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
    "AlterAnswer",
    "AlterRequest",
    "Outcome",
    "Target",
    "read_answer",
    "read_head",
    "read_request",
    "request_body",
    "request_frame",
    "write_answer",
]

# Of our own questions: brokers before 4.1 speak no other.
VERSION: Final = 0
_ALLOW_SINCE: Final = 1
_VERSION_MAX: Final = 1

Target: TypeAlias = tuple[int, ...] | None


class AlterRequest(NamedTuple):
    """What is asked, in the request's order; a partition may stand there twice. Null replicas cancel."""

    timeout_ms: int
    allow_factor_change: bool
    wanted: Sequence[tuple[Partition, Target]]


class Outcome(NamedTuple):
    """What became of one partition."""

    error_code: int = 0
    error_message: str | None = None


class AlterAnswer(NamedTuple):
    """What became of a request: of all of it, and of each partition in the answer's order."""

    throttle_time_ms: int
    allow_factor_change: bool
    outcome: Outcome
    partitions: Sequence[tuple[Partition, Outcome]]


def read_head(frame: Buffer, body: int, version: int) -> AlterRequest:
    """Read what stands before the partitions; the request has none of them.

    Raises:
        WireError: it ends before, or is of a version that is not known here.
    """
    return _head(frame, body, version)[0]


def read_request(frame: Buffer, body: int, version: int) -> AlterRequest:
    """Read a whole request whose fields begin at `body`.

    Raises:
        WireError: it is none, or of a version that is not known here.
    """
    end = len(frame)
    head, pos = _head(frame, body, version)
    wanted, pos = read_partitions(frame, pos, end, _target)
    check_ended(skip_tags(frame, pos, end), end)
    return head._replace(wanted=wanted)


def request_body(asked: AlterRequest, version: int) -> bytes:
    """A request's fields."""
    _check(version)
    parts = [asked.timeout_ms.to_bytes(4, "big", signed=True)]
    if version >= _ALLOW_SINCE:
        parts.append(bytes((asked.allow_factor_change,)))
    parts.append(_topics((key, int32s_bytes(replicas, True) + b"\0") for key, replicas in asked.wanted))
    return b"".join(parts)


def request_frame(asked: AlterRequest, version: int, correlation_id: int, client_id: bytes | None) -> bytes:
    """A whole request."""
    size = -1 if client_id is None else len(client_id)
    head = REQUEST_HEAD.pack(0, ALTER_PARTITION_REASSIGNMENTS, version, correlation_id, size)[4:]
    body = head + (client_id or b"") + b"\0" + request_body(asked, version)
    return len(body).to_bytes(4, "big") + body


def read_answer(frame: Buffer, version: int) -> AlterAnswer:
    """Read a whole answer.

    Raises:
        WireError: it is none, or of a version that is not known here.
    """
    _check(version)
    end = len(frame)
    pos = response_body_start(frame, 0, end, ALTER_PARTITION_REASSIGNMENTS, version)
    throttle_time_ms = int32(frame, pos, end)
    pos, allow = _flag(frame, pos + 4, end, version)
    whole, pos = _outcome(frame, pos, end)
    found, pos = read_partitions(frame, pos, end, _outcome)
    check_ended(skip_tags(frame, pos, end), end)
    return AlterAnswer(throttle_time_ms, allow, whole, found)


def write_answer(answer: AlterAnswer, version: int, correlation_id: int) -> bytes:
    """A whole answer; neighbours of one topic stand under one name."""
    _check(version)
    flag = bytes((answer.allow_factor_change,)) if version >= _ALLOW_SINCE else b""
    body = (
        RESPONSE_HEAD.pack(0, correlation_id)[4:]
        + b"\0"
        + answer.throttle_time_ms.to_bytes(4, "big", signed=True)
        + flag
        + _outcome_bytes(answer.outcome)
        + _topics((key, _outcome_bytes(outcome) + b"\0") for key, outcome in answer.partitions)
    )
    return len(body).to_bytes(4, "big") + body


def _topics(entries: Iterable[tuple[Partition, bytes]]) -> bytes:
    """Topics with their partitions, in order, and the tags behind them."""
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
