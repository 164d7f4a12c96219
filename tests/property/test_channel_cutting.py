"""However both byte streams are cut, the same bytes come out and the same is decided.

The judge is the uncut run; what an uncut run gives is the business of the dialogues in tests/unit/proxy/channel.
"""

import struct
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.messages.fetch_session import SessionTable
from proxy.channel import Channel, ChannelSettings, Head, Row, Tap, complete_frame
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions, Mode, Policy
from tests.support.frames import fetch, fetch_response, heartbeat, join_group, produce, request, some_response
from tests.support.memory_shell import MemoryShell
from tests.support.playbook import engine_of, gateway_address, owed_of, stats_of
from tests.unit.protocol.kafka_frames import RESPONSES, framed
from tests.unit.protocol.kafka_frames import struct as entry
from tests.unit.proxy.channel.test_captured import Rows

CUTTINGS: Final = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
PIECES: Final = st.lists(st.one_of(st.integers(1, 20), st.integers(1, 3000)), min_size=1, max_size=40)
PRODUCE, FETCH, LIST_OFFSETS, METADATA = range(4)
NAMES: Final = st.sampled_from(["a", "b", None])


@st.composite
def requests(draw: st.DrawFn) -> list[bytes]:
    """What one client might send, correlation ids counted up."""
    sent = []
    for number in range(draw(st.integers(1, 12))):
        client_id = draw(NAMES)
        kind = draw(st.sampled_from(["produce", "fetch", "metadata", "group", "other"]))
        if kind == "produce":
            # Of larger ones it matters how much is here when they are decided on (quotas.limiters.announced).
            size, acks = draw(st.integers(100, 20_000)), draw(st.sampled_from([-1, 0, 1]))
            version = draw(st.sampled_from([3, 8, 9, 10, 13]))
            sent.append(produce(version, size, correlation_id=number, client_id=client_id, acks=acks))
        elif kind == "fetch":
            version = draw(st.sampled_from([4, 7, 11, 12, 16, 18]))
            epoch = draw(st.sampled_from([-1, 0, 1, 2]))
            session = 7 if version >= 7 and epoch > 0 else 0
            sent.append(
                fetch(
                    version,
                    correlation_id=number,
                    client_id=client_id,
                    max_bytes=draw(st.sampled_from([100, 20_000, 1 << 30])),
                    session_id=session,
                    session_epoch=epoch if version >= 7 else -1,
                )
            )
        elif kind == "metadata":
            version = draw(st.sampled_from([0, 9, 13]))
            sent.append(request(METADATA, version, size=60, correlation_id=number, client_id=client_id))
        elif kind == "group":
            join = join_group(9, 30_000, correlation_id=number)
            sent.append(draw(st.sampled_from([join, heartbeat(correlation_id=number)])))
        else:
            size = draw(st.integers(30, 3000))
            sent.append(request(LIST_OFFSETS, 7, size=size, correlation_id=number, client_id=client_id))
    return sent


def broker(sizes: list[int]) -> Callable[[bytes], bytes]:
    """A broker whose responses to Fetches have these sizes, in turn."""
    response = 0

    def respond(asked: bytes) -> bytes:
        nonlocal response
        key, version, correlation_id = struct.unpack_from(">hhi", asked, 4)
        response += 1
        size = sizes[response % len(sizes)]
        if key == PRODUCE:
            return produce_response(asked, version, correlation_id)
        if key == FETCH and version >= 16:
            return with_addresses(version, correlation_id, size)
        if key == FETCH:
            return fetch_response(version, 60 + size, correlation_id=correlation_id)
        if key == METADATA:
            return metadata(version, correlation_id, size)
        return some_response(20 + size, correlation_id=correlation_id)

    return respond


def produce_response(asked: bytes, version: int, correlation_id: int) -> bytes:
    (client_id_length,) = struct.unpack_from(">h", asked, 12)
    # Behind the client id: an empty tag section and a null in one byte each, or a null in two.
    acks_at = 14 + max(0, client_id_length) + 2
    if struct.unpack_from(">h", asked, acks_at)[0] == 0:
        return b""
    cls = RESPONSES[PRODUCE]
    nodes = [entry(cls, version, "NodeEndpoint", node_id=1, host="h", port=9)] if version >= 10 else []
    return framed(cls(version=version, node_endpoints=nodes), correlation_id=correlation_id)


