"""The frames that cost most by byte: all elements as small as their layout allows, up to the size that is asked for.

Each case is a channel, what goes before, and one frame for one of its directions. `run` shows it as the shell does, in
reads of 64 KiB, runs its jobs, and says what each step took of the thread's CPU time.
"""

import gc
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import thread_time_ns
from typing import Final, NamedTuple

from protocol import api
from protocol.errors import WireError
from protocol.messages.fetch_session import SessionTable
from protocol.messages.replica_session import PARTITIONS_MAX
from protocol.messages.telemetry import METRICS_BYTES_MAX, STEPS_MAX, TELEMETRY_BYTES_MAX
from protocol.primitives import uvarint_bytes
from proxy.channel import MORE, PASS, REPLACE, Channel, Direction, Job, PeerError
from proxy.channel.errors import REPLICA_FETCH_BYTES_MAX
from proxy.channel.settings import OngoingMoves
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.replication.replication_quotas import (
    BrokerLimits,
    ReplicationOptions,
    ReplicationQuotas,
    ThrottledReplicas,
    parse_replicas,
)
from tests.support import pushes
from tests.support.frames import frame, request
from tests.support.playbook import channel_machine, engine_of, ordered_job
from tests.support.replicas import FOLLOWER, replication_channel
from tests.support.streams_frames import Part, joining

FETCH: Final = 1
VERSION: Final = 17
SESSION: Final = 77
TOPIC: Final = bytes(15) + b"\1"
FETCH_BYTES: Final = 33


def throttled(rate: float | None) -> Channel:
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
    return _replica_asked(epoch, b"\2" + TOPIC + uvarint_bytes(count + 1) + entries + b"\0" + b"\1")


def forgetting(count: int, *, epoch: int) -> bytes:
    """A Fetch that forgets so many partitions."""
    entries = b"".join(index.to_bytes(4, "big") for index in range(count))
    return _replica_asked(epoch, b"\1" + b"\2" + TOPIC + uvarint_bytes(count + 1) + entries + b"\0")


def _replica_asked(epoch: int, topics: bytes) -> bytes:
    head = struct.pack(">iiibii", 500, 1, 1 << 20, 0, SESSION if epoch else 0, epoch)
    tail = b"\1" + b"\1" + b"\1\x0d" + struct.pack(">iq", FOLLOWER, 9) + b"\0"
    return request(FETCH, VERSION, head + topics + tail)


def response_of(count: int, *, high_watermark: int = 10, records: int = 0) -> bytes:
    """A response that names so many partitions, each with a batch of so many bytes."""
    batch = struct.pack(">qi", 0, records - 12) + bytes(records - 12) if records else b""
    rest = struct.pack(">hqqq", 0, high_watermark, high_watermark, 0) + b"\1" + struct.pack(">i", -1)
    rest += uvarint_bytes(records + 1) + batch + b"\0"
    partitions = b"".join(index.to_bytes(4, "big") + rest for index in range(count))
    head = b"\0\0\0\1" + b"\0" + struct.pack(">ihi", 0, 0, SESSION)
    topics = b"\2" + TOPIC + uvarint_bytes(count + 1) + partitions + b"\0" if count else b"\1"
    return frame(head + topics + b"\0")


KIB: Final = 1024
MIB: Final = 1024 * 1024
READ_BYTES: Final = 64 * KIB
_LIMIT: Final = 1 << 30

Limits = dict[str, float]


@dataclass
class Taken:
    """What one frame took.

    Attributes:
        loop_ms: the longest call of the direction.
        beside_ms: the longest job.
        job: that one; None where there was none.
        steps: calls of the direction.
        ended: why the connection ended, "" where it did not.
    """

    loop_ms: float = 0.0
    beside_ms: float = 0.0
    job: Job | None = None
    steps: int = 0
    ended: str = ""


class Talk(NamedTuple):
    """A channel, and what is said to it: what goes before on either side, then the frame that is measured."""

    channel: Channel
    before: list[tuple[str, bytes]]
    direction: str
    frame: bytes


@dataclass(frozen=True)
class Case:
    """One API's worst frame; `make` is given how large it is to be, `ends` is why it ends its connection if it does."""

    name: str
    what: str
    bytes_max: int
    make: Callable[[int], Talk] = field(repr=False)
    ends: str = ""


