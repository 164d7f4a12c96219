"""Fetch sessions (KIP-227) under throttling: a consumer that sends only what changed loses nothing, ever.

Two model consumers share one quota, so that each meets the other's debt and gets local responses again and again, while
partitions are added and forgotten at random and the connection is changed now and then. What they receive is
compared with what was written. Another connection may be at another worker, which does not know the session: then it
begins again, as at a broker that has forgotten it.
"""

import random
from dataclasses import dataclass, field

import pytest
from kafka.record import MemoryRecords

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.gateway_fixture import gateway_fixture
from tests.support.proxy_process import SluiceProcess
from tests.support.raw_topics import Topic, batch, describe, fetch, fetch_request, write
from tests.support.wire import Wire
from tests.support.workers import WORKERS, one_process

BROKER = 1
PARTITIONS = 12
BATCHES = 60
BATCH_BYTES = 2_000
BYTES_PER_SECOND = 100_000
FETCHES = 240
CLIENT_ID = "sessions"
FORGOTTEN = (70, 71)  # FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH


KIP13 = one_process(
    "a mute is as long as the share of the moment makes it, and two connections that take turns at two workers meet "
    "the least share again and again"
)
sluice = gateway_fixture(
    policies=[pytest.param("kip13", marks=KIP13), "schedule"],
    # The shortest window: kip13 throttles after a second of quota, not after ten.
    quotas={"window_samples": 2},
    client_quotas={CLIENT_ID: {"consumer_byte_rate": BYTES_PER_SECOND}},  # a batch is worth 20 ms
)


@pytest.fixture(scope="module")
def topic(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    """Four partitions on each broker, with batches of one record that says which it is."""
    found = describe(kafka, create_topic(partitions=PARTITIONS))
    for partition in found.led_by(BROKER):
        for index in range(BATCHES):
            value = b"%d-%d" % (partition, index)
            write(kafka.address(BROKER), found, partition, batch([value.ljust(BATCH_BYTES, b".")]))
    return found


@dataclass(slots=True)
class Consumer:
    """Kafka's FetchSessionHandler in small: sends what changed, and knows what it must receive."""

    sluice: SluiceProcess
    topic: Topic
    version: int
    choose: random.Random
    wire: Wire = field(init=False)
    session: int = 0
    epoch: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    throttled: int = 0
    emptied: int = 0
    received: int = 0
    moved: bool = False

    def __post_init__(self) -> None:
        self.offsets = dict.fromkeys(self.topic.led_by(BROKER), 0)
        self.connect()

    def connect(self) -> None:
        self.wire = Wire(self.sluice.ports.address(BROKER), CLIENT_ID)

    def reconnect(self) -> None:
        """Carry on with the same session on another connection, as Kafka allows."""
        self.wire.close()
        self.connect()
        self.moved = True

    def poll(self) -> None:
        """One fetch: some partitions are wanted, others not; only changes are sent."""
        every = sorted(self.offsets)
        wanted = {p: self.offsets[p] for p in self.choose.sample(every, self.choose.randint(1, len(every)))}
        changed = {p: offset for p, offset in wanted.items() if self.known.get(p) != offset}
        forgotten = [p for p in self.known if p not in wanted]
        message = fetch_request(
            self.topic,
            changed if self.epoch else wanted,
            version=self.version,
            session_id=self.session,
            session_epoch=self.epoch,
            forgotten=forgotten if self.epoch else (),
            max_wait_ms=50,
            max_bytes=BATCH_BYTES,
            partition_max_bytes=BATCH_BYTES,
        )
        response, _ = fetch(self.wire, message, self.version)
        # The other worker may respond locally first, while the quota is exceeded.
        if WORKERS > 1 and self.moved and response.error_code in FORGOTTEN:
            self.session, self.epoch, self.known, self.moved = 0, 0, {}, False
            return
        assert response.error_code == 0, (
            f"epoch {self.epoch} of session {self.session}: {response.error_code}"
        )
        assert self.session in {0, response.session_id}
        self.throttled += response.throttle_time_ms > 0
        self.emptied += response.throttle_time_ms > 0 and not response.responses
        self.known = wanted
        if response.session_id:
            self.session, self.epoch = response.session_id, self.epoch + 1
        for found in response.responses:
            for entry in found.partitions:
                self.take(entry.partition_index, bytes(entry.records or b""), entry.error_code)

    def take(self, partition: int, records: bytes, error: int) -> None:
        """Check that these are the very next records of a partition that is wanted."""
        asked = f"partition {partition} from {self.known.get(partition)}, epoch {self.epoch}"
        assert error == 0, f"error {error}: {asked}"
        assert partition in self.known, f"partition {partition} was forgotten"
        batches = MemoryRecords(records)
        while batches.has_next():
            for record in batches.next_batch():
                assert record.offset == self.offsets[partition], "a record was lost or came twice"
                assert record.value.startswith(b"%d-%d." % (partition, record.offset))
                self.offsets[partition] += 1
                self.received += 1
        if self.offsets[partition] >= BATCHES:
            # From the beginning again: there is always something to fetch.
            self.offsets[partition] = 0


def throttled_fetches(sluice: SluiceProcess) -> float:
    """Return how many Fetches were throttled so far."""
    return sluice.metric("sluice_client_throttled_requests_total", type="Fetch")


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_throttled_sessions_lose_nothing(sluice: SluiceProcess, topic: Topic, version: int) -> None:
    seed = 20_000 + version
    choose = random.Random(seed)
    before = throttled_fetches(sluice)
    consumers = [Consumer(sluice, topic, version, choose) for _ in range(2)]
    try:
        for turn in range(FETCHES):
            choose.choice(consumers).poll()
            if turn % 50 == 49:
                choose.choice(consumers).reconnect()
    finally:
        for consumer in consumers:
            consumer.wire.close()
    for consumer in consumers:
        told = f"seed {seed}, {consumer.throttled} throttled, {consumer.emptied} empty"
        assert consumer.received > FETCHES // 20, told
        assert consumer.throttled > 0, told
        assert consumer.emptied > 0, told
    # Under schedule not each short time is told.
    assert throttled_fetches(sluice) - before > 2 * (FETCHES // 20)
