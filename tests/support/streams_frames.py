"""Heartbeats of streams groups in bytes (KIP-1071): with a topology, as a member joins, or without."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.api import STREAMS_GROUP_HEARTBEAT
from protocol.primitives import count_bytes, string_bytes
from tests.support.frames import frame, request


@dataclass(frozen=True)
class Part:
    """A subtopology; internal topics have their partitions, 0 where they are derived."""

    sources: Sequence[str] = ()
    sinks: Sequence[str] = ()
    repartition: Mapping[str, int] = field(default_factory=dict)
    changelogs: Sequence[str] = ()
    expressions: Sequence[str] = ()

    def encoded(self, number: int) -> bytes:
        # One group: the first source topic, no expressions, no repartition topics.
        group = count_bytes(1, True) + b"\0\0" + count_bytes(0, True) * 2 + b"\0"
        copartitioned = count_bytes(1, True) + group if self.sources else count_bytes(0, True)
        return (
            string_bytes(str(number), True)
            + _strings(self.sources)
            + _strings(self.expressions)
            + _topics(dict.fromkeys(self.changelogs, 0))
            + _strings(self.sinks)
            + _topics(self.repartition)
            + copartitioned
            + b"\0"
        )


def topology(*parts: Part) -> bytes:
    """The field of a topology."""
    encoded = b"".join(part.encoded(number) for number, part in enumerate(parts))
    return b"\1" + struct.pack(">i", 0) + count_bytes(len(parts), True) + encoded + b"\0"


def heartbeat_body(group: str, member: str, epoch: int, topology_field: bytes) -> bytes:
    """The fields of a whole request."""
    head = string_bytes(group, True) + string_bytes(member, True) + struct.pack(">ii", epoch, 0)
    head += string_bytes(None, True) * 2 + struct.pack(">i", 60_000) + topology_field
    tasks = b"\1" * 3 if epoch == 0 else b"\0" * 3
    # Process id, no endpoint; no tags, offsets and end offsets; no shutdown.
    return head + tasks + string_bytes("p", True) + b"\xff" + b"\0" * 3 + b"\0" + b"\0"


def joining(
    *parts: Part, correlation_id: int = 1, version: int = 1, client_id: str = "a", group: str = "g"
) -> bytes:
    """A member's first heartbeat; without parts it has no topology."""
    body = heartbeat_body(group, "m", 0 if parts else 1, topology(*parts) if parts else b"\xff")
    return request(STREAMS_GROUP_HEARTBEAT, version, body, correlation_id=correlation_id, client_id=client_id)


def joined(correlation_id: int = 1, *, error: int = 0, throttle_ms: int = 0) -> bytes:
    """The response to one, without what follows its error."""
    return frame(struct.pack(">ibih", correlation_id, 0, throttle_ms, error) + b"\0" * 40)


def _strings(texts: Sequence[str]) -> bytes:
    return count_bytes(len(texts), True) + b"".join(string_bytes(text, True) for text in texts)


def _topics(topics: Mapping[str, int]) -> bytes:
    config = string_bytes("cleanup.policy", True) + string_bytes("compact", True) + b"\0"
    one = b"".join(
        string_bytes(name, True) + struct.pack(">ih", partitions, 1) + count_bytes(1, True) + config + b"\0"
        for name, partitions in topics.items()
    )
    return count_bytes(len(topics), True) + one
