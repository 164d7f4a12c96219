"""A leader and a follower in memory, with fetch sessions as KIP-227 has them, and a replication channel between them.

Both know nothing of Sluice: the follower does what Kafka's `FetchSessionHandler` does and fails where it would, the
leader what `FetchManager` does. Logs are batches of one size; an offset counts batches. Messages are encoded and
decoded by kafka-python. Time is the caller's.
"""

import struct as binary
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from protocol.api import FETCH
from protocol.messages.fetch_session import SessionTable
from proxy.channel import Channel
from proxy.channel.settings import ChannelSettings
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.replication.replication_quotas import ReplicationQuotas
from tests.support.playbook import Ends, Insert, Pass, Playbook, Wait
from tests.unit.protocol.kafka_frames import REQUESTS, RESPONSES, decoded, framed, struct

REQUEST, RESPONSE = REQUESTS[FETCH], RESPONSES[FETCH]
LEADER: Final = 1
FOLLOWER: Final = 3
MIB: Final = 1024 * 1024
WAIT_MS: Final = 500

Partition = tuple[int, int]  # number of the topic, partition


def topic_id(topic: int) -> uuid.UUID:
    return uuid.UUID(int=topic)


def topic_names(topics: Iterable[int]) -> dict[bytes, str]:
    """What Sluice is told of topics' names: topic 1 is "t1"."""
    return {topic_id(topic).bytes: f"t{topic}" for topic in topics}


def batches(count: int, size: int) -> bytes:
    """So many batches of so many bytes, of which only the lengths are true."""
    return (binary.pack(">qi", 0, size - 12) + bytes(size - 12)) * count


def replication_channel(quotas: ReplicationQuotas, leader: int = LEADER) -> Channel:
    """A channel at a leader's door."""
    settings = ChannelSettings(broker=leader, address_map=None, frame_bytes_max=MIB * 16, replication=quotas)
    return Channel(settings, Engine(EngineOptions(), Definitions()), SessionTable(10), Stats())


def quotas_of(channel: Channel) -> ReplicationQuotas:
    """The quotas that a channel was made with."""
    quotas = channel.settings.replication
    assert quotas is not None, "it is a replication channel"
    return quotas


class SessionError(AssertionError):
    """A follower would throw its session away, or a leader refuse it."""


