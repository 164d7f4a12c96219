"""The requests the load generator sends, encoded by hand so that sending one costs next to nothing.

Produce v12, Fetch v12, Metadata v12, ApiVersions v3: what a current client speaks. One topic, one partition, one
record. It does not decode responses beyond the error code that says whether the request was good.
"""

import struct

from kafka.record import MemoryRecordsBuilder

_PRODUCE, _FETCH, _METADATA, _API_VERSIONS = 0, 1, 3, 18
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_PRODUCE_VERSION, _FETCH_VERSION, _METADATA_VERSION, _API_VERSIONS_VERSION = 12, 12, 12, 3
_HEADER = struct.Struct(">hhi")
_CORRELATION_ID = 7
"""Always the same: a connection here never has two requests under way that could be mistaken for each other."""


def varint(value: int) -> bytes:
    """Return Kafka's unsigned varint.

    >>> varint(300).hex()
    'ac02'
    """
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compact(value: bytes) -> bytes:
    """Return a compact string or bytes: the length plus one, then the bytes."""
    return varint(len(value) + 1) + value


def frame(body: bytes) -> bytes:
    """Return the body behind its 4-byte length."""
    return struct.pack(">i", len(body)) + body


def _request(api_key: int, version: int, client_id: str, body: bytes) -> bytes:
    name = client_id.encode()
    header = _HEADER.pack(api_key, version, _CORRELATION_ID) + struct.pack(">h", len(name)) + name
    return frame(header + b"\0" + body)  # \0: header v2 ends with an empty tag section


def api_versions(client_id: str) -> bytes:
    """Return an ApiVersions request."""
    return _request(
        _API_VERSIONS, _API_VERSIONS_VERSION, client_id, compact(b"sluice-bench") + compact(b"1.0") + b"\0"
    )


def sasl_handshake(client_id: str) -> bytes:
    """Return a SaslHandshake request (version 1) for PLAIN; its header has no tags."""
    name = client_id.encode()
    header = _HEADER.pack(_SASL_HANDSHAKE, 1, _CORRELATION_ID) + struct.pack(">h", len(name)) + name
    return frame(header + struct.pack(">h", 5) + b"PLAIN")


def sasl_plain(client_id: str, user: str, secret: str) -> bytes:
    """Return a SaslAuthenticate request (version 2) with PLAIN's one token."""
    token = f"\0{user}\0{secret}".encode()
    return _request(_SASL_AUTHENTICATE, 2, client_id, compact(token) + b"\0")


def login_failed(response: bytearray) -> int:
    """Return the error code of a response to SaslAuthenticate 2: length, correlation id, tags, error code."""
    return int.from_bytes(response[9:11], "big", signed=True)


def metadata_all_topics(client_id: str) -> bytes:
    """Return a Metadata request for every topic, creating none."""
    return _request(_METADATA, _METADATA_VERSION, client_id, varint(0) + b"\0\0" + b"\0")


def produce(client_id: str, topic: str, value_size: int, timestamp_ms: int) -> bytes:
    """Return a Produce request with acks=1 and one record of `value_size` bytes for partition 0."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=value_size + 1024)
    builder.append(
        timestamp=timestamp_ms, key=None, value=bytes(index * 31 & 0xFF for index in range(value_size))
    )
    builder.close()
    partition = struct.pack(">i", 0) + compact(bytes(builder.buffer())) + b"\0"
    topics = varint(2) + compact(topic.encode()) + varint(2) + partition + b"\0"
    body = varint(0) + struct.pack(">hi", 1, 30_000) + topics + b"\0"
    return _request(_PRODUCE, _PRODUCE_VERSION, client_id, body)


def produce_failed(response: bytes | bytearray, topic: str) -> int:
    """Return the error code of the one partition in the response (the whole frame) to `produce`; 0: appended."""
    # length, correlation id, tags, topics, name, partitions, index
    at = 4 + 4 + 1 + 1 + len(compact(topic.encode())) + 1 + 4
    return int(struct.unpack_from(">h", response, at)[0])


def fetch_first(client_id: str, topic: str) -> bytes:
    """Return a Fetch outside any session for the first batch of partition 0: one byte, which brings all of it."""
    # index, leader epoch, offset, last fetched epoch, log start offset, bytes
    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1) + b"\0"
    topics = varint(2) + compact(topic.encode()) + varint(2) + partition + b"\0"
    # replica, wait, min bytes, max bytes, isolation, session id and epoch; then topics, none forgotten, no rack
    body = struct.pack(">iiiibii", -1, 500, 1, 1, 0, 0, -1) + topics + varint(1) + compact(b"") + b"\0"
    return _request(_FETCH, _FETCH_VERSION, client_id, body)


def fetch_failed(response: bytes | bytearray) -> int:
    """Return the error code of a whole response to `fetch_first`; 0: it was read."""
    # length, correlation id, tags, throttle time
    return int(struct.unpack_from(">h", response, 4 + 4 + 1 + 4)[0])


def metadata_response(brokers: int, topics: int, partitions_per_topic: int) -> bytes:
    """Return a Metadata v12 answer with that many partitions of three replicas each."""
    listed = b"".join(
        struct.pack(">i", node) + compact(b"broker-%d.example" % node) + struct.pack(">i", 9092) + b"\0\0"
        for node in range(brokers)
    )
    nodes = varint(4) + struct.pack(">iii", 0, 1, 2)
    partitions = b"".join(
        struct.pack(">hiii", 0, index, index % brokers, 5) + nodes + nodes + varint(1) + b"\0"
        for index in range(partitions_per_topic)
    )
    entries = b"".join(
        struct.pack(">h", 0)
        + compact(b"topic-%05d" % number)
        + number.to_bytes(16, "big")
        + b"\0"
        + varint(partitions_per_topic + 1)
        + partitions
        + struct.pack(">i", -2147483648)
        + b"\0"
        for number in range(topics)
    )
    head = struct.pack(">i", _CORRELATION_ID) + b"\0" + struct.pack(">i", 0)
    cluster = varint(brokers + 1) + listed + compact(b"bench-cluster") + struct.pack(">i", 0)
    return frame(head + cluster + varint(topics + 1) + entries + b"\0")
