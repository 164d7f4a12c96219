"""PushTelemetry version 0 (KIP-714): the throttle times that a client's own library has read from its responses.

A push has a client's metrics as OTLP MetricsData (Protocol Buffers), mostly compressed. Only the averages and maxima
of throttle times are read, all in ms; their names are those of KIP-714, which the Java client, librdkafka and franz-go
push. Everything else is skipped by its length, nothing is copied but names, and the work is bounded:

    compressed        TELEMETRY_BYTES_MAX, by the caller
    decompressed      METRICS_BYTES_MAX; decompression stops there
    fields looked at  STEPS_MAX: a message that is looked into is three steps, a field is one, and one for each byte of
                      its tag, its length or its number. A message without a name of throttle times is one field, as of
                      Java's client each other metric is

gzip is in Python's standard library, zstd in the package zstandard, which is optional. lz4 and snappy are not read:
brokers name zstd first among the types that they accept, and clients take the first one that they have.
"""

import re
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan
from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import MalformedFieldError, OversizedError, TruncatedError, WireError
from protocol.header import skip_header_tags
from protocol.primitives import Buffer, bytes_size, skip, uvarint

try:
    from zstandard import ZstdDecompressor, ZstdError
except ImportError:  # the extra `fleet` has it
    ZstdDecompressor = ZstdError = None

VERSION: Final = 0
TELEMETRY_BYTES_MAX: Final = 64 * 1024
METRICS_BYTES_MAX: Final = 256 * 1024
STEPS_MAX: Final = 6_000  # each takes up to 0.3 us; a metric of Java's client is four
_STEPS_A_MESSAGE: Final = 3  # to begin with its fields
THROTTLE_MS_MAX: Final = 2**31 - 1  # a throttle_time_ms is an int32

_NONE, _GZIP, _ZSTD = 0, 1, 4  # compression types
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
# Memory that the sender chooses; Kafka's clients choose 2 MiB.
_ZSTD_WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
# Client instance id, subscription id, terminating; then the compression type.
_BEFORE_COMPRESSION: Final = 16 + 4 + 1

PRODUCE: Final = "produce"
FETCH: Final = "fetch"
_PREFIX: Final = b"org.apache.kafka."
# Of share consumers too (KIP-932). By name without suffix: the kind of request.
_KINDS: Final = {
    _PREFIX + b"producer.produce.throttle.time": PRODUCE,
    _PREFIX + b"consumer.fetch.manager.fetch.throttle.time": FETCH,
    _PREFIX + b"consumer.share.fetch.manager.fetch.throttle.time": FETCH,
}
_METRICS: Final[Mapping[bytes, tuple[str, bool]]] = {
    name + suffix: (kind, suffix == b".max") for name, kind in _KINDS.items() for suffix in (b".avg", b".max")
}
_NAME_BYTES_MAX: Final = max(map(len, _METRICS))
_IN_EACH_NAME: Final = b".throttle.time."
_NAMES_MAX: Final = 64  # occurrences of that

# Tags of Protocol Buffers, field number × 8 + wire type, of opentelemetry/proto/metrics/v1/metrics.proto.
_RESOURCE_METRICS: Final = 1 << 3 | 2  # of MetricsData
_SCOPE_METRICS: Final = 2 << 3 | 2  # of ResourceMetrics
_METRIC: Final = 2 << 3 | 2  # of ScopeMetrics
_NAME: Final = 1 << 3 | 2  # of Metric
_GAUGE: Final = 5 << 3 | 2  # of Metric
_DATA_POINT: Final = 1 << 3 | 2  # of Gauge
# Of NumberDataPoint.
_VALUES: Final = {4 << 3 | 1: Struct("<d").unpack_from, 6 << 3 | 1: Struct("<q").unpack_from}

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_NUMBER: Final = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]")  # a varint of at most 64 bits


class UnreadableCompressionError(WireError):
    """Metrics are compressed in a way that is not read here."""


class ThrottleTimes(NamedTuple):
    """The throttle times of one kind of request, as a client has pushed them, in ms; None for what it has not pushed.

    Args:
        average_ms: over all responses of the client library's own window (Java: the last 30 to 60 s).
        longest_ms: the longest of the same responses.
    """

    average_ms: float | None = None
    longest_ms: float | None = None


def throttle_times(frame: Buffer, body: int, end: int) -> Mapping[str, ThrottleTimes]:
    """Return the throttle times that a complete PushTelemetry request has, by PRODUCE and FETCH; empty without any.

    Of several data points of a metric the largest counts. A metric whose value is not a number counts as not pushed:
    so Java's client says that there was no response.

    Args:
        body: where the header's client id ends.
        end: the end of the request.

    Raises:
        UnreadableCompressionError: the compression type is unknown, or not read here.
        OversizedError: there are more decompressed bytes, or more fields, than are read.
        WireError: it is not such a request, or a throttle time is impossible.
    """
    pos = skip(skip_header_tags(frame, body, end), _BEFORE_COMPRESSION, end - 1)
    compression = frame[pos]
    size, pos = bytes_size(frame, pos + 1, end, True)
    data = _decompressed(bytes(frame[pos : skip(pos, max(size, 0), end)]), compression)
    fields = _Fields(data, tuple(_places(data)))
    found: dict[str, ThrottleTimes] = {}
    metrics: Iterable[tuple[int, int]] = ((0, len(data)),)
    for tag in (_RESOURCE_METRICS, _SCOPE_METRICS, _METRIC):
        metrics = fields.all_of(tag, metrics)
    for start, stop in metrics:
        metric, gauges = fields.metric(start, stop)
        value = None if metric is None else fields.largest(gauges)
        if metric is None or value is None:
            continue
        kind, is_longest = metric
        average_ms, longest_ms = found.get(kind, ThrottleTimes())
        found[kind] = ThrottleTimes(average_ms, value) if is_longest else ThrottleTimes(value, longest_ms)
    return found