def with_addresses(version: int, correlation_id: int, records: int) -> bytes:
    cls = RESPONSES[FETCH]
    partitions = [
        entry(cls, version, "PartitionData", partition_index=number, records=b"r" * (records // 2))
        for number in range(2)
    ]
    topic = entry(cls, version, "FetchableTopicResponse", topic_id=uuid.UUID(int=1), partitions=partitions)
    node = entry(cls, version, "NodeEndpoint", node_id=2, host="broker-2.example.com", port=9092, rack="r")
    return framed(
        cls(version=version, responses=[topic], node_endpoints=[node]), correlation_id=correlation_id
    )


def metadata(version: int, correlation_id: int, topics: int) -> bytes:
    cls = RESPONSES[METADATA]
    nodes = [
        entry(cls, version, "MetadataResponseBroker", node_id=node, host="internal", port=9092)
        for node in (1, 2, 99)
    ]
    listed = [entry(cls, version, "MetadataResponseTopic", partitions=[]) for _ in range(topics % 50)]
    for topic in listed:
        topic.name = "topic"
    return framed(cls(version=version, brokers=nodes, topics=listed), correlation_id=correlation_id)


def relayed(
    sent: list[bytes],
    sizes: list[int],
    pieces: list[int],
    options: EngineOptions,
    gateway: bool = True,
    spent: int = 0,
    *,
    responding: bool = True,
    spent_us: int | None = None,
    rows: Rows | None = None,
) -> MemoryShell:
    """The whole conversation, cut into these pieces, over and over; another channel has spent some quota before.

    With `spent_us` there is a request quota, too.
    """
    quotas = StaticQuotas(producer_default=3000, consumer_default=2000)
    entries = {} if spent_us is None else {Entity(client_id=DEFAULT): {"request_percentage": 1.0}}
    engine = Engine(options, Definitions(entries, static=quotas))
    for client_id in ("a", "b", "") if spent_us is not None else ():
        engine.client("ANONYMOUS", client_id, 1).requests.record(spent_us or 0, 0)
    for client_id in ("a", "b", "") if spent else ():
        client = engine.client("ANONYMOUS", client_id, 1)
        client.produce.produce(client.produce.flow(), spent, 0)
        client.fetch.fetched(client.fetch.flow(), spent, 0)
    place = ChannelSettings(
        broker=1, address_map=gateway_address if gateway else None, frame_bytes_max=1_000_000
    )
    tap = None if rows is None else Tap(rows, 1, "10.0.0.1", "clients", "blank")
    channel = Channel(place, engine, SessionTable(100), Stats(), tap)
    respond = broker(sizes) if responding else lambda _asked: b""
    return MemoryShell(channel, respond, b"".join(sent), pieces).run()


def decided(shell: MemoryShell) -> object:
    """Everything that was decided, in comparable form."""
    engine, stats, now_ms = engine_of(shell.channel), stats_of(shell.channel), shell.now_ms
    views = [
        view._replace(byte_rate=0.0) for view in (*engine.views(now_ms), *engine.views(now_ms, "requests"))
    ]
    return (shell.waits, views, owed_of(shell.channel), stats.fetches_answered, Counter(stats.requests))


SIZES: Final = st.lists(st.integers(0, 20_000), min_size=1, max_size=5)


def judge(whole: MemoryShell, cut: MemoryShell, sent: list[bytes]) -> None:
    """Expect the same bytes and decisions of both, and a response to each request that is owed one, in order."""
    assert cut.requests.out == whole.requests.out
    assert cut.responses.out == whole.responses.out
    assert decided(cut) == decided(whole)
    owed = [correlation_id(asked) for asked in sent if not silent(asked)]
    response = [struct.unpack_from(">i", got, 4)[0] for got in frames(bytes(cut.responses.out))]
    assert response == owed[: len(response)]
    assert cut.requests.refused or len(response) == len(owed)


@pytest.mark.parametrize("gateway", [True, False])
@pytest.mark.parametrize(
    "options",
    [EngineOptions(), EngineOptions(policy="schedule"), EngineOptions(mode="observe")],
    ids=["kip13", "schedule", "observe"],
)
@CUTTINGS
@given(sent=requests(), sizes=SIZES, pieces=PIECES, spent=st.sampled_from([0, 40_000]))
def test_any_cutting_gives_the_same_bytes_and_decisions(
    gateway: bool, options: EngineOptions, sent: list[bytes], sizes: list[int], pieces: list[int], spent: int
) -> None:
    whole, cut = (relayed(sent, sizes, how, options, gateway, spent) for how in ([], pieces))
    judge(whole, cut, sent)


@pytest.mark.parametrize("gateway", [True, False])
@pytest.mark.parametrize("mode", ["enforce", "observe"])
@CUTTINGS
@given(
    sent=requests(),
    sizes=SIZES,
    pieces=PIECES,
    spent=st.sampled_from([0, 40_000]),
    spent_us=st.sampled_from([0, 120_000, 10_000_000]),
)
def test_any_cutting_gives_the_same_under_a_request_quota(
    gateway: bool,
    mode: Mode,
    sent: list[bytes],
    sizes: list[int],
    pieces: list[int],
    spent: int,
    spent_us: int,
) -> None:
    options = EngineOptions(mode=mode)
    whole, cut = (
        relayed(sent, sizes, how, options, gateway, spent, spent_us=spent_us) for how in ([], pieces)
    )
    judge(whole, cut, sent)


@CUTTINGS
@given(sent=requests(), sizes=SIZES, pieces=PIECES)
def test_sidecar_that_only_observes_changes_nothing(
    sent: list[bytes], sizes: list[int], pieces: list[int]
) -> None:
    shell = relayed(sent, sizes, pieces, EngineOptions(mode="observe"), gateway=False)
    respond = broker(sizes)
    assert shell.requests.out == b"".join(sent)
    assert shell.responses.out == b"".join(map(respond, sent))


@pytest.mark.parametrize("gateway", [True, False])
@pytest.mark.parametrize("policy", ["kip13", "schedule"])
@settings(CUTTINGS, max_examples=10)
@given(
    sent=requests(),
    sizes=SIZES,
    pieces=PIECES,
    spent=st.sampled_from([0, 40_000]),
    spent_us=st.sampled_from([None, 120_000]),
)
def test_capture_changes_nothing_and_has_a_row_for_every_request(
    gateway: bool,
    policy: Policy,
    sent: list[bytes],
    sizes: list[int],
    pieces: list[int],
    spent: int,
    spent_us: int | None,
) -> None:
    options = EngineOptions(policy=policy)
    plain = relayed(sent, sizes, pieces, options, gateway, spent, spent_us=spent_us)
    rows = Rows()
    captured = relayed(sent, sizes, pieces, options, gateway, spent, spent_us=spent_us, rows=rows)
    assert captured.requests.out == plain.requests.out
    assert captured.responses.out == plain.responses.out
    assert decided(captured) == decided(plain)
    made = sorted(rows.rows, key=lambda row: int(row[Row.SEQ]))
    if captured.requests.refused:
        sent = sent[: len(made)]  # what is refused is the client's to send again
    assert [row[Row.SEQ] for row in made] == list(range(len(sent)))
    assert [row[Row.HEAD][Head.REQUEST_BYTES] for row in made] == [len(asked) - 4 for asked in sent]
    kept = [complete_frame(row[Row.FRAME], row[Row.HEAD][Head.REQUEST_BYTES]) for row in made]
    assert all(len(frame) in (0, len(asked)) for frame, asked in zip(kept, sent, strict=True))
    response = [row for row in made if row[Row.RESPONSE_BYTES] >= 0]
    assert len(response) == sum(not silent(asked) for asked in sent)


def frames(stream: bytes) -> list[bytes]:
    found = []
    while stream:
        (length,) = struct.unpack_from(">i", stream)
        found.append(stream[: 4 + length])
        stream = stream[4 + length :]
    return found


def correlation_id(asked: bytes) -> int:
    return int(struct.unpack_from(">i", asked, 8)[0])


def silent(asked: bytes) -> bool:
    key, version = struct.unpack_from(">hh", asked, 4)
    return key == PRODUCE and not produce_response(asked, version, 0)
