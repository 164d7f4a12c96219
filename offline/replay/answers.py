"""What a replay reads of answers: error codes, throttle times, and what it has to know of the target."""

from typing import Final, NamedTuple

from protocol import throttle
from protocol.api import FETCH, PRODUCE
from protocol.errors import WireError
from protocol.primitives import count, int16, int32, skip, skip_string, skip_tags, string

__all__ = ["NONE", "Broker", "Topic", "offset_of", "outcome", "ranges", "read_created", "read_metadata"]

NONE: Final = 0  # no error
_BODY: Final = 9  # length, correlation id, an empty tag section
_INT64: Final = 8


class Broker(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


class Topic(NamedTuple):
    """A topic's leaders by partition; -1: nobody leads it."""

    error: int
    leaders: dict[int, int]


def outcome(frame: bytes, api_key: int, version: int) -> tuple[int, int]:
    """The first error code that is not none, and the throttle time."""
    end = len(frame)
    try:
        throttle_at = throttle.locate(frame, api_key, version)
        throttle_ms = 0 if throttle_at == throttle.NONE else int32(frame, throttle_at, end)
        if api_key == PRODUCE:
            return _produced(frame, end), throttle_ms
        if api_key == FETCH:
            return int16(frame, _BODY + 4, end) or _fetched(frame, end), throttle_ms
    except WireError:
        return -1, 0
    return NONE, throttle_ms


def _produced(frame: bytes, end: int) -> int:
    topics, pos = count(frame, _BODY, end, True)
    for _ in range(topics):
        pos = skip_string(frame, pos, end, True)
        partitions, pos = count(frame, pos, end, True)
        for _ in range(partitions):
            error = int16(frame, pos + 4, end)
            if error:
                return error
            # Index, error; base offset, append time, log start offset; errors of records, message, tags.
            pos = skip(pos, 6 + 3 * _INT64, end)
            records, pos = count(frame, pos, end, True)
            for _ in range(records):
                pos = skip_tags(frame, skip_string(frame, skip(pos, 4, end), end, True), end)
            pos = skip_tags(frame, skip_string(frame, pos, end, True), end)
        pos = skip_tags(frame, pos, end)
    return NONE


def _fetched(frame: bytes, end: int) -> int:
    """The error of the first partition: all of one answer come from one broker, and mostly fail together."""
    topics, pos = count(frame, _BODY + 4 + 2 + 4, end, True)
    if topics <= 0:
        return NONE
    partitions, pos = count(frame, skip_string(frame, pos, end, True), end, True)
    return int16(frame, pos + 4, end) if partitions > 0 else NONE


def ranges(frame: bytes) -> dict[int, tuple[int, int]]:
    """What ApiVersions 3 says of each API: its header has no tags."""
    end = len(frame)
    pos = 8
    if int16(frame, pos, end):
        return {}
    apis, pos = count(frame, pos + 2, end, True)
    found = {}
    for _ in range(apis):
        found[int16(frame, pos, end)] = (int16(frame, pos + 2, end), int16(frame, pos + 4, end))
        pos = skip_tags(frame, skip(pos, 6, end), end)
    return found


def read_metadata(frame: bytes) -> tuple[dict[int, Broker], dict[str, Topic]]:
    """Brokers by id and topics by name, from Metadata 9."""
    end = len(frame)
    entries, pos = count(frame, _BODY + 4, end, True)
    brokers = {}
    for _ in range(entries):
        node = int32(frame, pos, end)
        host, pos = string(frame, pos + 4, end, True)
        brokers[node] = Broker(host or "", int32(frame, pos, end))
        pos = skip_tags(frame, skip_string(frame, pos + 4, end, True), end)
    pos = skip(skip_string(frame, pos, end, True), 4, end)  # cluster id, controller
    entries, pos = count(frame, pos, end, True)
    topics = {}
    for _ in range(entries):
        error = int16(frame, pos, end)
        name, pos = string(frame, pos + 2, end, True)
        partitions, pos = count(frame, pos + 1, end, True)
        leaders = {}
        for _ in range(partitions):
            leaders[int32(frame, pos + 2, end)] = int32(frame, pos + 6, end)
            pos = skip(pos, 14, end)
            for _ in range(3):  # replicas, in sync, offline
                nodes, pos = count(frame, pos, end, True)
                pos = skip(pos, 4 * max(nodes, 0), end)
            pos = skip_tags(frame, pos, end)
        topics[name or ""] = Topic(error, leaders)
        pos = skip_tags(frame, skip(pos, 4, end), end)
    return brokers, topics


def read_created(frame: bytes) -> tuple[int, str]:
    """The error of the one topic that CreateTopics 5 was asked for, and what the broker says."""
    end = len(frame)
    _, pos = count(frame, _BODY + 4, end, True)
    pos = skip_string(frame, pos, end, True)
    error = int16(frame, pos, end)
    message, _ = string(frame, pos + 2, end, True)
    return error, message or ""


def offset_of(frame: bytes) -> dict[int, tuple[int, int]]:
    """Error and first offset by partition, of the one topic that ListOffsets 6 was asked for."""
    end = len(frame)
    _, pos = count(frame, _BODY + 4, end, True)
    partitions, pos = count(frame, skip_string(frame, pos, end, True), end, True)
    found = {}
    for _ in range(partitions):
        offset = int.from_bytes(frame[pos + 14 : pos + 22], "big", signed=True)
        found[int32(frame, pos, end)] = (int16(frame, pos + 4, end), offset)
        pos = skip_tags(frame, skip(pos, 26, end), end)
    return found