def run(talk: Talk) -> Taken:
    """Show everything, and time the last frame; the garbage of the whole process is not its own."""
    for who, data in talk.before:
        _show(talk.channel, who, data, Taken())
    taken = Taken()
    gc.disable()
    try:
        with suppress(PeerError, WireError):
            _show(talk.channel, talk.direction, talk.frame, taken)
    finally:
        gc.enable()
    return taken


def _show(channel: Channel, who: str, data: bytes, taken: Taken) -> None:
    direction = channel.requests if who == "client" else channel.responses
    kept = bytearray()
    at = 0
    while at < len(data):
        piece = data[at : at + READ_BYTES]
        at += len(piece)
        if direction.verdict.passthrough > 0 and not kept:
            count = min(direction.verdict.passthrough, len(piece))
            direction.passed(count, 0)
            piece = piece[count:]
        kept += piece
        if len(kept) >= direction.verdict.need or direction.verdict.order != MORE:
            kept = _shown(direction, kept, taken)


def _shown(direction: Direction, kept: bytearray, taken: Taken) -> bytearray:
    start = 0
    while True:
        began = thread_time_ns()
        try:
            count = direction.receive(kept, start, len(kept), 0).passing
        except (PeerError, WireError) as error:
            taken.ended = error.cause if isinstance(error, PeerError) else "malformed"
            raise
        finally:
            taken.loop_ms = max(taken.loop_ms, (thread_time_ns() - began) / 1e6)
            taken.steps += 1
        start += count
        if direction.verdict.order == REPLACE:
            start += direction.verdict.drop
            continue
        job = ordered_job(direction)
        if job is None:
            return bytearray() if direction.verdict.order == PASS else kept[start:]
        began = thread_time_ns()
        job.run()
        spent_ms = (thread_time_ns() - began) / 1e6
        if spent_ms > taken.beside_ms:
            taken.beside_ms, taken.job = spent_ms, job


def _channel(
    limits: Limits | None = None,
    *,
    gateway: bool = False,
    moves: bool = False,
    engine: Engine | None = None,
    sessions: SessionTable | None = None,
) -> Channel:
    """A channel whose client ids have these quotas."""
    if engine is None:
        engine = Engine(EngineOptions(), Definitions({Entity(client_id=DEFAULT): limits} if limits else {}))
    return channel_machine(
        engine,
        gateway=gateway,
        sessions=sessions,
        frame_bytes_max=_LIMIT,
        reassignments=OngoingMoves() if moves else None,
    )


def _asked(key: int, version: int, fields: bytes) -> bytes:
    return request(key, version, fields)


