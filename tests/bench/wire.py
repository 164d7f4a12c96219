"""The requests the load generator sends, encoded by hand so that sending one costs next to nothing.

Produce v12, Fetch v12, Metadata v12, ApiVersions v3: what a current client speaks. One topic, one partition, one
record; a connection never has two requests under way that could be mistaken for each other, so one correlation id is
enough. It does not decode responses beyond the error code that says whether the request was good.
"""

import struct

from kafka.record import MemoryRecordsBuilder

from protocol.api import METADATA
from protocol.primitives import count_bytes, string_bytes
from tests.hostile import wire
from tests.support import frames

_VERSION = 12
_CORRELATION_ID = 1
_SOFTWARE = ("sluice-bench", "1.0")


def api_versions(client_id: str) -> bytes:
    """Return an ApiVersions request."""
    return frames.api_versions(client_id=client_id, software=_SOFTWARE)


def login_failed(response: bytearray) -> int:
    """Return the error code of a response to SaslAuthenticate 2: length, correlation id, tags, error code."""
    return int.from_bytes(response[9:11], "big", signed=True)


def metadata_all_topics(client_id: str) -> bytes:
    """Return a Metadata request for every topic, creating none."""
    return frames.request(METADATA, _VERSION, bytes(4), client_id=client_id)


def produce(client_id: str, topic: str, value_size: int, timestamp_ms: int) -> bytes:
    """Return a Produce request with acks=1 and one record of `value_size` bytes for partition 0."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=value_size + 1024)
    value = bytes(index * 31 & 0xFF for index in range(value_size))
    builder.append(timestamp=timestamp_ms, key=None, value=value)
    builder.close()
    return wire.produce(client_id, bytes(builder.buffer()), version=_VERSION, topics=[topic])


def produce_failed(response: bytes | bytearray, topic: str) -> int:
    """Return the error code of the one partition in the response (the whole frame) to `produce`; 0: appended."""
    # length, correlation id, tags, topics, name, partitions, index
    at = 4 + 4 + 1 + 1 + len(string_bytes(topic, True)) + 1 + 4
    return int(struct.unpack_from(">h", response, at)[0])


def fetch_first(client_id: str, topic: str) -> bytes:
    """Return a Fetch outside any session for the first batch of partition 0: one byte, which brings all of it."""
    key = string_bytes(topic, True)
    return wire.fetch(client_id, version=_VERSION, max_bytes=1, partition_max_bytes=1, key=key)


def fetch_failed(response: bytes | bytearray) -> int:
    """Return the error code of a whole response to `fetch_first`; 0: it was read."""
    # length, correlation id, tags, throttle time
    return int(struct.unpack_from(">h", response, 4 + 4 + 1 + 4)[0])


def metadata_response(brokers: int, topics: int, partitions_per_topic: int) -> bytes:
    """Return a Metadata v12 response with that many partitions of three replicas each."""
    listed = b"".join(
        struct.pack(">i", node) + string_bytes(f"broker-{node}.example", True) + struct.pack(">ixx", 9092)
        for node in range(brokers)
    )
    nodes = count_bytes(3, True) + struct.pack(">iii", 0, 1, 2)
    partitions = b"".join(
        struct.pack(">hiii", 0, index, index % brokers, 5) + nodes + nodes + b"\1\0"
        for index in range(partitions_per_topic)
    )
    counted = b"\0" + count_bytes(partitions_per_topic, True) + partitions
    entries = b"".join(
        struct.pack(">h", 0) + string_bytes(f"topic-{number:05d}", True) + number.to_bytes(16, "big")
        + counted + struct.pack(">ix", -2147483648)
        for number in range(topics)
    )  # fmt: skip
    head = struct.pack(">ixi", _CORRELATION_ID, 0)
    cluster = count_bytes(brokers, True) + listed + string_bytes("bench-cluster", True) + struct.pack(">i", 0)
    return frames.frame(head + cluster + count_bytes(topics, True) + entries + b"\0")
