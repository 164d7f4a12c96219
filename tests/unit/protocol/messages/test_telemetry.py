"""The throttle times in a PushTelemetry: which are read, what is refused, and where reading stops."""

import math
import sys
from contextlib import suppress
from importlib.util import find_spec, module_from_spec

import pytest

from protocol.errors import MalformedFieldError, OversizedError, TruncatedError, WireError
from protocol.messages.telemetry import (
    METRICS_BYTES_MAX,
    STEPS_MAX,
    THROTTLE_MS_MAX,
    ThrottleTimes,
    UnreadableCompressionError,
    throttle_times,
)
from tests.support.pushes import (
    FETCH_AVG,
    FETCH_MAX,
    GZIP,
    LZ4,
    NONE,
    PRODUCE_AVG,
    PRODUCE_MAX,
    SHARE_MAX,
    SNAPPY,
    ZSTD,
    compressed,
    field,
    gauge,
    metrics_data,
    push_body,
    total,
    varint_field,
)

TAGS = b"\0"  # of the header


def read(*metrics: bytes, compression: int = NONE) -> dict[str, ThrottleTimes]:
    return read_data(metrics_data(metrics), compression)


def read_data(data: bytes, compression: int = NONE) -> dict[str, ThrottleTimes]:
    return read_body(push_body(compressed(data, compression), compression))


def read_body(body: bytes) -> dict[str, ThrottleTimes]:
    return dict(throttle_times(TAGS + body, 0, len(TAGS + body)))


@pytest.mark.parametrize("compression", [NONE, GZIP, ZSTD])
def test_times_of_a_producer_are_read(compression: int) -> None:
    metrics = [gauge("org.apache.kafka.producer.batch.size.avg", 5.0), gauge(PRODUCE_AVG, 118.5)]
    found = read(*metrics, gauge(PRODUCE_MAX, 480.0), total(PRODUCE_AVG, 9.0), compression=compression)
    assert found == {"produce": ThrottleTimes(118.5, 480.0)}


def test_times_of_consumers_are_read_whole_or_in_part() -> None:
    assert read(gauge(FETCH_AVG, 3.5), gauge(FETCH_MAX, 9)) == {"fetch": ThrottleTimes(3.5, 9.0)}
    assert read(gauge(SHARE_MAX, 7)) == {"fetch": ThrottleTimes(None, 7.0)}


def test_order_of_fields_and_messages_does_not_matter() -> None:
    """A name behind its gauge, two scopes, two resources."""
    point = field(1, field(4, 2.0))
    late = field(2, field(5, point) + field(1, PRODUCE_AVG.encode()))
    other = field(1, field(2, b"") + field(2, gauge(PRODUCE_MAX, 8)))
    assert read_data(field(1, field(2, late)) + other) == {"produce": ThrottleTimes(2.0, 8.0)}


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    unknown = varint_field(99, 1 << 31) + field(98, b"x") + field(97, 1.0) + b"\x85\x06\0\0\0\0"
    point = field(1, unknown + field(4, 2.0) + unknown)
    metric = field(2, field(1, PRODUCE_AVG.encode()) + unknown + field(5, unknown + point))
    assert read_data(unknown + field(1, unknown + field(2, unknown + metric))) == {
        "produce": ThrottleTimes(2.0, None)
    }


def test_largest_of_several_data_points_counts() -> None:
    assert read(gauge(PRODUCE_AVG, 2.0, 5.0, 3.0)) == {"produce": ThrottleTimes(5.0, None)}


@pytest.mark.parametrize("metrics", [(), (gauge(PRODUCE_AVG, math.nan),), (gauge(PRODUCE_AVG),)])
def test_nothing_is_read_where_nothing_is_said(metrics: tuple[bytes, ...]) -> None:
    """Java says that there was no response by a value that is not a number."""
    assert read(*metrics) == {}


@pytest.mark.parametrize("value", [-1, -0.5, math.inf, -math.inf, THROTTLE_MS_MAX + 1, 1e300])
def test_impossible_throttle_time_is_refused(value: float) -> None:
    with pytest.raises(MalformedFieldError, match="a throttle time of"):
        read(gauge(PRODUCE_AVG, value))


def test_longest_throttle_time_is_read() -> None:
    assert read(gauge(PRODUCE_MAX, THROTTLE_MS_MAX)) == {"produce": ThrottleTimes(None, 2147483647.0)}


@pytest.mark.parametrize("compression", [SNAPPY, LZ4, 5, 127])
def test_other_compression_is_not_read(compression: int) -> None:
    with pytest.raises(UnreadableCompressionError):
        read_body(push_body(b"any", compression))


def test_zstd_is_not_read_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    spec = find_spec("protocol.messages.telemetry")
    assert spec is not None
    assert spec.loader is not None
    without = module_from_spec(spec)
    spec.loader.exec_module(without)
    for compression in (GZIP, ZSTD):
        data = compressed(metrics_data([gauge(PRODUCE_AVG, 1.0)]), compression)
        body = TAGS + push_body(data, compression)
        if compression == GZIP:
            assert without.throttle_times(body, 0, len(body)) == {"produce": (1.0, None)}
        else:
            with pytest.raises(without.UnreadableCompressionError, match="compression type 4"):
                without.throttle_times(body, 0, len(body))


