"""PushTelemetry as Kafka's own client makes it: its names, its Protocol Buffers, its compression."""

from collections.abc import Iterator

import pytest

from protocol.messages.telemetry import ThrottleTimes, UnreadableCompressionError, throttle_times
from tests.cluster.jars import NEWEST
from tests.oracle.judge import KAFKA, Judge

pytestmark = pytest.mark.skipif(
    KAFKA != NEWEST, reason="the client's internal classes are those of the newest"
)

BODY = 15  # of a request whose client id is "a"
PRODUCER = "producer-metrics/produce-throttle-time"
CONSUMER = "consumer-fetch-manager-metrics/fetch-throttle-time"
SHARE = "consumer-share-fetch-manager-metrics/fetch-throttle-time"
OTHERS = [f"producer-topic-metrics/record-send-rate-{number}={number}.5" for number in range(500)]
COMPRESSIONS = ("none", "gzip", "zstd")


@pytest.fixture(scope="module")
def client() -> Iterator[Judge]:
    with Judge.start("Telemetry.java") as started:
        yield started


def read(client: Judge, compression: str, *metrics: str) -> dict[str, ThrottleTimes]:
    frame = bytes.fromhex(client.ask(compression, *metrics))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return dict(throttle_times(frame, BODY, len(frame)))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_throttle_times_of_a_producer_are_read(client: Judge, compression: str) -> None:
    found = read(client, compression, *OTHERS, f"{PRODUCER}-avg=118.25", *OTHERS, f"{PRODUCER}-max=480.0")
    assert found == {"produce": ThrottleTimes(118.25, 480.0)}


@pytest.mark.parametrize("metric", [CONSUMER, SHARE])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_throttle_times_of_consumers_are_read(client: Judge, compression: str, metric: str) -> None:
    found = read(client, compression, f"{metric}-max=7", f"{metric}-avg=0.5", *OTHERS)
    assert found == {"fetch": ThrottleTimes(0.5, 7.0)}


def test_average_of_no_response_is_none(client: Judge) -> None:
    assert read(client, "zstd", f"{PRODUCER}-avg=NaN", f"{PRODUCER}-max=NaN") == {}


@pytest.mark.parametrize("compression", ["snappy", "lz4"])
def test_other_compression_is_not_read(client: Judge, compression: str) -> None:
    with pytest.raises(UnreadableCompressionError):
        read(client, compression, f"{PRODUCER}-avg=1.0")
