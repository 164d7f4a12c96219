"""Quotas in a compacted topic, in front of real brokers: one truth for several processes, and every fault has a reason.

Each test has a topic of its own; the measured figures are in docs/decisions/0011.
"""

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quotas.definitions.entities import Entity
from quotas.definitions.records import Author, key_of, value_of
from tests.bench.process import resident_kib
from tests.cluster import Cluster, free_ports, tools
from tests.support import raw_topics
from tests.support.proxy_process import SluiceProcess, sluice
from tests.support.quota_client import describe, set_rates
from tests.support.topic_quotas import Topic, rate_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

AUTHOR = Author("someone", "192.0.2.1:1", "2026-01-31T12:00:00.000Z")
SEEN_SECONDS_MAX = 6.0  # the promise is one second, on a machine that does nothing else
RATE = "producer_byte_rate"


@pytest.fixture
def topic(kafka: Cluster, tmp_path: Path) -> Iterator[Topic]:
    with Topic(kafka.bootstrap(), tmp_path) as found:
        yield found


def record(name: str, value: float) -> tuple[bytes, bytes]:
    return key_of(Entity(client_id=name), RATE), value_of(value, AUTHOR)


def problem(process: SluiceProcess, topic: str, cause: str) -> float | None:
    return process.metric("sluice_internal_topic_problem", topic=topic, cause=cause)


def shows(process: SluiceProcess, limits: dict[str, float]) -> bool:
    """Whether one entity has these limits."""
    return limits in describe(process.bootstrap).values()


def test_kafka_configs_alters_at_one_process_and_describes_at_another(kafka: Cluster, topic: Topic) -> None:
    first, second = topic.start("first"), topic.start("second")
    words = ["--entity-type", "users", "--entity-name", "u", "--entity-type", "clients", "--entity-default"]
    tools.configs(
        first.bootstrap, "--alter", *words, "--add-config", f"{RATE}=2000000,request_percentage=12.5"
    )
    until(lambda: describe(second.bootstrap), "the other process follows", SEEN_SECONDS_MAX)
    printed = tools.configs(second.bootstrap, "--describe", *words)
    assert f"{RATE}=2000000.0" in printed
    assert "request_percentage=12.5" in printed
    tools.configs(second.bootstrap, "--alter", *words, "--delete-config", RATE)
    until(
        lambda: list(describe(first.bootstrap).values()) == [{"request_percentage": 12.5}],
        "removed",
        SEEN_SECONDS_MAX,
    )
    events = [json.loads(line) for line in consumed(kafka, topic.audit, 3)]
    changes = [(event["limit"], event["old"], event["new"]) for event in events]
    assert sorted(changes[:2]) == [(RATE, None, 2000000), ("request_percentage", None, 12.5)]
    assert changes[2] == (RATE, 2000000, None)
    assert events[0]["entity"] == [["user", "u"], ["client-id", None]]
    assert events[0]["from"].startswith("127.0.0.1:")
    described = tools.run(
        tools.TOPICS, "--bootstrap-server", kafka.bootstrap(), "--describe", "--topic", topic.name
    )
    for part in (
        "PartitionCount: 1",
        "ReplicationFactor: 3",
        "cleanup.policy=compact",
        "min.insync.replicas=2",
    ):
        assert part in described
    assert first.metric("sluice_audit_events_total", result="appended") == 2


