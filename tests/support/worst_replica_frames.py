"""A follower's largest frames and their answers, on a replication listener: see `worst_frames`.

A partition of a Fetch has 33 bytes, all tags absent; one of its answer, without records, 40.
"""

import struct
from typing import Final

from protocol.primitives import uvarint_bytes
from proxy.channel.replication import ReplicationChannel
from quotas.replication.replication_quotas import (
    BrokerLimits,
    ReplicationOptions,
    ReplicationQuotas,
    ThrottledReplicas,
    parse_replicas,
)
from tests.support.frames import frame, request
from tests.support.replicas import FOLLOWER, replication_channel

FETCH: Final = 1
VERSION: Final = 17
SESSION: Final = 77
TOPIC: Final = bytes(15) + b"\1"
FETCH_BYTES: Final = 33


def throttled(rate: float | None) -> ReplicationChannel:
    """A channel whose replicas all count against both ends' rates, as many bytes/s; None: none counts."""
    quotas = ReplicationQuotas(ReplicationOptions())
    quotas.name_topics({TOPIC: "t"})
    if rate is not None:
        every = {"t": parse_replicas("*")[0]}
        quotas.throttle(ThrottledReplicas(leaders=every, followers=every))
        quotas.limit(BrokerLimits(default=rate), BrokerLimits(default=rate))
    return replication_channel(quotas)


def fetched(count: int, *, epoch: int = 0, offset: int = 0) -> bytes:
    """A Fetch that names so many partitions of a topic: all there are, or with an epoch those that have changed."""
    entry = struct.Struct(">iiqiqi")
    entries = b"".join(entry.pack(index, 5, offset, -1, 0, 1 << 20) + b"\0" for index in range(count))
    return _asked(epoch, b"\2" + TOPIC + uvarint_bytes(count + 1) + entries + b"\0" + b"\1")


def forgetting(count: int, *, epoch: int) -> bytes:
    """A Fetch that forgets so many partitions."""
    entries = b"".join(index.to_bytes(4, "big") for index in range(count))
    return _asked(epoch, b"\1" + b"\2" + TOPIC + uvarint_bytes(count + 1) + entries + b"\0")


def _asked(epoch: int, topics: bytes) -> bytes:
    head = struct.pack(">iiibii", 500, 1, 1 << 20, 0, SESSION if epoch else 0, epoch)
    tail = b"\1" + b"\1" + b"\1\x0d" + struct.pack(">iq", FOLLOWER, 9) + b"\0"
    return request(FETCH, VERSION, head + topics + tail)


def answered(count: int, *, high_watermark: int = 10, records: int = 0) -> bytes:
    """An answer that names so many partitions, each with a batch of so many bytes."""
    batch = struct.pack(">qi", 0, records - 12) + bytes(records - 12) if records else b""
    rest = struct.pack(">hqqq", 0, high_watermark, high_watermark, 0) + b"\1" + struct.pack(">i", -1)
    rest += uvarint_bytes(records + 1) + batch + b"\0"
    partitions = b"".join(index.to_bytes(4, "big") + rest for index in range(count))
    head = b"\0\0\0\1" + b"\0" + struct.pack(">ihi", 0, 0, SESSION)
    topics = b"\2" + TOPIC + uvarint_bytes(count + 1) + partitions + b"\0" if count else b"\1"
    return frame(head + topics + b"\0")
