"""What all tests share: markers by directory, and one real cluster of three brokers for a whole run.

A test asks for `kafka` (the cluster), `create_topic` (a factory) or `topic` (one topic of one partition).
Brokers start when the first test asks for them, and are ended with the session.
"""

import secrets
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from tests.cluster import Cluster, ClusterOptions, processes, readiness
from tests.cluster.features import FOREIGN, OFFERED, broker, lacks
from tests.cluster.sasl import SASL_LISTENERS, SASL_PROPERTIES, SASL_USERS

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

_TESTS: Final = Path(__file__).resolve().parent
_KINDS: Final = frozenset(
    {
        *("unit", "component", "property", "simulation", "integration", "interop", "oracle", "packaging"),
        *("spark", "hostile"),
    }
)
_NEEDS_BROKERS_SECONDS_MAX: Final = 240
# Modules that take minutes: they begin first, or the other processes wait for them at the end.
_LONG: Final = frozenset(
    {
        *("test_tuning", "test_throttled_groups", "test_fleet_sidecars", "test_offline_kafka"),
        *("test_fleet_cluster", "test_low_quotas", "test_printed_ways_out", "test_images"),
        *("test_fleet", "test_fleet_group", "test_fleet_forged", "test_replication", "test_reassignments"),
        *("test_rolling", "test_refusals", "test_reassignment_topic"),
    }
)
_COORDINATOR_SECONDS_MAX: Final = 60.0
# Loading, not available, not the coordinator.
_COORDINATOR_ERRORS: Final = frozenset({14, 15, 16})


class CreateTopic(Protocol):
    """Creates a topic with a random name on `kafka` and returns the name."""

    def __call__(
        self, *, partitions: int = 1, replication: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create it, wait until every partition has a leader, and return its name."""


def pytest_configure() -> None:
    """Make SIGTERM an ordinary exit: fixtures are torn down, temporary directories removed."""
    processes.exit_on_signals()


@pytest.hookimpl(trylast=True)  # behind the shuffle
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the kind that its directory names; those with brokers may take longer, the long are first."""
    items.sort(key=lambda item: item.path.stem not in _LONG)
    for item in items:
        if not item.path.is_relative_to(_TESTS):
            item.add_marker(pytest.mark.unit)  # a doctest in the packages themselves
            continue
        kind = item.path.relative_to(_TESTS).parts[0]
        if kind in _KINDS:
            item.add_marker(getattr(pytest.mark, kind))
        for need in item.iter_markers("needs"):
            if lacking := [feature for feature in need.args if lacks(feature, broker())]:
                item.add_marker(pytest.mark.skip(reason=f"{broker()} has no {', '.join(lacking)}"))
        if (
            kind in {"integration", "interop", "oracle", "spark"}
            and item.get_closest_marker("timeout") is None
        ):
            item.add_marker(pytest.mark.timeout(_NEEDS_BROKERS_SECONDS_MAX))


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """Three brokers; a test that kills one starts it again before it ends. They listen with and without SASL.

    `SLUICE_KAFKA` names another release, or others' brokers.
    """
    if broker() in FOREIGN:
        from tests.support.foreign_brokers import ForeignCluster

        with ForeignCluster(broker()) as foreign:
            OFFERED.update(readiness.offered(foreign.address(foreign.nodes[0])))
            yield foreign
        return
    cluster = Cluster(
        ClusterOptions(
            nodes=3, listeners=SASL_LISTENERS, properties=SASL_PROPERTIES, format_arguments=SASL_USERS
        )
    )
    with cluster:
        OFFERED.update(readiness.offered(cluster.address(1)))
        _create_coordinators(cluster.bootstrap())
        yield cluster


def _create_coordinators(bootstrap: str) -> None:
    """Have the topics of group and transaction coordinators created: the first client to need them gets an error."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "first"})
    deadline = time.monotonic() + _COORDINATOR_SECONDS_MAX
    while True:
        try:
            consumer.committed([TopicPartition("none", 0)], timeout=60)
            break
        except KafkaException as error:  # the coordinator is there a moment before it serves
            if time.monotonic() > deadline or error.args[0].code() not in _COORDINATOR_ERRORS:
                raise
            time.sleep(0.2)
    consumer.close()
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "first"}).init_transactions(60)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the end of the brokers' logs into the report of a failed test that used them."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("kafka")
    if report.failed and isinstance(cluster, Cluster):
        report.sections.extend((f"log of broker {node}", cluster.log(node)) for node in cluster.nodes)
    return report


@pytest.fixture(scope="session")
def admin(kafka: Cluster) -> "Iterator[KafkaAdminClient]":
    """kafka-python's admin client, connected to the brokers directly."""
    # Not at the top: it takes a third of a second, which no unit test shall pay.
    from kafka.admin import KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=kafka.bootstrap().split(","), client_id="tests-admin")
    yield client
    client.close()


@pytest.fixture(scope="session")
def create_topic(kafka: Cluster) -> CreateTopic:
    """A factory of topics with random names, so that no test meets another's records."""
    # Not at the top: it imports kafka-python, for which no unit test shall pay. And not with its admin client, which
    # for a while does not know a broker that another test has stopped and started.
    from tests.support.raw_topics import create as create_raw

    def create(*, partitions: int = 1, replication: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = f"t-{secrets.token_hex(4)}"
        create_raw(kafka, name, partitions=partitions, replication=replication, configs=configs or {})
        return name

    return create


@pytest.fixture
def topic(create_topic: CreateTopic) -> str:
    """A topic of one partition, one replica."""
    return create_topic()