def _decompressed(data: bytes, compression: int) -> bytes:
    """Return the metrics; what is cut off in compressed form is cut off here.

    Raises:
        WireError: as `throttle_times`.
    """
    if compression == _GZIP:
        try:
            found = zlib.decompressobj(_GZIP_WINDOW).decompress(data, METRICS_BYTES_MAX + 1)
        except zlib.error as error:
            raise MalformedFieldError(f"gzip: {error}") from None
    elif compression == _ZSTD and ZstdDecompressor is not None:
        decompressor = ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        try:
            found = decompressor.stream_reader(data).read(METRICS_BYTES_MAX + 1)
        except ZstdError as error:
            raise MalformedFieldError(f"zstd: {error}") from None
    elif compression == _NONE:
        found = data
    else:
        raise UnreadableCompressionError(f"compression type {compression}")
    if len(found) > METRICS_BYTES_MAX:
        raise OversizedError(f"more than {METRICS_BYTES_MAX} bytes of metrics")
    return found


def _places(data: bytes) -> Iterator[int]:
    """Yield where names of throttle times may be.

    Raises:
        OversizedError: there are too many of them.
    """
    place = -1
    for _ in range(_NAMES_MAX):
        place = data.find(_IN_EACH_NAME, place + 1)
        if place < 0:
            return
        yield place
    raise OversizedError(f"{_NAMES_MAX} names of throttle times")


class _Fields:
    """A walk over the fields of Protocol Buffers in `data`, of STEPS_MAX in all; it copies nothing.

    Args:
        places: where names of throttle times may be, in their order.
    """

    def __init__(self, data: bytes, places: Sequence[int]) -> None:
        self._data = data
        self._places = places
        self._left = STEPS_MAX

    def of(self, pos: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the tag of each field of a message, and where its value begins and ends; of a varint twice the end."""
        data = self._data
        self._left -= _STEPS_A_MESSAGE
        while pos < end:
            begin = pos
            tag, pos = uvarint(data, pos, end)
            wire_type, start = tag & 7, pos
            if wire_type == _LENGTH:
                size, start = uvarint(data, pos, end)
                pos = start + size
            elif wire_type == _FIXED64:
                pos += 8
            elif wire_type == _FIXED32:
                pos += 4
            elif wire_type == _VARINT:
                number = _NUMBER.match(data, pos, end)
                if number is None:
                    raise MalformedFieldError(f"the varint at byte {pos} has no end")
                start = pos = number.end()
            else:
                raise MalformedFieldError(f"wire type {wire_type} before byte {pos}")
            if pos > end:
                raise TruncatedError(f"a field of tag {tag} is cut off at {end}")
            self._left -= 1 + start - begin
            if self._left < 0:
                raise OversizedError(f"more than {STEPS_MAX} steps")
            yield tag, start, pos

    def all_of(self, tag: int, messages: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield where each field with this tag begins and ends, of several messages; only those with a name in them."""
        for begin, end in messages:
            for found, start, stop in self.of(begin, end):
                if found == tag and bisect_left(self._places, start) < bisect_left(self._places, stop):
                    yield start, stop

    def metric(self, pos: int, end: int) -> tuple[tuple[str, bool] | None, list[tuple[int, int]]]:
        """Return what a metric is (of `_METRICS`; None for any other) and where its gauges are.

        The rest of another metric is not looked at: a name is written first.
        """
        metric, gauges = None, []
        for tag, start, stop in self.of(pos, end):
            if tag == _NAME:
                metric = _METRICS.get(self._data[start:stop]) if stop - start <= _NAME_BYTES_MAX else None
                if metric is None:
                    break
            elif tag == _GAUGE:
                gauges.append((start, stop))
        return metric, gauges

    def largest(self, gauges: Iterable[tuple[int, int]]) -> float | None:
        """Return the largest value of the data points of some gauges; None if none has a number.

        Raises:
            MalformedFieldError: one is no possible throttle time.
        """
        largest = None
        points = (
            (begin, end) for gauge in gauges for tag, begin, end in self.of(*gauge) if tag == _DATA_POINT
        )
        for begin, end in points:
            for tag, start, _ in self.of(begin, end):
                if tag not in _VALUES:
                    continue
                value = float(_VALUES[tag](self._data, start)[0])
                if isnan(value):
                    continue
                if not 0 <= value <= THROTTLE_MS_MAX:
                    raise MalformedFieldError(f"a throttle time of {value} ms")
                largest = max(abs(value), largest or 0.0)  # of -0.0 too
        return largest
