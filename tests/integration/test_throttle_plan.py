"""KIP-219 clause by clause, with raw frames whose times are taken: a response at once, then the mute.

kip13 arithmetic for one request of S bytes in a fresh window: the rate is taken over at least (N − 1) samples of
1 s, here ten, so X = (S/10 s − T)/T · 10 s = S/T − 10 s. With T = 10,000 B/s and S = 120,000 B: 2 s.
With several workers a client's first request counts against the share of the worker that it came to.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import (
    METADATA,
    PRODUCE,
    Topic,
    batch,
    describe,
    fetch,
    fetch_request,
    produce_request,
    write,
)
from tests.support.wire import Wire, part, request, response, wired
from tests.support.workers import FIRST_SHARE, WORKERS, one_process
from tests.unit.protocol.kafka_frames import Message

ALTER_CLIENT_QUOTAS = 49
BROKER = 1
BYTES_PER_SECOND = 10_000
WINDOW_SECONDS = 11
REQUEST_BYTES = int(120_000 * FIRST_SHARE)
THROTTLE_SECONDS = REQUEST_BYTES / (BYTES_PER_SECOND * FIRST_SHARE) - 10
# What a busy machine may take for something that happens at once, and be off by for something that is waited for.
AT_ONCE_SECONDS = 1.0
SLACK_SECONDS = 0.9  # the clock runs on while a busy machine does something else
QUOTAS = {"producer_byte_rate": BYTES_PER_SECOND, "consumer_byte_rate": BYTES_PER_SECOND}
Connect = Callable[[str], Wire]


@pytest.fixture(scope="module")
def sluice(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    """kip13 with a very low default quota."""
    settings = SluiceSettings(
        kafka.bootstrap(), quotas={"policy": "kip13"}, client_quotas={"<default>": QUOTAS}
    )
    with SluiceProcess.configured(settings, tmp_path_factory.mktemp("plan")) as process:
        if WORKERS > 1:
            time.sleep(
                WINDOW_SECONDS
            )  # a worker begins with a full window, since its predecessor may have used it
        yield process


@pytest.fixture
def connect(sluice: SluiceProcess) -> Iterator[Connect]:
    """A factory of connections to broker 1 through Sluice, all closed with the test."""
    with ExitStack() as stack:

        def connected(client_id: str) -> Wire:
            wire = Wire(sluice.ports.address(BROKER), client_id)
            stack.callback(wire.close)
            return wire

        yield connected


@pytest.fixture
def client_id() -> str:
    """A client id that was not used before, and so has a window of its own."""
    return f"plan-{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def topic(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    """A topic to produce to: six partitions, two of them led by broker 1."""
    return describe(kafka, create_topic(partitions=6))


@pytest.fixture(scope="module")
def stock(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    """A topic to fetch from: broker 1 leads two partitions, the first empty, the second with a batch of 130 KB."""
    found = describe(kafka, create_topic(partitions=6))
    write(kafka.address(BROKER), found, found.led_by(BROKER)[1], batch([bytes(130_000)]))
    return found


def any_request() -> Message:
    return request(METADATA, 9, topics=[], allow_auto_topic_creation=False)


def large(topic: Topic, *, version: int = 9, acks: int = 1) -> Message:
    """A Produce request of REQUEST_BYTES, but for its few bytes of headers."""
    records = batch([bytes(REQUEST_BYTES - 200)])
    return produce_request(topic, topic.led_by(BROKER)[0], records, version=version, acks=acks)


def overdraw(wire: Wire, stock: Topic) -> None:
    """Fetch one batch that is worth more than the window: 130,000 B / 10,000 B/s − 10 s = 3 s of debt."""
    partition = stock.led_by(BROKER)[1]
    received, _ = fetch(wire, fetch_request(stock, {partition: 0}, version=11), 11)
    assert received.throttle_time_ms == pytest.approx(3_000, abs=1000 * SLACK_SECONDS)


@pytest.mark.parametrize(
    "version", [3, 9, 13]
)  # the first of each layout; all: tests/unit/protocol/test_throttle.py
def test_produce_gets_a_response_at_once_and_is_then_muted(
    connect: Connect, topic: Topic, client_id: str, version: int
) -> None:
    wire = connect(client_id)
    received = wire.ask(large(topic, version=version))
    assert received.seconds < AT_ONCE_SECONDS
    told = response(PRODUCE, version, received.frame).throttle_time_ms / 1000
    assert told == pytest.approx(THROTTLE_SECONDS, abs=SLACK_SECONDS)
    # Muted whatever version it speaks and whether or not it obeys.
    assert wire.ask(any_request()).seconds == pytest.approx(told, abs=SLACK_SECONDS)


def test_produce_without_a_response_is_muted_all_the_same(
    connect: Connect, topic: Topic, client_id: str
) -> None:
    wire = connect(client_id)
    wire.send(large(topic, acks=0))
    assert wire.ask(any_request()).seconds == pytest.approx(THROTTLE_SECONDS, abs=SLACK_SECONDS)


def test_only_the_channel_that_was_throttled_is_muted(connect: Connect, topic: Topic, client_id: str) -> None:
    muted, other = connect(client_id), connect(client_id)
    muted.ask(large(topic))
    assert other.ask(any_request()).seconds < AT_ONCE_SECONDS


@one_process("two connections are at one worker or at two, and each worker counts what passes it")
@pytest.mark.parametrize("version", [4, 7, 12, 13, 18])
def test_throttled_fetch_gets_an_empty_response_at_once(
    connect: Connect, stock: Topic, client_id: str, version: int
) -> None:
    overdrawn, wire = connect(client_id), connect(client_id)
    empty, filled = stock.led_by(BROKER)
    epoch = 0 if version >= 7 else -1
    first, _ = fetch(wire, fetch_request(stock, {empty: 0}, version=version, session_epoch=epoch), version)
    session = first.session_id if version >= 7 else 0
    overdraw(overdrawn, stock)
    message = fetch_request(
        stock, {filled: 0}, version=version, session_id=session, session_epoch=1 if version >= 7 else -1
    )
    received, seconds = fetch(wire, message, version)
    assert seconds < AT_ONCE_SECONDS
    assert received.throttle_time_ms > 0
    assert all(not entry.records for part in received.responses for entry in part.partitions)
    if version >= 7:
        assert (received.error_code, received.session_id) == (0, session)
    wire.send(any_request())
    assert wire.silent(AT_ONCE_SECONDS), "a response although it is muted"


def test_batch_larger_than_the_window_arrives(
    kafka: Cluster, connect: Connect, create_topic: CreateTopic, client_id: str
) -> None:
    found = describe(kafka, create_topic(partitions=6))
    partition = found.led_by(BROKER)[0]
    # 250 KB: the whole window is worth 110 KB.
    write(kafka.address(BROKER), found, partition, batch([bytes(250_000)]))
    wire = connect(client_id)
    offset, deadline = 0, time.monotonic() + 30
    while offset == 0 and time.monotonic() < deadline:
        received, _ = fetch(wire, fetch_request(found, {partition: 0}, version=11, max_wait_ms=100), 11)
        offset = sum(len(entry.records or b"") for part in received.responses for entry in part.partitions)
    assert offset > 250_000


def set_broker_quota(kafka: Cluster, client_id: str, bytes_per_second: float) -> None:
    """Give the brokers a produce quota of their own for one client id, and the news time to spread."""
    operation = part(ALTER_CLIENT_QUOTAS, 0, "OpData", key="producer_byte_rate", value=bytes_per_second)
    entity = part(ALTER_CLIENT_QUOTAS, 0, "EntityData", entity_type="client-id", entity_name=client_id)
    entry = part(ALTER_CLIENT_QUOTAS, 0, "EntryData", entity=[entity], ops=[operation])
    with wired(kafka.address(BROKER)) as wire:
        received = wire.ask(request(ALTER_CLIENT_QUOTAS, 0, entries=[entry], validate_only=False))
    assert response(ALTER_CLIENT_QUOTAS, 0, received.frame).entries[0].error_code == 0
    time.sleep(1.0)


# Of the broker 120,000 B at 8,000 B/s are 5 s by the same arithmetic, at 11,000 B/s 0.9 s; of Sluice they are 2 s.
@pytest.mark.parametrize(("bytes_per_second", "told_by"), [(8_000, 8_000), (11_000, BYTES_PER_SECOND)])
def test_client_is_told_the_larger_of_two_throttle_times(
    kafka: Cluster, connect: Connect, topic: Topic, client_id: str, bytes_per_second: int, told_by: int
) -> None:
    set_broker_quota(kafka, client_id, int(bytes_per_second * FIRST_SHARE))
    received = connect(client_id).ask(large(topic))
    told = response(PRODUCE, 9, received.frame).throttle_time_ms / 1000
    assert told == pytest.approx(REQUEST_BYTES / (told_by * FIRST_SHARE) - 10, abs=AT_ONCE_SECONDS)
