"""Share groups in raw frames (KIP-932): a member that fetches, acknowledges, and obeys nothing it is told.

Written by hand, since kafka-python has no share groups; flexible versions only: ShareGroupHeartbeat 1, ShareFetch 1
and 2, ShareAcknowledge 1.
"""

import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol.primitives import string_bytes, uvarint, uvarint_bytes
from tests.support.waiting import until
from tests.support.wire import Wire

SHARE_GROUP_HEARTBEAT: Final = 76
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
ACCEPT: Final = 1

# First and last offset of what is acknowledged, by partition.
Acknowledged = Mapping[int, Sequence[tuple[int, int]]]


def framed(
    key: int, version: int, fields: bytes, correlation_id: int = 1, client_id: bytes = b"wire"
) -> bytes:
    """A request with an empty tag section in its header."""
    head = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id + b"\0"
    return struct.pack(">i", len(head) + len(fields)) + head + fields


def _topics(topic: uuid.UUID, partitions: Sequence[int], acknowledged: Acknowledged) -> bytes:
    entries = b"".join(
        struct.pack(">i", partition)
        + uvarint_bytes(len(acknowledged.get(partition, ())) + 1)
        + b"".join(
            struct.pack(">qqBbB", first, last, 2, ACCEPT, 0)
            for first, last in acknowledged.get(partition, ())
        )
        + b"\0"
        for partition in partitions
    )
    return b"\2" + topic.bytes + uvarint_bytes(len(partitions) + 1) + entries + b"\0" if partitions else b"\1"


def share_fetch(
    topic: uuid.UUID,
    partitions: Sequence[int] = (),
    acknowledged: Acknowledged | None = None,
    *,
    group: str = "g",
    member: str = "m",
    epoch: int = 0,
    version: int = 2,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    max_records: int = 100_000,
    batch_size: int = 100_000,
) -> bytes:
    """The fields of a ShareFetch."""
    acknowledged = acknowledged or {}
    numbers = struct.pack(">6i", epoch, max_wait_ms, min_bytes, max_bytes, max_records, batch_size)
    named = sorted({*partitions, *acknowledged})
    return b"".join(
        (
            string_bytes(group, True),
            string_bytes(member, True),
            numbers,
            b"\0\0" if version >= 2 else b"",  # acquire mode, whether it renews
            _topics(topic, named, acknowledged),
            b"\1\0",  # nothing forgotten, no tags
        )
    )


def share_acknowledge(
    topic: uuid.UUID, acknowledged: Acknowledged, *, group: str = "g", member: str = "m", epoch: int = 1
) -> bytes:
    """The fields of a ShareAcknowledge 1."""
    named = _topics(topic, sorted(acknowledged), acknowledged)
    return string_bytes(group, True) + string_bytes(member, True) + struct.pack(">i", epoch) + named + b"\0"


@dataclass
class Fetched:
    """A response to a ShareFetch or ShareAcknowledge."""

    size: int
    throttle_ms: int
    error: int
    errors: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # of fetching and acknowledging, by partition
    records: dict[int, int] = field(default_factory=dict)  # bytes of records by partition
    acquired: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def bytes_total(self) -> int:
        """Bytes of records."""
        return sum(self.records.values())


class _Reader:
    """Reads a response from its front."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.pos = 9  # length, correlation id, tags

    def number(self, layout: str) -> int:
        value: int
        (value,) = struct.unpack_from(layout, self.frame, self.pos)
        self.pos += struct.calcsize(layout)
        return value

    def count(self) -> int:
        value, self.pos = uvarint(self.frame, self.pos, len(self.frame))
        return value - 1

    def text(self) -> str:
        size = max(self.count(), 0)
        self.pos += size
        return self.frame[self.pos - size : self.pos].decode()

    def tags(self) -> None:
        assert self.count() < 0, "no tags are expected"


def read_fetched(frame: bytes) -> Fetched:
    """A ShareFetch's response."""
    reader = _Reader(frame)
    found = Fetched(len(frame), reader.number(">i"), reader.number(">h"))
    reader.text()
    reader.number(">i")
    for _ in range(reader.count()):
        reader.pos += 16
        for _ in range(reader.count()):
            _partition(reader, found)
        reader.tags()
    return found


