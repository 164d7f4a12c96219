"""Real messages to begin with: one of each API in a few versions, as kafka-python encodes them; arrays have one entry.

What kafka-python does not know is written by hand in `tests.support.frames` and in the share fetch tests.
"""

import uuid
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from protocol.api import FETCH, PRODUCE, SHARE_ACKNOWLEDGE, SHARE_FETCH, flexible
from tests.support import frames
from tests.support.batches import batch
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, framed
from tests.unit.protocol.walks.test_share import BROKER, share_acknowledge, share_fetch

CORRELATION_ID: Final = 7
_NUMBERS: Final = {"int8": 1, "int16": 0, "uint16": 9, "int32": 1, "int64": 5, "bool": True, "float64": 2.5}
_TOPIC_ID: Final = uuid.UUID(bytes=frames.topic_id("t"))
_SHARE_REQUEST: Final = bytes.fromhex(
    "0267 026d 00000000 000001f4 00000001 00010000 000001f4 00000001 01 01 00"
)


class Sample(NamedTuple):
    """A request's body and its response's, both behind their headers; the response's tags belong to its body."""

    key: int
    version: int
    request: bytes
    response: bytes


def samples() -> Iterator[Sample]:
    """All of them."""
    for key, cls in sorted(REQUESTS.items()):
        for version in _versions(key, cls.max_version):
            asked = _body(framed(_filled(cls, version), CORRELATION_ID, "a"), key, version)
            yield Sample(key, version, asked, framed(_filled(RESPONSES[key], version), CORRELATION_ID)[8:])
    topics = {"t": [90, 20], "free": [10]}
    for version in (3, 9, 13):
        asked = _body(frames.produce_to(version, topics), PRODUCE, version)
        yield Sample(PRODUCE, version, asked, frames.produce_response(version)[8:])
    for version in (4, 11, 12, 16):
        asked = _body(frames.fetch(version, session_id=9, session_epoch=2), FETCH, version)
        yield Sample(FETCH, version, asked, frames.fetched_from(version, topics)[8:])
    for version in (1, 2):
        yield Sample(SHARE_FETCH, version, _SHARE_REQUEST, share_fetch("02" + BROKER)[8:])
        yield Sample(
            SHARE_ACKNOWLEDGE, version, _SHARE_REQUEST, share_acknowledge(version, "02" + BROKER)[8:]
        )


def _versions(key: int, newest: int) -> list[int]:
    since = next((version for version in range(newest + 1) if flexible(key, version)), newest)
    return sorted({0, max(since - 1, 0), since, newest})


def _body(frame: bytes, key: int, version: int) -> bytes:
    """A request without its header: its client id is "a"."""
    return frame[15 + flexible(key, version) :]


def _filled(cls: Any, version: int) -> Any:
    return cls[version](**_values(cls._struct._fields, version))


def _values(fields: Any, version: int) -> dict[str, Any]:
    known = fields.values() if isinstance(fields, dict) else fields
    return {
        field.name: value
        for field in known
        if field.for_version_q(version) and (value := _value(field, version)) is not None
    }


def _value(field: Any, version: int) -> Any:
    if field.is_struct() or field.is_struct_array():
        entry = field.data_class(version=version, **_values(field.fields, version))
        return [entry] if field.is_struct_array() else entry
    if field.is_array():
        inner = _simple(field.array_of)
        return None if inner is None else [inner]
    return _simple(field)


def _simple(field: Any) -> Any:
    kind = field._type_str.removeprefix("[]")
    if kind == "string":
        return "t"
    if kind in ("bytes", "records"):
        return batch(2, 80)
    if kind == "uuid":
        return _TOPIC_ID
    if "error_code" in (field.name or "") or "throttle" in (field.name or ""):
        return 0
    return _NUMBERS.get(kind)