def consumed(kafka: Cluster, topic: str, count: int) -> list[str]:
    """What docs/how-to/quotas-in-a-topic.md says about reading the audit topic."""
    printed = tools.run(
        tools.CONSOLE_CONSUMER,
        *("--bootstrap-server", kafka.bootstrap(), "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "20000"),
    )
    return [line for line in printed.splitlines() if line.startswith("{")]


def test_quotas_as_code_and_the_check_work_on_the_topic(topic: Topic, tmp_path: Path) -> None:
    first, second = topic.start("first"), topic.start("second")
    wanted = tmp_path / "wanted.toml"
    wanted.write_text('[[quota]]\nclient_id = "as-code"\nproducer_byte_rate = 3000000\n')

    sluice("quotas", "apply", "--bootstrap-server", first.bootstrap, str(wanted), "--prune")
    until(partial(shows, second, {RATE: 3e6}), "it follows", SEEN_SECONDS_MAX)
    sluice("quotas", "diff", "--bootstrap-server", second.bootstrap, str(wanted), "--prune")
    assert "as-code" in sluice("quotas", "export", "--bootstrap-server", second.bootstrap)
    checks = ("check", "--config", str(tmp_path / "first" / "sluice.toml"))
    printed = sluice(*checks)
    assert f"kept in topic {topic.name}" in printed
    usable = f"topic {topic.name}: can be read and written"
    assert usable in printed
    assert usable in json.loads(sluice(*checks, "--format", "json"))["topics"]


def test_acknowledged_alterations_survive_kills(topic: Topic) -> None:
    topic.start("stays")
    for number in range(3):
        process = topic.start("killed")
        assert set_rates(process.bootstrap, **{f"kept-{number}-{index}": 1.0 + index for index in range(20)})
        topic.kill(process)
    again = topic.start("killed")
    assert len(describe(again.bootstrap)) == 60


def test_ten_thousand_alterations_are_one_batch(topic: Topic) -> None:
    first, second = topic.start("first"), topic.start("second")
    names = [f"many-{number}" for number in range(10_000)]
    assert set_rates(first.bootstrap, **dict.fromkeys(names, 1e6)) == [(0, "")] * 10_000
    until(lambda: len(describe(second.bootstrap)) == 10_000, "it follows")


def test_leader_that_is_killed_costs_seconds_and_no_quota(kafka: Cluster, topic: Topic) -> None:
    first, second = topic.start("first"), topic.start("second")
    assert set_rates(first.bootstrap, a=5.0) == [(0, "")]
    leader = raw_topics.describe(kafka, topic.name).leaders[0]
    kafka.kill_broker(leader)
    try:
        until(lambda: set_rates(first.bootstrap, a=6.0) == [(0, "")], "alterations go on", 60)
        until(lambda: rate_of(second, "a") == 6.0, "the other process follows")
    finally:
        kafka.start_broker(leader)
    assert set_rates(second.bootstrap, a=7.0) == [(0, "")]
    until(lambda: rate_of(first, "a") == 7.0, "the other process follows")


def test_snapshot_lets_a_process_start_while_kafka_is_away(topic: Topic) -> None:
    process = topic.start("first")
    set_rates(process.bootstrap, kept=5.0)
    until(lambda: process.metric("sluice_quota_snapshot_writes_total", result="ok"), "a snapshot", 60)
    process.signal(signal.SIGTERM)
    until(lambda: not process.alive(), "it ends")
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    again = topic.start("first", nowhere, ready=False)
    until(lambda: "serving" in again.log(), "it serves")
    assert rate_of(again, "kept") == 5.0
    ((code, message),) = set_rates(again.bootstrap, kept=6.0)
    assert code == 56
    assert "the quotas in force stay" in message
    assert problem(again, topic.name, "unreachable") == 1
    # A process without a snapshot opens no port, so that no client passes without a quota.
    other = topic.start("second", nowhere, ready=False)
    until(lambda: "topic cannot be used" in other.log(), "it says why")
    status, text = other.get("/readyz")
    assert (status, "quotas: " in text) == (503, True)
    with pytest.raises(ConnectionRefusedError):
        describe(other.bootstrap)


def test_topic_that_is_deleted_changes_nothing_until_a_start(
    topic: Topic, kafka: Cluster, admin: "KafkaAdminClient"
) -> None:
    process = topic.start("first")
    set_rates(process.bootstrap, kept=5.0)
    admin.delete_topics([topic.name])
    until(lambda: problem(process, topic.name, "missing"), "it is noticed")
    ((code, message),) = set_rates(process.bootstrap, kept=6.0)
    assert (code, "was deleted" in message) == (56, True)
    assert rate_of(process, "kept") == 5.0
    assert topic.name not in admin.list_topics()  # asking for it has not created it
    again = topic.start("second")
    assert describe(again.bootstrap) == {}
    until(lambda: problem(process, topic.name, "recreated"), "the other one is noticed")
    assert rate_of(process, "kept") == 5.0


def test_topic_with_another_cleanup_policy_is_refused_until_it_is_changed(
    topic: Topic, kafka: Cluster
) -> None:
    words = ["--bootstrap-server", kafka.bootstrap(), "--create", "--topic", topic.name]
    tools.run(tools.TOPICS, *words, "--config", "cleanup.policy=delete")
    process = topic.start("first", ready=False)
    until(lambda: "cleanup.policy=delete" in process.readiness(), "it is not ready")
    policy = ["--alter", "--topic", topic.name, "--add-config"]
    tools.configs(kafka.bootstrap(), *policy, "cleanup.policy=compact")
    process.wait_ready()
    assert set_rates(process.bootstrap, a=5.0) == [(0, "")]
    tools.configs(kafka.bootstrap(), *policy, "cleanup.policy=delete")
    until(lambda: problem(process, topic.name, "cleanup_policy"), "it is noticed")
    ((code, message),) = set_rates(process.bootstrap, a=6.0)
    assert (code, "cleanup.policy=delete" in message) == (56, True)
    assert rate_of(process, "a") == 5.0


def test_topic_with_two_partitions_is_refused(topic: Topic, kafka: Cluster) -> None:
    words = ["--bootstrap-server", kafka.bootstrap(), "--create", "--topic", topic.name, "--partitions", "2"]
    tools.run(tools.TOPICS, *words, "--config", "cleanup.policy=compact")
    process = topic.start("first", ready=False)
    until(lambda: "has 2 partitions" in process.readiness(), "it is not ready")


def test_junk_costs_nothing_but_its_counter(topic: Topic) -> None:
    process = topic.start("first")
    assert set_rates(process.bootstrap, a=5.0) == [(0, "")]
    before = resident_kib(process.process_id)
    junk: list[tuple[bytes | None, bytes | None]] = [
        (b"junk-%d" % index, b"x" * 100) for index in range(50_000)
    ]
    junk += [(key_of(Entity(client_id="a"), RATE), bytes(1_000_000)) for _ in range(20)]
    junk += [(key_of(Entity(client_id="b"), RATE), b'{"v":2,"value":5}'), (b"[" * 10_000, b""), (b"{}", None)]
    topic.produce([*junk, record("last", 9.0)])
    until(lambda: rate_of(process, "last") == 9.0, "it goes on", 60)
    assert rate_of(process, "a") == 5.0
    assert rate_of(process, "b") is None
    assert process.metric("sluice_quota_topic_records_total", result="key") == 50_002
    assert process.metric("sluice_quota_topic_records_total", result="size") == 20
    assert process.metric("sluice_quota_topic_records_total", result="version") == 1
    assert process.metric("sluice_quota_topic_unreadable") == 2
    assert process.log().count("records of the topic skipped") == 1
    assert resident_kib(process.process_id) - before < 30_000
    again = topic.start("second")
    assert rate_of(again, "last") == 9.0
