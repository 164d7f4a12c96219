"""Reads the error codes and throttle times of the responses to a replay's load."""

from typing import Final, NamedTuple

from protocol import throttle
from protocol.api import FETCH, PRODUCE
from protocol.errors import WireError
from protocol.primitives import count, int16, int32, skip, skip_string, skip_tags

__all__ = ["NONE", "Broker", "Topic", "outcome"]

NONE: Final = 0  # no error
_BODY: Final = 9  # length, correlation id, an empty tag section
_INT64: Final = 8


class Broker(NamedTuple):
    """The address of a broker."""

    host: str
    port: int


class Topic(NamedTuple):
    """A topic's leaders by partition; -1 for none."""

    error: int
    leaders: dict[int, int]


def outcome(frame: bytes, api_key: int, version: int) -> tuple[int, int]:
    """The first error code that is not 0, and the throttle time in ms."""
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
    """The error of the first partition: all partitions of a response are of one broker, and mostly fail together."""
    topics, pos = count(frame, _BODY + 4 + 2 + 4, end, True)
    if topics <= 0:
        return NONE
    partitions, pos = count(frame, skip_string(frame, pos, end, True), end, True)
    return int16(frame, pos + 4, end) if partitions > 0 else NONE
