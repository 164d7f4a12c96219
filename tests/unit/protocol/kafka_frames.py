"""Frames as kafka-python encodes them: what our hand-written offsets are compared with.

`messages` makes arbitrary messages of a class and version for Hypothesis, from the field tables kafka-python ships.
Nothing here is ours but the plumbing: that is the point.
"""

import uuid
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl  # noqa: F401
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage

from protocol.header import body_start
from protocol.messages import AddressMap, produce

Message = Any

# Without the subclasses it makes of each for single versions.
_CLASSES: Final = [cls for cls in ApiMessage.__subclasses__() if cls._class_version is None]
RESPONSES: Final[dict[int, Any]] = {cls.API_KEY: cls for cls in _CLASSES if cls.type == "response"}
REQUESTS: Final[dict[int, Any]] = {cls.API_KEY: cls for cls in _CLASSES if cls.type == "request"}

_INTEGERS: Final = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}


def versions(classes: dict[int, Any]) -> list[tuple[int, int]]:
    """Every (API key, version) that kafka-python knows."""
    return [(key, version) for key, cls in sorted(classes.items()) for version in range(cls.max_version + 1)]


def body_of(frame: bytes, api_key: int, version: int) -> int:
    """The offset of a request's body."""
    start = body_start(frame, 0, len(frame), api_key, version)
    assert start is not None, "the header is whole"
    return start


def messages(cls: Any, version: int, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Message]:
    """Arbitrary messages of `cls` in `version`, some fields from the strategies given."""
    values = dict(_values(cls, version))
    values |= {name: strategy for name, strategy in fixed.items() if name in values}
    return st.fixed_dictionaries(values).map(lambda chosen: cls[version](**chosen))


@cache
def _values(cls: Any, version: int) -> dict[str, st.SearchStrategy[Any]]:
    fields = (field for field in cls._struct._fields if field.for_version_q(version))
    return {field.name: value for field in fields if (value := _value(field, version)) is not None}


def framed(message: Message, correlation_id: int = 7, client_id: str = "client") -> bytes:
    """The whole frame, with length prefix and header."""
    if message.is_request():
        message.with_header(correlation_id=correlation_id, client_id=client_id)
    else:
        message.with_header(correlation_id=correlation_id)
    frame: bytes = message.encode(header=True, framed=True)
    return frame


def decoded(cls: Any, version: int, frame: bytes | bytearray) -> Message:
    """The message in a whole frame."""
    return cls[version].decode(bytes(frame), header=True, framed=True)


def struct(cls: Any, version: int, type_name: str, /, **values: Any) -> Any:
    """An entry of one of a message's arrays, by its type's name in Kafka's definitions."""
    return _find(cls._struct, type_name)(version=version, **values)


def _find(field: Any, name: str) -> Any:
    for child in field.fields.values() if isinstance(field.fields, dict) else field.fields:
        if child.is_struct() or child.is_struct_array():
            if child.type_str == name:
                return child.data_class
            found = _find(child, name)
            if found is not None:
                return found
    return None


def _value(field: Any, version: int) -> st.SearchStrategy[Any] | None:
    if field.is_struct() or field.is_struct_array():
        values = {
            child.name: value
            for child in _children(field)
            if child.for_version_q(version) and (value := _value(child, version)) is not None
        }
        inner = st.fixed_dictionaries(values).map(partial(_entry, field.data_class, version))
        if field.is_struct_array():
            return _nullable(field, version, st.lists(inner, max_size=3))
        return inner
    if field.is_array():
        inner_value = _simple(field.array_of)
        return None if inner_value is None else _nullable(field, version, st.lists(inner_value, max_size=3))
    simple = _simple(field)
    return None if simple is None else _nullable(field, version, simple)


def _entry(cls: Any, version: int, values: dict[str, Any]) -> Any:
    return cls(version=version, **values)


def _children(field: Any) -> Iterator[Any]:
    fields = field.fields
    return iter(fields.values() if isinstance(fields, dict) else fields)


def _nullable(field: Any, version: int, strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy if field.nullable_for_version_q(version) else strategy


def _simple(field: Any) -> st.SearchStrategy[Any] | None:
    kind = field._type_str.removeprefix("[]")
    if kind in _INTEGERS:
        bits = _INTEGERS[kind]
        if kind == "uint16":
            return st.integers(0, 65535)
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    makers: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "string": lambda: st.text(max_size=5),
        "bytes": lambda: st.binary(max_size=200),
        "records": lambda: st.binary(max_size=200),
        "bool": st.booleans,
        "uuid": lambda: st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number)),
        "float64": lambda: st.floats(allow_nan=False),
    }
    # kafka-python turns some numbers into sets of flags; their default does for us.
    return makers[kind]() if kind in makers else None


def hide_odd(node_id: int, _host: str, _port: int) -> tuple[str, int] | None:
    """An address map: odd brokers are never named, even ones are behind one host."""
    return None if node_id % 2 else ("proxy.example", 1000 + node_id % 1000)


def rewrite_produce(frame: bytes, version: int, address_map: AddressMap | None, throttle_ms: int) -> bytes:
    """The response to a Produce with addresses for clients, and the larger of both throttle times."""
    response, throttle_at = produce.read_response(frame, version, address_map)
    return response if throttle_at < 0 else produce.with_throttle_time(response, throttle_at, throttle_ms)
