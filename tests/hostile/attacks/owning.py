"""Attacks on what Sluice keeps in Kafka, by clients of its own ports and by clients of the brokers beside it.

One real broker without an authorizer, and one member of a fleet with everything in Kafka: quotas, the journal of
reassignments, the group that chooses the holder; with a secret. The figures are 1 where an attack has its effect, and
the longest alteration in seconds.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaError

from proxy.config import Address
from proxy.fleet.election import NO_TERM, TERM_MAX, Claim, Statements
from proxy.fleet.messages import NONCE_BYTES
from quotas.definitions.entities import Entity
from quotas.definitions.kinds import PRODUCER_BYTE_RATE
from quotas.definitions.records import Author, key_of, value_of
from tests.cluster import Cluster, ClusterOptions, free_port
from tests.hostile.scene import Row
from tests.support import record_flood
from tests.support.forged_members import joined, said
from tests.support.proxy_process import SluiceProcess, fleet_secret
from tests.support.quota_client import set_rates
from tests.support.topic_quotas import Topic, rate_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_FINDING: Final = 26
_RATE: Final = 100_000.0
_CLIENT: Final = "mallory"
_FORGED: Final = value_of(1e12, Author("admin", "10.0.0.4:1", "2026-01-31T12:00:00.000Z"))
_SECONDS: Final = 20.0
_STAYS_SECONDS: Final = 3.0
_READ_SECONDS: Final = 2.0  # until Sluice has read what was written beside it
_FLOOD, _PER_SECOND = 100_000, 50_000


@dataclass(frozen=True, slots=True)
class Owned:
    """The scene.

    Attributes:
        topic: of the quotas.
    """

    topic: Topic
    sluice: SluiceProcess
    group: str
    journal: str


@contextlib.contextmanager
def _scene() -> Iterator[Owned]:
    with (
        Cluster(ClusterOptions(nodes=1)) as cluster,
        tempfile.TemporaryDirectory(prefix="hostile-own-") as name,
        Topic(cluster.bootstrap(), Path(name)) as topic,
    ):
        secret = fleet_secret(topic.directory)
        group, journal = f"{topic.name}-fleet", f"{topic.name}-journal"
        sections: dict[str, dict[str, object]] = {
            "fleet": {
                "bind": f"127.0.0.1:{free_port()}",
                "group": group,
                "members_max": 2,
                "secret_file": secret,
            },
            "reassignment": {"mode": "batch", "journal": "topic", "journal_topic": journal},
        }
        owned = Owned(topic, topic.start("member", sections=sections), group, journal)
        assert set_rates(owned.sluice.bootstrap, **{_CLIENT: _RATE}) == [(0, "")]
        until(lambda: owned.sluice.metric("sluice_fleet_holder"), "it is the holder")
        yield owned


def _accepted(owned: Owned, ask: Callable[["AdminClient"], Mapping[Any, "Future[Any]"]]) -> float:
    """Whether a request of an administrator is carried out at Sluice's port."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": owned.sluice.bootstrap})
    for future in ask(admin).values():
        try:
            future.result(_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            return 0.0
    return 1.0


def _write(bootstrap: str, *records: tuple[str, bytes | None, bytes | None, Any]) -> None:
    """Produce records, into several topics with one request; an error is a response like any other."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "message.timeout.ms": 5_000})
    for topic, key, value, headers in records:
        producer.produce(topic, key=key, value=value, headers=headers)
    producer.flush(_SECONDS)


def _forge(owned: Owned, bootstrap: str) -> float:
    """Write a record that raises the client's quota; whether it is in force."""
    _write(
        bootstrap, (owned.topic.name, key_of(Entity(client_id=_CLIENT), PRODUCER_BYTE_RATE), _FORGED, None)
    )
    time.sleep(_READ_SECONDS)
    return float(rate_of(owned.sluice, _CLIENT) != _RATE)


def forged_at_the_port(owned: Owned) -> float:
    """Produce a quota through Sluice."""
    return _forge(owned, owned.sluice.bootstrap)


def forged_beside(owned: Owned) -> float:
    """Produce a quota at the broker."""
    return _forge(owned, owned.topic.bootstrap)


def repeated_beside(owned: Owned) -> float:
    """Append the topic's own records once more, after a later alteration."""
    from confluent_kafka import Consumer, TopicPartition

    name = owned.topic.name
    consumer = Consumer({"bootstrap.servers": owned.topic.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(name, 0, 0)])
    records = [one for one in consumer.consume(100, timeout=5) if one.error() is None]
    consumer.close()
    assert records
    assert set_rates(owned.sluice.bootstrap, **{_CLIENT: _RATE / 2}) == [(0, "")]
    _write(owned.topic.bootstrap, *((name, one.key(), one.value(), one.headers()) for one in records))
    time.sleep(_READ_SECONDS)
    found = float(rate_of(owned.sluice, _CLIENT) != _RATE / 2)
    assert set_rates(owned.sluice.bootstrap, **{_CLIENT: _RATE}) == [(0, "")]
    return found


def deleted(owned: Owned) -> float:
    """Delete the topic of the quotas through Sluice."""
    return _accepted(owned, lambda admin: admin.delete_topics([owned.topic.name]))


def grown(owned: Owned) -> float:
    """Add partitions to the journal's topic through Sluice."""
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # theirs

    return _accepted(owned, lambda admin: admin.create_partitions([NewPartitions(owned.journal, 3)]))


def fenced(owned: Owned) -> float:
    """Open a producer with the journal's transactional id through Sluice."""
    from confluent_kafka import KafkaError, KafkaException, Producer

    producer = Producer({"bootstrap.servers": owned.sluice.bootstrap, "transactional.id": owned.journal})
    try:
        producer.init_transactions(_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        return 0.0
    return 1.0


def _elected(owned: Owned, bootstrap: str) -> float:
    """Join the fleet's group with a claim of the greatest term; whether Sluice is the holder no more."""
    forged = Claim("x", Address("127.0.0.1", 9), 1, TERM_MAX, NO_TERM, bytes(NONCE_BYTES))

    async def attack() -> bool:
        metadata = said(Statements(b"", owned.group).write_claim(forged, ""))
        try:
            async with joined(bootstrap, owned.group, metadata, _SECONDS) as forger:
                await asyncio.sleep(_STAYS_SECONDS)
                return forger.given or not owned.sluice.metric("sluice_fleet_holder")
        except (KafkaError, TimeoutError):
            return False

    return float(asyncio.run(attack()))


def elected_at_the_port(owned: Owned) -> float:
    """Join through Sluice."""
    return _elected(owned, owned.sluice.bootstrap)


def elected_beside(owned: Owned) -> float:
    """Join at the broker."""
    return _elected(owned, owned.topic.bootstrap)


def flooded(owned: Owned) -> float:
    """Write as many valid keys as the broker takes, and alter a quota all the time: the longest alteration."""
    longest, value = 0.0, _RATE
    with record_flood.begin(owned.topic.bootstrap, owned.topic.name, _FLOOD, _PER_SECOND) as flood:
        while flood.poll() is None:
            value += 1.0
            began = time.monotonic()
            assert set_rates(owned.sluice.bootstrap, altered=value) == [(0, "")]
            longest = max(longest, time.monotonic() - began)
    assert flood.returncode == 0, "all records of the flood were acknowledged"
    assert rate_of(owned.sluice, "altered") == value
    return longest


_PORT: Final = "through a port of clients"
_ATTACKS: Final[tuple[tuple[str, str, str, float, Callable[[Owned], float]], ...]] = (
    ("own-produce", f"a record in the quota topic, {_PORT}", "in force", 0.0, forged_at_the_port),
    ("own-delete", f"the quota topic deleted, {_PORT}", "accepted", 0.0, deleted),
    ("own-grow", f"partitions for the journal's topic, {_PORT}", "accepted", 0.0, grown),
    ("own-fence", f"the journal's transactional id, {_PORT}", "accepted", 0.0, fenced),
    ("own-join", f"the fleet's group joined, {_PORT}", "elected", 0.0, elected_at_the_port),
    ("beside-produce", "a record in the quota topic, at a broker", "in force", 0.0, forged_beside),
    ("beside-repeat", "genuine records of it appended again, at a broker", "in force", 0.0, repeated_beside),
    (
        "beside-join",
        "the fleet's group joined with the greatest term, at a broker",
        "elected",
        0.0,
        elected_beside,
    ),
    ("beside-flood", "100,000 records in 2 s in the quota topic: an alteration meanwhile", "s", 2.0, flooded),
)
ROWS: Final = tuple(Row(name, _FINDING, what, unit, bar) for name, what, unit, bar, _ in _ATTACKS)


def measure() -> Mapping[str, float]:
    """Run all, one after the other in one scene; the figures by name."""
    with _scene() as owned:
        return {name: run(owned) for name, *_, run in _ATTACKS}