@pytest.mark.parametrize("compression", [NONE, GZIP, ZSTD])
def test_metrics_of_too_many_bytes_are_not_read(compression: int) -> None:
    front = gauge(PRODUCE_AVG, 1.0)
    # A tag and a length of 3 bytes; the lengths of resource and scope take 3 bytes instead of 1.
    room = METRICS_BYTES_MAX - len(metrics_data([front])) - 4 - 2 * 2
    fits = [front, field(9, bytes(room))]
    assert len(metrics_data(fits)) == METRICS_BYTES_MAX
    assert read(*fits, compression=compression)
    with pytest.raises(OversizedError, match="more than 262144 bytes"):
        read(front, field(9, bytes(room + 1)), compression=compression)


@pytest.mark.parametrize("compression", [GZIP, ZSTD])
def test_bomb_is_decompressed_to_the_bound(compression: int) -> None:
    bomb = compressed(bytes(50 * 1024 * 1024), compression)
    assert len(bomb) < 64 * 1024
    with pytest.raises(OversizedError):
        read_body(push_body(bomb, compression))


def test_zstd_with_a_large_window_is_refused() -> None:
    """The sender would choose how much memory that takes: 128 MiB."""
    frame = (
        b"\x28\xb5\x2f\xfd\x00" + bytes([17 << 3]) + b"\x01\0\0"
    )  # window log 10 + 17, an empty last block
    with pytest.raises(MalformedFieldError, match="zstd: "):
        read_body(push_body(frame, ZSTD))
    small = b"\x28\xb5\x2f\xfd\x00" + bytes([13 << 3]) + b"\x01\0\0"  # 8 MiB
    assert read_body(push_body(small, ZSTD)) == {}


# Of one gauge in a resource and a scope: each field is a step, and each byte of its tag and length. Resource, scope,
# metric, name, unit and gauge, point: 2 bytes each; two times and a value: a tag each. Three steps for each message.
OF_ONE_GAUGE = 7 * (1 + 2) + 3 * (1 + 1) + 6 * 3


@pytest.mark.parametrize(
    ("item", "steps"),
    [
        (b"\x08\0", 3),
        (varint_field(3, 1 << 31), 1 + 1 + 5),
        (b"\x0d" + bytes(4), 2),
        (b"\x09" + bytes(8), 2),
        (field(2, b""), 3),
        (b"\x92\x80\x80\x80\0" + b"\x80\x80\x80\x80\0", 11),
        (field(2, field(1, b"x") + field(3, b"ms")), 3),  # a metric of another name is not looked into
    ],
)
def test_steps_are_bounded(item: bytes, steps: int) -> None:
    """The lengths of resource and scope have two bytes more here."""
    one = gauge(PRODUCE_AVG, 1.0)
    many = (STEPS_MAX - OF_ONE_GAUGE - 2 * 2) // steps
    assert read_data(field(1, field(2, item * many + one))) == {"produce": (1.0, None)}
    with pytest.raises(OversizedError, match="more than 6000 steps"):
        read_data(field(1, field(2, item * (many + 2) + one)))


def test_metrics_of_java_are_four_steps_each() -> None:
    """A resource and a scope for each metric."""
    other = field(1, field(2, gauge("org.apache.kafka.producer.topic.record.send.rate", 1.0)))
    assert read_data(other * 1450 + field(1, field(2, gauge(PRODUCE_AVG, 1.0)))) == {"produce": (1.0, None)}


def test_names_are_counted() -> None:
    assert read(*[gauge(PRODUCE_AVG, float(number)) for number in range(63)]) == {"produce": (62.0, None)}
    with pytest.raises(OversizedError, match="64 names"):
        read(*[gauge(PRODUCE_AVG, 1.0)] * 64)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x0a", TruncatedError),
        (b"\x0a\x05abc", TruncatedError),
        (b"\x0a\x80\x80\x80\x80\x80\x01", MalformedFieldError),
        (b"\x09\0\0", TruncatedError),
        (b"\x0d\0\0", TruncatedError),
        (b"\x08" + b"\x80" * 10 + b"\0", MalformedFieldError),
        (b"\x08\x80", MalformedFieldError),
        (b"\x0b\x0c", MalformedFieldError),  # a group
        (b"\x80\x80\x80\x80\x80\x01", MalformedFieldError),
        (metrics_data([gauge(PRODUCE_AVG, 1.0)])[:-1], TruncatedError),
    ],
    ids=lambda value: value.hex() if isinstance(value, bytes) else "",
)
def test_what_is_no_metrics_is_an_error(data: bytes, error: type[WireError]) -> None:
    with pytest.raises(error):
        read_data(data)


@pytest.mark.parametrize("compression", [GZIP, ZSTD])
def test_damaged_compression_is_an_error(compression: int) -> None:
    whole = compressed(metrics_data([gauge(PRODUCE_AVG, 1.0)]), compression)
    with pytest.raises(WireError):
        read_body(push_body(b"\0" + whole, compression))
    for end in range(len(whole)):
        with suppress(WireError):
            # Of gzip the checksum is not waited for.
            assert read_body(push_body(whole[:end], compression)) in ({}, {"produce": (1.0, None)})


def test_request_that_ends_early_is_an_error() -> None:
    body = push_body(metrics_data([gauge(PRODUCE_AVG, 1.0)]))
    for end in range(len(body) - 1):  # without its tags it is read
        with pytest.raises(WireError):
            read_body(body[:end])
    with pytest.raises(TruncatedError):
        read_body(push_body(b"x", size=1 << 31))
