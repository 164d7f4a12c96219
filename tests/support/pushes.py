"""PushTelemetry requests in bytes (KIP-714), and the OTLP metrics in them: a few lines of Protocol Buffers."""

import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Final

import zstandard

from protocol.api import PUSH_TELEMETRY
from protocol.primitives import uvarint_bytes
from tests.support.frames import request

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
PRODUCE_AVG: Final = "org.apache.kafka.producer.produce.throttle.time.avg"
PRODUCE_MAX: Final = "org.apache.kafka.producer.produce.throttle.time.max"
FETCH_AVG: Final = "org.apache.kafka.consumer.fetch.manager.fetch.throttle.time.avg"
FETCH_MAX: Final = "org.apache.kafka.consumer.fetch.manager.fetch.throttle.time.max"
SHARE_MAX: Final = "org.apache.kafka.consumer.share.fetch.manager.fetch.throttle.time.max"


def field(number: int, value: bytes | int | float) -> bytes:
    """A field: bytes with their length, an int as sfixed64, a float as double."""
    if isinstance(value, bytes):
        return uvarint_bytes(number << 3 | 2) + uvarint_bytes(len(value)) + value
    return uvarint_bytes(number << 3 | 1) + struct.pack("<q" if isinstance(value, int) else "<d", value)


def varint_field(number: int, value: int) -> bytes:
    """A field whose value is a varint."""
    return uvarint_bytes(number << 3) + uvarint_bytes(value)


def gauge(name: str, *values: int | float) -> bytes:
    """A metric with a data point for each value: ints as librdkafka and franz-go have them, floats as Java."""
    points = b"".join(
        field(1, field(2, 1) + field(3, 2) + field(6 if isinstance(value, int) else 4, value))
        for value in values
    )
    return field(2, field(1, name.encode()) + field(3, b"ms") + field(5, points))


def total(name: str, value: float) -> bytes:
    """A metric that is a sum and no gauge."""
    point = field(1, field(3, 2) + field(4, value))
    return field(2, field(1, name.encode()) + field(7, point + varint_field(2, 2) + varint_field(3, 1)))


def metrics_data(metrics: Iterable[bytes]) -> bytes:
    """MetricsData as clients write it: one resource, one scope."""
    scope = field(1, field(1, b"scope"))
    return field(1, field(1, field(1, field(1, b"group_id"))) + field(2, scope + b"".join(metrics)))


def gzipped(data: bytes) -> bytes:
    """Gzip at its highest level."""
    writer = zlib.compressobj(9, wbits=31)
    return writer.compress(data) + writer.flush()


def compressed(data: bytes, compression: int) -> bytes:
    """The data as it is, or with gzip or zstd."""
    how: dict[int, Callable[[bytes], bytes]] = {NONE: bytes, GZIP: gzipped, ZSTD: zstandard.compress}
    return how[compression](data)


def push_body(metrics: bytes, compression: int = NONE, *, size: int | None = None) -> bytes:
    """The fields of a request.

    Args:
        metrics: as compressed.
        size: what is said of their length; None: the truth.
    """
    length = len(metrics) if size is None else size
    front = bytes(range(16)) + struct.pack(">ibb", 7, 0, compression)
    return front + uvarint_bytes(length + 1) + metrics + b"\0"


def push(*metrics: bytes, compression: int = NONE, client_id: str = "a", correlation_id: int = 1) -> bytes:
    """A whole request with these metrics."""
    body = push_body(compressed(metrics_data(metrics), compression), compression)
    return request(PUSH_TELEMETRY, 0, body, client_id=client_id, correlation_id=correlation_id)
