"""kafka_client.request: responses that cannot be are refused, and in time."""

import time

import pytest
from kafka.protocol.metadata import MetadataResponse

from kafka_client import metadata
from kafka_client.request import decode
from protocol.errors import MalformedFieldError, WireError
from tests.unit.protocol.kafka_frames import framed

READ = metadata.partitions(["t"]).read
EMPTY = framed(
    MetadataResponse(version=12, throttle_time_ms=0, brokers=[], cluster_id="c", controller_id=1, topics=[])
)


def whole(rest: bytes) -> bytes:
    return len(rest).to_bytes(4, "big") + rest


def test_every_cut_response_is_refused() -> None:
    assert READ(EMPTY).topics == {}
    for end in range(len(EMPTY)):
        with pytest.raises(WireError):
            READ(EMPTY[:end])


def test_fields_that_end_before_their_message_does_are_refused() -> None:
    for end in range(8, len(EMPTY) - 1):
        with pytest.raises(MalformedFieldError, match="MetadataResponse 12: "):
            READ(whole(EMPTY[4:end]))


@pytest.mark.parametrize("size", [256, 100_000, 8 * 1024 * 1024])
@pytest.mark.parametrize("start", [0, 65_000])
def test_number_that_never_ends_is_refused_in_time(size: int, start: int) -> None:
    """kafka-python takes 2 s for 256 kB of them, and four times that for twice as many."""
    frame = whole(EMPTY[4:9] + bytes(4) + bytes(start) + b"\xff" * size + b"\0")
    began = time.process_time()
    with pytest.raises(MalformedFieldError, match="continuation bytes"):
        READ(frame)
    assert time.process_time() - began < 1


def test_number_of_many_bytes_is_no_size() -> None:
    with pytest.raises(WireError):
        READ(whole(EMPTY[4:13] + b"\xff" * 200 + b"\1" + bytes(20)))


def test_array_that_is_null_is_empty() -> None:
    kind = MetadataResponse
    frame = framed(kind(version=12, throttle_time_ms=0, brokers=[], controller_id=1, topics=None))
    assert READ(frame) == ([], {})
    assert decode(kind, 12, frame).topics is None


def test_reassignments_are_read_as_those_of_clients() -> None:
    assert metadata.list_ongoing().read(whole(bytes(5) + bytes(4) + bytes(2) + b"\0\1\0")).ongoing == {}