def _array(element: bytes, size: int, most: int = 1_000_000) -> bytes:
    """So many elements as have about `size` bytes, behind their compact count."""
    count = max(min(size // len(element), most), 1)
    return uvarint_bytes(count + 1) + element * count


def _numbered(count: int, element: Callable[[int], bytes]) -> bytes:
    """Different elements behind their compact count."""
    return uvarint_bytes(count + 1) + b"".join(map(element, range(count)))


def _response(fields: bytes, *, tags: bool = True) -> bytes:
    return frame(b"\0\0\0\1" + (b"\0" if tags else b"") + fields)


_FETCH_HEAD: Final = struct.pack(">iiiibii", -1, 500, 1, 1 << 20, 0, 7, 5)
_MUTATIONS: Final = {"controller_mutation_rate": 1e9}


def _join(size: int) -> Talk:
    named = request(api.JOIN_GROUP, 9)[4:-1]
    return Talk(_channel(), [], "client", frame(named + uvarint_bytes(size // 2) + bytes(size)))


def _fetch(version: int, fields: Callable[[int], bytes]) -> Callable[[int], Talk]:
    """An incremental Fetch over the quota, which gets a response here and is merged into its session's changes."""

    def make(size: int) -> Talk:
        head = _FETCH_HEAD[4 * (version >= 15) :]
        sessions = SessionTable(100)
        over = _channel({"consumer_byte_rate": 1000.0}, sessions=sessions)
        _show(over, "client", _asked(api.FETCH, version, head + bytes(8)), Taken())
        _show(over, "broker", _response(bytes(100_000)), Taken())
        channel = _channel(engine=engine_of(over), sessions=sessions)
        return Talk(channel, [], "client", _asked(api.FETCH, version, head + fields(size)))

    return make


def _mutation(key: int, version: int, rest: bytes, tail: bytes = bytes(6)) -> Callable[[int], Talk]:
    """Topics of different names, as many as are taken, each with this behind its name."""

    def make(size: int) -> Talk:
        names = [b"\x05%04x" % index for index in range(min(size // 6, 10_000))]
        topics = b"".join(name + rest for name in names)
        asked = _asked(key, version, uvarint_bytes(len(names) + 1) + topics + tail)
        return Talk(_channel(_MUTATIONS), [], "client", asked)

    return make


def _created_configs(size: int) -> Talk:
    topic = b"\x02t" + struct.pack(">ih", 1, 1) + b"\x01" + _array(b"\x01\x01\0", size) + b"\0"
    return Talk(_channel(_MUTATIONS), [], "client", _asked(api.CREATE_TOPICS, 7, b"\x02" + topic + bytes(6)))


def _gateway(
    key: int, version: int, response: Callable[[int], bytes], *, tags: bool = True, asked: bytes = b""
) -> Callable[[int], Talk]:
    def make(size: int) -> Talk:
        before = [("client", _asked(key, version, asked))]
        return Talk(_channel(gateway=True), before, "broker", _response(response(size), tags=tags))

    return make


def _mutated(key: int, version: int, element: bytes, limits: Limits) -> Callable[[int], Talk]:
    """A response to a request of as many topics as are taken, each of another name."""

    def make(size: int) -> Talk:
        names = [b"\x05%04x" % index for index in range(min(size // len(element), 10_000))]
        asked = b"".join(name + _ONE_TOPIC[key][2:] for name in names)
        response_of = b"".join(name + element[2:] for name in names)
        count = uvarint_bytes(len(names) + 1)
        before = [("client", _asked(key, version, count + asked + bytes(6)))]
        return Talk(_channel(limits), before, "broker", _response(bytes(4) + count + response_of + b"\0"))

    return make


_ONE_TOPIC: Final = {api.CREATE_TOPICS: b"\x02t" + struct.pack(">ih", 1, 1) + b"\x01\x01\0"}
# Name, error, message, partitions, factor, no configs, tags.
_CREATED: Final = b"\x02t" + bytes(16) + b"\0\0" + b"\0" + struct.pack(">ih", 1, 1) + b"\x01" + b"\0"


def _listed(size: int) -> Talk:
    asked = _asked(api.LIST_PARTITION_REASSIGNMENTS, 1, bytes(4) + _array(b"\x01\0\0", size) + b"\0")
    return Talk(_channel(moves=True), [], "client", asked)


def _listed_response(size: int) -> Talk:
    asked = _asked(api.LIST_PARTITION_REASSIGNMENTS, 1, bytes(4) + b"\0\0")
    one = b"\0\0\0\1" + b"\x06" + bytes(range(20)) + b"\x01\x01" + b"\0"  # of more there were no room
    partitions = _array(one, size, PARTITIONS_MAX)
    response = _response(bytes(6) + b"\0" + b"\x02" + b"\x02t" + partitions + b"\0" + b"\0")
    return Talk(_channel(moves=True), [("client", asked)], "broker", response)


def _walked_fetch(version: int, fields: Callable[[int], bytes]) -> Callable[[int], Talk]:
    def make(size: int) -> Talk:
        before = [("client", _asked(api.FETCH, version, bytes(40)))]
        response = _response(bytes(10) + fields(size))
        return Talk(_channel(gateway=True), before, "broker", response)

    return make


def _topic_quota() -> Channel:
    made = Engine(EngineOptions(), Definitions({Entity(topic="t"): {"producer_byte_rate": 1e9}}))
    return channel_machine(made, frame_bytes_max=_LIMIT)


def _charged_fetch(version: int, topic: Callable[[int], bytes]) -> Callable[[int], Talk]:
    """A response whose topics all have the default topic's quota, and are over it."""

    def make(size: int) -> Talk:
        limits = {"consumer_byte_rate": 1.0}
        engine = Engine(EngineOptions(), Definitions({Entity(topic=DEFAULT): limits}))
        response = _response(bytes(10) + _numbered(size // len(topic(0)), topic) + b"\0")
        before = [("client", _asked(api.FETCH, version, bytes(40)))]
        return Talk(channel_machine(engine), before, "broker", response)

    return make


def _walked_produce(fields: Callable[[int], bytes]) -> Callable[[int], Talk]:
    def make(size: int) -> Talk:
        asked = _asked(api.PRODUCE, 9, b"\0" + struct.pack(">hi", -1, 0) + fields(size))
        return Talk(_topic_quota(), [], "client", asked)

    return make


def _tags(size: int) -> bytes:
    count = min(size // 2, 10_000)
    return uvarint_bytes(count) + bytes(2 * count)


def _sized(size: int) -> Talk:
    """Sluice's own question on a client's connection: what a DeleteTopics is about."""
    asked = _asked(api.DELETE_TOPICS, 5, b"\x02\x02t" + b"\0" + bytes(5))
    # Version 4: error, name, internal; of each partition error, index, leader, no replicas, none in sync.
    count = size // 18
    topic = b"\0\0" + b"\0\1t" + b"\0" + struct.pack(">i", count) + bytes(18) * count
    response = frame(b"\0\0\0\1" + bytes(4) + bytes(4) + b"\xff\xff" + bytes(4) + b"\0\0\0\1" + topic)
    return Talk(_channel(_MUTATIONS), [("client", asked)], "broker", response)


def _joining(size: int) -> Talk:
    """A chain of subtopologies, each of which waits for the next one's partitions."""
    parts = min(size // 57, 2490)
    chain = [Part(sinks=["r0"], sources=["words"])]
    chain += [Part(repartition={f"r{at}": 0}, sinks=[f"r{at + 1}"]) for at in range(parts)]
    asked = joining(*reversed(chain))
    sizes = frame(b"\0\0\0\1" + bytes(8) + b"\xff\xff" + bytes(8))
    return Talk(_channel(_MUTATIONS), [("client", asked), ("broker", sizes)], "client", asked)


def _metadata_asked(size: int) -> Talk:
    asked = _asked(api.METADATA, 9, _array(b"\x01\0", size) + bytes(4))
    return Talk(_channel(_MUTATIONS), [], "client", asked)


def _rejected(size: int) -> Talk:
    names = [b"\x05%04x" % index for index in range(min(size // 15, 10_000))]
    topics = b"".join(name + _ONE_TOPIC[api.CREATE_TOPICS][2:] for name in names)
    asked = _asked(api.CREATE_TOPICS, 7, uvarint_bytes(len(names) + 1) + topics + bytes(6))
    first = _asked(
        api.CREATE_TOPICS, 7, b"\x02" + b"\x02t" + struct.pack(">ih", 9999, 1) + b"\x01\x01\0" + bytes(6)
    )
    response = _response(bytes(4) + b"\x02" + _CREATED + b"\0")
    return Talk(
        _channel({"controller_mutation_rate": 1.0}),
        [("client", first), ("broker", response)],
        "client",
        asked,
    )


def _about_topics(topic: Callable[[bytes], bytes], size: int) -> Talk:
    """A Metadata response of version 9 that is looked through; `topic` is given a name."""
    asked = _asked(api.METADATA, 9, b"\x02\x02t\0" + b"\1" + bytes(3))
    count = size // len(topic(b"\x06abcde"))
    topics = b"".join(topic(b"\x06%05x" % index) for index in range(count))
    response = _response(bytes(4) + b"\x01" + b"\0" + bytes(4) + uvarint_bytes(count + 1) + topics + bytes(5))
    return Talk(_channel(_MUTATIONS), [("client", asked)], "broker", response)


def _looked_through(size: int) -> Talk:
    partition = bytes(10) + bytes(4) + b"\1\1\1" + b"\0"
    return _about_topics(lambda name: b"\0\0" + name + b"\0" + b"\x02" + partition + bytes(5), size)


def _unknown(size: int) -> Talk:
    return _about_topics(lambda name: b"\0\3" + name + b"\0" + b"\x01" + bytes(5), size)


def _follower(rate: float | None) -> Callable[[int], Talk]:
    """A follower's first Fetch, which names everything."""
    return lambda size: Talk(throttled(rate), [], "client", fetched(_count(size)))


def _followed(
    rate: float | None, fetch: Callable[[int], bytes], response: Callable[[int], bytes] | None = None
) -> Callable[[int], Talk]:
    """A later one, of a follower that is behind with everything; or the response to it."""

    def make(size: int) -> Talk:
        count = _count(size)
        before = [("client", fetched(count)), ("broker", response_of(count))]
        asked = fetch(count)
        if response is None:
            return Talk(throttled(rate), before, "client", asked)
        return Talk(throttled(rate), [*before, ("client", asked)], "broker", response(count))

    return make


def _count(size: int) -> int:
    return size // FETCH_BYTES


def _pushed(compression: int) -> Callable[[int], Talk]:
    """Three pushes at once: as many fields as are looked at, what does not compress, and what does up to the bound."""

    def make(size: int) -> Talk:
        noise = Random(1).randbytes(min(size, TELEMETRY_BYTES_MAX) - 2 * KIB)
        # An empty gauge is a field, its length, and a message that is begun.
        name = pushes.field(1, pushes.PRODUCE_AVG.encode())
        many = pushes.field(2, name + pushes.field(5, b"") * STEPS_MAX)
        front = pushes.field(1, pushes.field(2, many)) + pushes.field(9, noise)
        metrics = front + pushes.field(9, (b"e." * METRICS_BYTES_MAX)[: METRICS_BYTES_MAX - len(front) - 4])
        body = pushes.push_body(pushes.compressed(metrics, compression), compression)
        asked = [request(api.PUSH_TELEMETRY, 0, body, client_id=name) for name in "abc"]
        return Talk(_channel(), [], "client", b"".join(asked))

    return make


_NODE: Final = struct.pack(">i", 1) + b"\x02b" + struct.pack(">i", 9)
_NO_PARTITIONS: Final = b"\x02t" + b"\x01" + b"\0"

_EPOCH_1: Final = partial(fetched, epoch=1, offset=1)
_DESCRIBED: Final = bytes(4) + b"\0\0" + b"\0" + b"\1" + b"\x02c" + bytes(4)

CASES: Final = (
    Case("JoinGroup 9", "header tags", 16 * MIB, _join, "malformed"),
    Case("Fetch 12", "topics without partitions", 2 * MIB,
         _fetch(12, lambda n: _array(b"\x01\x01\0", n) + b"\x01\x01\0")),
    Case("Fetch 17", "forgotten partitions", 2 * MIB, _fetch(17, lambda n: (
        b"\x01" + b"\x02" + bytes(16) + _array(bytes(4), n, 12_000) + b"\0" + b"\x01\0"))),
    Case("Fetch 17", "partitions", 2 * MIB, _fetch(17, lambda n: (
        b"\x02" + bytes(16) + _numbered(min(n // 33, 12_000), lambda i: i.to_bytes(4, "big") + bytes(29))
        + b"\0\x01\x01\0"))),
    Case("Metadata 9", "names, under a mutation quota", MIB, _metadata_asked),
    Case("CreateTopics 7", "topics", 4 * MIB,
         _mutation(api.CREATE_TOPICS, 7, _ONE_TOPIC[api.CREATE_TOPICS][2:])),
    Case("CreateTopics 7", "configs", 3 * MIB, _created_configs),
    Case("CreatePartitions 3", "topics", 4 * MIB, _mutation(api.CREATE_PARTITIONS, 3, bytes(4) + b"\x01\0")),
    Case("DeleteTopics 5", "topics", 4 * MIB, _mutation(api.DELETE_TOPICS, 5, b"", tail=bytes(5))),
    Case("StreamsGroupHeartbeat 1", "a chain of subtopologies", MIB, _joining),
    Case("ListPartitionReassignments 1", "topics", MIB, _listed),
    Case("ListPartitionReassignments 1", "response", 16 * MIB, _listed_response),
    *(Case("PushTelemetry 0", f"three at once, {name}", TELEMETRY_BYTES_MAX, _pushed(compression))
      for name, compression in (("gzip", pushes.GZIP), ("zstd", pushes.ZSTD))),
    Case("FindCoordinator 4", "response", 2 * MIB, _gateway(api.FIND_COORDINATOR, 4, lambda n: (
        bytes(4) + _array(b"\x02g" + _NODE + bytes(4), n) + b"\0"))),
    Case("DescribeCluster 1", "response", MIB, _gateway(api.DESCRIBE_CLUSTER, 1, lambda n: (
        _DESCRIBED + _array(_NODE + b"\0\0", n) + bytes(5)))),
    Case("Metadata 12", "brokers of a response", MIB, _gateway(api.METADATA, 12, lambda n: (
        bytes(4) + _array(_NODE + b"\0\0", n) + b"\0" + bytes(4) + b"\x01\0"))),
    Case("Metadata 4", "a response to Sluice", 8 * MIB, _sized),
    Case("ApiVersions 3", "response", 64 * KIB, _gateway(api.API_VERSIONS, 3, lambda n: (
        b"\0\0" + _array(struct.pack(">hhh", 1, 0, 9) + b"\0", n) + bytes(5)), tags=False)),
    Case("Produce 10", "response", 3 * MIB, _gateway(api.PRODUCE, 10, lambda n: (
        _array(b"\x01\x01\0", n) + bytes(4) + b"\1\0\1\1"), asked=b"\0\0\1" + bytes(6))),
    Case("CreateTopics 7", "response", 8 * MIB, _mutated(api.CREATE_TOPICS, 7, _CREATED, _MUTATIONS)),
    Case("CreateTopics 7", "response, half rejected", 16 * MIB,
         _mutated(api.CREATE_TOPICS, 7, _CREATED, {"controller_mutation_rate": 5000.0 / 11})),
    Case("CreateTopics 7", "rejected topics", 4 * MIB, _rejected),
    Case("Metadata 9", "a response looked through", MIB, _looked_through),
    Case("Metadata 9", "a response of unknown topics", MIB, _unknown),
    Case("Fetch 12 walk", "topics without partitions", 3 * MIB,
         _walked_fetch(16, lambda n: _array(bytes(16) + b"\x01\0", n) + b"\0")),
    Case("Fetch 12 walk", "topics of different names", 3 * MIB,
         _charged_fetch(12, lambda i: b"\x06%05x\1\0" % i)),
    Case("Fetch 13 walk", "topics of unknown ids", 3 * MIB,
         _charged_fetch(13, lambda i: i.to_bytes(16, "big") + b"\1\0")),
    Case("Fetch 16 walk", "tags", 64 * KIB,
         _walked_fetch(16, lambda n: b"\x05" + (bytes(16) + b"\x01" + _tags(20_000)) * 4 + b"\0")),
    Case("Produce 9 walk", "topics without partitions", 3 * MIB,
         _walked_produce(lambda n: _array(_NO_PARTITIONS, n) + b"\0")),
    Case("Produce 9 walk", "topics of different names", 3 * MIB,
         _walked_produce(lambda n: _numbered(n // 8, lambda i: b"\x06%05x\1\0" % i) + b"\0")),
    Case("Produce 9 walk", "empty partitions", 3 * MIB,
         _walked_produce(lambda n: b"\x02\x02t" + _array(bytes(4) + b"\0\0", n) + b"\0\0")),
    *(Case("Fetch 17 of a follower", what, REPLICA_FETCH_BYTES_MAX, make) for what, make in (
        ("everything", _follower(None)),
        ("everything, throttled", _follower(1.0)),
        ("everything, granted", _follower(1e15)),
        ("all have changed", _followed(None, _EPOCH_1)),
        ("all are left out", _followed(0.0, _EPOCH_1)),
        ("all are granted", _followed(1e15, _EPOCH_1)),
        ("all are forgotten", _followed(1e15, lambda n: forgetting(n, epoch=1))),
        ("response for each", _followed(1e15, _EPOCH_1, lambda n: response_of(n, records=100))),
        ("response for none", _followed(1e15, _EPOCH_1, lambda _: response_of(0))),
    )),
)  # fmt: skip


def cases(size: int | None = None) -> Iterator[tuple[Case, Talk]]:
    """Each case with its frame, of its own size or of this one."""
    for case in CASES:
        yield case, case.make(case.bytes_max - 400 if size is None else size)