def _partition(reader: _Reader, found: Fetched) -> None:
    index, error = reader.number(">i"), reader.number(">h")
    reader.text()
    found.errors[index] = (error, reader.number(">h"))
    reader.text()
    reader.pos += 8
    reader.tags()
    size = max(reader.count(), 0)
    reader.pos += size
    found.records[index] = size
    found.acquired[index] = []
    for _ in range(reader.count()):
        found.acquired[index].append((reader.number(">q"), reader.number(">q")))
        reader.number(">h")
        reader.tags()
    reader.tags()


class Member:
    """A member of a share group, on one connection, of one topic.

    Args:
        coordinator: a connection to the group's coordinator.
        wire: one to the leader of its partitions.
    """

    def __init__(self, coordinator: Wire, wire: Wire, group: str, topic: str, topic_id: uuid.UUID) -> None:
        self._coordinator = coordinator
        self.wire = wire
        self.group = group
        self.member = str(uuid.uuid4())
        self._topic = topic
        self.topic_id = topic_id
        self.epoch = 0
        self._member_epoch = 0

    def join(self, seconds_max: float = 60.0) -> None:
        """Become a member, with partitions assigned."""
        until(lambda: self.heartbeat()[1], f"{self.group} is assigned a partition", seconds_max, 0.2)

    def heartbeat(self) -> tuple[int, int]:
        """Send a heartbeat; the error code and the number of partitions assigned."""
        names = b"\2" + string_bytes(self._topic, True) if not self._member_epoch else b"\0"
        fields = string_bytes(self.group, True) + string_bytes(self.member, True)
        fields += struct.pack(">i", self._member_epoch) + b"\0" + names + b"\0"
        self._coordinator.send_bytes(framed(SHARE_GROUP_HEARTBEAT, 1, fields))
        reader = _Reader(self._coordinator.receive())
        reader.number(">i")
        error = reader.number(">h")
        reader.text()
        reader.text()
        self._member_epoch = reader.number(">i") or self._member_epoch
        reader.number(">i")
        assigned = 0
        if reader.number(">b") >= 0:
            for _ in range(reader.count()):
                reader.pos += 16
                partitions = reader.count()
                reader.pos += 4 * partitions
                assigned += partitions
                reader.tags()
        return error, assigned

    def fetch_frame(
        self, partitions: Sequence[int] = (), acknowledged: Acknowledged | None = None, **fields: int
    ) -> bytes:
        """The next ShareFetch of its session."""
        version = fields.get("version", 2)
        body = share_fetch(
            self.topic_id,
            partitions,
            acknowledged,
            group=self.group,
            member=self.member,
            **({"epoch": self.epoch} | fields),
        )
        self.epoch += 1
        return framed(SHARE_FETCH, version, body, client_id=self.wire.client_id.encode())

    def fetch(
        self, partitions: Sequence[int] = (), acknowledged: Acknowledged | None = None, **fields: int
    ) -> Fetched:
        """Ask once."""
        self.wire.send_bytes(self.fetch_frame(partitions, acknowledged, **fields))
        return read_fetched(self.wire.receive())

    def acknowledge(self, acknowledged: Acknowledged) -> bytes:
        """Acknowledge without fetching; the response's frame."""
        body = share_acknowledge(
            self.topic_id, acknowledged, group=self.group, member=self.member, epoch=self.epoch
        )
        self.epoch += 1
        self.wire.send_bytes(framed(SHARE_ACKNOWLEDGE, 1, body, client_id=self.wire.client_id.encode()))
        return self.wire.receive()

    def begin(self, partitions: Sequence[int]) -> None:
        """Join, and open a session of these partitions without taking a record."""
        self.join()
        deadline = time.monotonic() + 60
        found = self.fetch(partitions, max_records=0, max_wait_ms=0)
        while found.error or any(error for error, _ in found.errors.values()):
            assert time.monotonic() < deadline, f"no share session begins: {found}"
            time.sleep(0.2)
            found = self.fetch(max_records=0, max_wait_ms=0)