@dataclass
class Leader:
    """A broker's logs and fetch sessions.

    Attributes:
        ends: batches in each partition's log; all of them are below the high watermark.
        keeps_sessions: False: it responds to full requests without giving a session.
    """

    batch_bytes: int = 1000
    ends: dict[Partition, int] = field(default_factory=dict)
    keeps_sessions: bool = True
    sessions: dict[int, dict[Partition, Any]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    told: dict[int, dict[Partition, int]] = field(default_factory=dict)
    last_id: int = 4000
    # What the last request asked for: partition -> the most bytes.
    asked: dict[Partition, int] = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)

    def drop_sessions(self) -> None:
        """Forget every session, as a restart or a full cache does."""
        self.sessions.clear()
        self.epochs.clear()

    def respond(self, version: int, frame: bytes) -> tuple[bytes, int]:
        """Respond to a Fetch: the frame, and the bytes of records in it."""
        request = decoded(REQUEST, version, frame)
        self.seen.append(request)
        session_id, epoch = request.session_id, request.session_epoch
        named = _named(request)
        if epoch in (0, -1) or not session_id:
            self.sessions.pop(session_id, None)
            session_id = 0
            if epoch == 0 and self.keeps_sessions:
                self.last_id += 1
                session_id = self.last_id
                self.sessions[session_id] = dict(named)
                self.epochs[session_id] = 1
                self.told[session_id] = {}
            return self._reply(version, request, session_id, named, full=True)
        if session_id not in self.sessions:
            return self._error(version, request, 70)
        if epoch != self.epochs[session_id]:
            return self._error(version, request, 71)
        self.epochs[session_id] = epoch % 0x7FFFFFFF + 1
        session = self.sessions[session_id]
        session.update(named)
        for topic in request.forgotten_topics_data or ():
            for partition in topic.partitions:
                session.pop((_number(topic), partition), None)
        if not session:
            # Kafka closes a session that has become empty.
            del self.sessions[session_id]
            return self._reply(version, request, 0, {}, full=True)
        return self._reply(version, request, session_id, session, full=False)

    def _reply(
        self, version: int, request: Any, session_id: int, wanted: dict[Partition, Any], *, full: bool
    ) -> tuple[bytes, int]:
        told = self.told.get(session_id, {})
        self.asked = {key: entry.partition_max_bytes for key, entry in wanted.items()}
        left, first, total = request.max_bytes, True, 0
        topics: dict[int, list[Any]] = {}
        for key, entry in list(wanted.items()):
            end = self.ends.get(key, 0)
            count = min(end - entry.fetch_offset, min(entry.partition_max_bytes, left) // self.batch_bytes)
            if not count and first and end > entry.fetch_offset and entry.partition_max_bytes > 0:
                count = 1  # one batch at least, of the first partition that has any
            size = count * self.batch_bytes
            first, left, total = first and not size, left - size, total + size
            if not (full or size or told.get(key) != end):
                continue
            told[key] = end
            if size and not full:
                wanted[key] = wanted.pop(key)  # who had something goes to the end
            records = batches(count, self.batch_bytes)
            fields = {"partition_index": key[1], "high_watermark": end, "records": records}
            data = struct(RESPONSE, version, "PartitionData", **fields)
            topics.setdefault(key[0], []).append(data)
        return self._frame(version, request, 0, session_id, topics), total

    def _error(self, version: int, request: Any, error_code: int) -> tuple[bytes, int]:
        return self._frame(version, request, error_code, 0, {}), 0

    def _frame(
        self, version: int, request: Any, error_code: int, session_id: int, topics: dict[int, list[Any]]
    ) -> bytes:
        entries = []
        for topic, partitions in topics.items():
            fields = {"topic": f"t{topic}", "topic_id": topic_id(topic), "partitions": partitions}
            entries.append(struct(RESPONSE, version, "FetchableTopicResponse", **fields))
        message = RESPONSE(version=version, error_code=error_code, session_id=session_id, responses=entries)
        return framed(message, correlation_id=request.header.correlation_id)


@dataclass
class Follower:
    """One fetcher thread: what it wants, where it is, and its session."""

    version: int = 18
    broker: int = FOLLOWER
    max_bytes: int = MIB
    offsets: dict[Partition, int] = field(default_factory=dict)
    session: dict[Partition, int] = field(default_factory=dict)
    session_id: int = 0
    epoch: int = 0
    correlation_id: int = 0
    batch_bytes: int = 1000
    leader_epoch: int = 5
    sent_epoch: int = 5
    full: bool = True
    sent: set[Partition] = field(default_factory=set)

    def request(self) -> bytes:
        """Make its next request."""
        self.correlation_id += 1
        self.full = self.epoch == 0
        if self.full:
            named, gone = dict(self.offsets), set()
        else:
            same_epoch = self.leader_epoch == self.sent_epoch
            named = {
                key: at
                for key, at in self.offsets.items()
                if not (same_epoch and self.session.get(key) == at)
            }
            gone = set(self.session) - set(self.offsets)
        self.session = dict(self.offsets)
        self.sent = set(self.offsets)
        self.sent_epoch = self.leader_epoch
        topics = [
            self._topic(
                "FetchTopic",
                topic,
                [self._wanted(key[1], at) for key, at in named.items() if key[0] == topic],
            )
            for topic in dict.fromkeys(topic for topic, _ in named)
        ]
        forgotten = [
            self._topic(
                "ForgottenTopic", topic, sorted(partition for number, partition in gone if number == topic)
            )
            for topic in sorted({topic for topic, _ in gone})
        ]
        replica = {"replica_id": self.broker}
        if self.version >= 15:
            state = struct(REQUEST, self.version, "ReplicaState", replica_id=self.broker, replica_epoch=77)
            replica = {"replica_state": state}
        message = REQUEST(
            version=self.version,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=10 * MIB,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
            rack_id="",
            **replica,
        )
        return framed(message, self.correlation_id, f"broker-{self.broker}-fetcher-0")

    def _topic(self, kind: str, topic: int, partitions: list[Any]) -> Any:
        names = {"topic": f"t{topic}", "topic_id": topic_id(topic)}
        return struct(REQUEST, self.version, kind, **names, partitions=partitions)

    def _wanted(self, partition: int, offset: int) -> Any:
        fields = {"current_leader_epoch": self.leader_epoch, "partition_max_bytes": self.max_bytes}
        return struct(
            REQUEST, self.version, "FetchPartition", partition=partition, fetch_offset=offset, **fields
        )

    def take(self, frame: bytes) -> int:
        """Take a response; gives the bytes of records in it.

        Raises:
            SessionError: a follower would begin its session anew.
        """
        response = decoded(RESPONSE, self.version, frame)
        assert response.header.correlation_id == self.correlation_id
        if response.error_code:
            self.epoch = 0
            self.session_id = 0 if response.error_code == 70 else self.session_id
            raise SessionError(f"error {response.error_code}")
        found = {
            (_number(topic), data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }
        if self.full:
            if set(found) != self.sent and found:
                raise SessionError(f"a full response without {self.sent - set(found)}")
            self.session_id, self.epoch = response.session_id, 1 if response.session_id else 0
        else:
            if not set(found) <= self.sent:
                raise SessionError(f"not asked for: {set(found) - self.sent}")
            if response.session_id != self.session_id:
                raise SessionError("another session id")
            self.epoch = self.epoch % 0x7FFFFFFF + 1
        total = 0
        for key, data in found.items():
            size = len(data.records or b"")
            total += size
            if key in self.offsets:
                self.offsets[key] += size // self.batch_bytes
        return total


@dataclass
class Link:
    """One connection between the two, through Sluice."""

    quotas: ReplicationQuotas
    follower: Follower
    leader: Leader
    channel: Channel = field(init=False)
    talk: Playbook = field(init=False)
    asked: bytes = b""  # the request that is under way or waits

    def __post_init__(self) -> None:
        self.connect()

    def connect(self) -> None:
        """Connect anew: the follower begins with a full request."""
        if hasattr(self, "channel"):
            self.channel.close(0)
        self.channel = replication_channel(self.quotas)
        self.talk = Playbook(self.channel)
        self.follower.epoch = 0

    def send(self, now_ms: int) -> bytes | int | None:
        """Let the follower send; gives what the leader gets, or until when it waits; None: it got a response here."""
        self.asked = self.follower.request()
        return self.show(self.asked, now_ms)

    def show(self, data: bytes, now_ms: int) -> bytes | int | None:
        """Show the channel a request, or b"" where one has waited."""
        orders = self.talk.orders("client", now_ms, data)
        assert not any(isinstance(order, Ends) for order in orders), orders
        waits = [order.until_ms for order in orders if isinstance(order, Wait)]
        if waits:
            return waits[0]
        sent = b"".join(order.data for order in orders if isinstance(order, Pass | Insert))
        if sent:
            return sent
        inserted = self.talk.orders("broker", now_ms, b"")
        response = b"".join(order.data for order in inserted if isinstance(order, Insert))
        self.follower.take(response)
        return None

    def relay(self, response: bytes, now_ms: int, piece_bytes: int = 1 << 30) -> int:
        """Bring the follower a response, cut into pieces; gives its bytes of records."""
        got = b""
        for start in range(0, len(response), piece_bytes):
            orders = self.talk.orders("broker", now_ms, response[start : start + piece_bytes])
            assert not any(isinstance(order, Ends) for order in orders), orders
            got += b"".join(order.data for order in orders if isinstance(order, Pass | Insert))
        assert len(got) == len(response), "responses keep their length"
        return self.follower.take(got)

    def round(self, now_ms: int) -> int | None:
        """Send and respond at once; gives the bytes that came, None where it waits or got a response here."""
        sent = self.send(now_ms)
        if not isinstance(sent, bytes):
            return None
        response, _ = self.leader.respond(self.follower.version, sent)
        return self.relay(response, now_ms)


def _named(request: Any) -> dict[Partition, Any]:
    return {
        (_number(topic), entry.partition): entry for topic in request.topics for entry in topic.partitions
    }


def _number(topic: Any) -> int:
    if getattr(topic, "topic_id", None):
        return int(topic.topic_id.int)
    return int(str(topic.topic)[1:])
