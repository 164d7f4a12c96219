"""What /metrics shows, and that docs/metrics.md says so."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from unittest.mock import Mock

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from proxy.config import QuotaSettings
from proxy.control.cluster.bypasses import Unguarded
from proxy.control.quotas.quota_topic import families
from proxy.control.quotas.topic_store import TopicStore
from proxy.control.reassign import status, topic_place
from proxy.control.reassign.reconcile import Decision
from proxy.metrics.exposition import Metrics
from proxy.metrics.families import Family, of_workers
from proxy.metrics.fleet import FleetFigures, FleetMetrics
from proxy.metrics.replication import ReplicationMetrics
from proxy.process import capacities
from proxy.system import compiled
from proxy.system.stats import CaptureStats, Stats
from proxy.topics.log import Inbox
from proxy.topics.records import Problem, Record
from proxy.topics.topic import Access
from quotas.definitions.classes import Terms
from quotas.definitions.entities import BucketKey
from quotas.replication.replication_quotas import BrokerLimits, ReplicationOptions, ReplicationQuotas
from quotas.sharing.capacities import CapacityState, ClassState
from quotas.sharing.lease_values import LeaseTerms, LesseeId
from quotas.sharing.lessee import Lessee
from quotas.throttles.figures import QuotaView
from tests.support.engines import KnownClients

TERMS = LeaseTerms(15_000, 1000, 4)
DOCS = Path(__file__).parents[4] / "docs" / "metrics.md"
VIEW = QuotaView("", "a", "Produce", 1500.0, 2000.0, 5000, 2500, 3, 0, 0, 12.0)
MUTATIONS = QuotaView("", "a", "ControllerMutation", 0.0, 2.0, 60, 5000, 1, 6000, 2, 0.0, -10.0)
WAITS = QuotaView("u", "a", "Topic", 0.0, None, 90_500, 0, 0, 0, 0, 0.0, longest_wait_ms_total=30_250)
# 4 MB/s are promised to a, which also has a loan of 3; b wants its rate and more; c is the third by its demand.
DIVIDED = CapacityState(
    *("producer_byte_rate", 1, 8e6, 1.0, 0.5e6),
    (
        ClassState("producer_byte_rate", BucketKey(None, "a"), Terms(4e6, 8e6), 8e6, 4e6, 3e6, 1),
        ClassState("producer_byte_rate", BucketKey("b", None), Terms(0.5e6, 0.5e6), 0.5e6, 0.5e6, 0.0, 1),
        ClassState("producer_byte_rate", BucketKey(None, "c"), Terms(0.0, 8e6), 0.0, 0.0, 0.0, 1),
    ),
)
REQUESTS = QuotaView("", "a", "Request", 25.0, 12.5, 1_500_000, 3000, 4, 7000, 5, 0.0)


class Link:
    """150 records behind, and 50 fewer at each scrape."""

    follower = 3

    def __init__(self) -> None:
        self._offset = 0

    def replica_offsets(self) -> list[tuple[bytes, int, int, int]]:
        self._offset += 50
        return [(bytes(16), 0, self._offset, 200)]

    def topics(self) -> set[bytes]:
        return {bytes(16)}


def replicated(stats: Stats) -> ReplicationMetrics:
    """A follower that is behind, looked at 2 s before."""
    replication = ReplicationQuotas(ReplicationOptions())
    replication.limit(BrokerLimits(default=1000), BrokerLimits())
    replication.leader(1, 0)
    replication.name_topics({bytes(16): "t"})
    replication.record_arrived(3, bytes(16), 0, 500)
    replication.links.add(Link())
    view = ReplicationMetrics(replication, stats, 10)
    list(view.portions(77 - 2000))
    return view


def shared() -> FleetMetrics:
    """The holder of a fleet, which is cut off itself."""
    figures = FleetFigures()
    figures.group_problem = "denied"
    figures.reports["failed"] = figures.received["secret"] = 2
    figures.members, figures.holds = 3, True
    lessee = Lessee(TERMS, LesseeId("a", 1), -100_000)
    return FleetMetrics(figures, lessee, lambda: 77)


class OwnTopic:
    """A topic of Sluice's own that an ACL forbids."""

    topic_id = b""
    problem = Problem("denied", "an ACL denies Read")
    write_problem = problem
    wanted: Callable[[Record], bool] | None = None

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.inbox = Inbox()

    def append(self, records: list[Record]) -> "Future[int]":
        raise AssertionError(records)


def in_topic() -> list[Family]:
    log = OwnTopic("quotas")
    audit = Mock(topic="audit", problem=log.problem, waiting=2, appended=2, dropped=2)
    return families(TopicStore(QuotaSettings(store="topic"), log), log, audit)


def written(
    stats: Stats,
    quotas: KnownClients,
    accept: str = "",
    series_max: int = 1000,
    waits: Sequence[QuotaView] = (),
) -> str:
    stats.captures.setdefault("rows", CaptureStats())
    moves = [*status.gauges([], Decision(), None, True), *status.counters(stats)]
    moves += topic_place.families(None, Counter(), Counter())
    others = [*moves, *of_workers({1: True}, {1: 0}, {1: 0}, {"killed": 1})]
    metrics = Metrics(
        stats,
        quotas,
        series_max,
        "1.2.3",
        replicated(stats),
        [
            *(lambda: others, shared().families, in_topic, Unguarded(Access([]), ["group g"]).families),
            lambda: capacities.families([DIVIDED], {"producer_byte_rate": 3e6}, classes_max=2),
        ],
        waits=lambda: waits,
    )
    list(metrics.portions(77))
    return metrics.render(metrics.snapshot(), accept)[0].decode()


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Give name -> label values, in the order of the labels' names -> value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = (
                sample.value
            )
    return found


def figures(found: dict[str, dict[tuple[str, ...], float]], *labels: str) -> dict[str, float]:
    """The samples that have these labels' values, by name."""
    return {name: values[labels] for name, values in found.items() if labels in values}


def throttles(of: str, *values: float) -> dict[str, float]:
    names = ("throttle_seconds", "throttled_requests", "would_throttle_seconds", "would_throttled_requests")
    return {f"sluice_{of}_{name}_total": value for name, value in zip(names, values, strict=True)}


def test_each_kind_of_quota_has_its_figures() -> None:
    known = KnownClients([VIEW, MUTATIONS, REQUESTS], topics=[VIEW], left=7.5)
    found = samples(written(Stats(), known))
    assert figures(found, "a", "Produce", "") == {
        "sluice_client_bytes_total": 5000,
        "sluice_client_byte_rate": 1500,
        "sluice_client_quota_byte_rate": 2000,
        "sluice_client_debt_bytes": 12,
        **throttles("client", 2.5, 3, 0, 0),
    }
    assert figures(found, "a", "Produce") == {
        "sluice_topic_bytes_total": 5000,
        "sluice_topic_quota_byte_rate": 2000,
        "sluice_topic_debt_bytes": 12,
        **throttles("topic", 2.5, 3, 0, 0),
    }
    assert figures(found, "a", "") == {
        "sluice_client_mutations_total": 60,
        "sluice_client_mutation_tokens": -10,
        "sluice_client_quota_mutation_rate": 2,
        "sluice_client_request_seconds_total": 1.5,
        "sluice_client_request_percentage": 25,
        "sluice_client_quota_request_percentage": 12.5,
    }
    assert figures(found, "a", "ControllerMutation", "") == throttles("client", 5, 1, 6, 2)
    assert figures(found, "a", "Request", "") == throttles("client", 3, 4, 7, 5)
    assert found["sluice_mutation_tokens"] == {(): 7.5}


def test_unlimited_clients_and_topics_have_no_quota_and_no_tokens() -> None:
    views = [view._replace(quota=None, tokens=None) for view in (VIEW, MUTATIONS, REQUESTS)]
    found = samples(written(Stats(), KnownClients(views, topics=views[:1])))
    named = {name for name in found if re.match("sluice_(client|topic|mutation)_", name)}
    assert not {name for name in named if "quota" in name or "tokens" in name}
    shown = ("client_bytes", "client_mutations", "client_request_seconds", "topic_bytes")
    assert {f"sluice_{name}_total" for name in shown} <= named


def test_waits_of_a_client_are_shown_in_both_senses() -> None:
    found = samples(written(Stats(), KnownClients(), waits=[WAITS]))
    assert found["sluice_client_waited_seconds_total"] == {("a", "Topic", "u"): 90.5}
    assert found["sluice_client_longest_wait_seconds_total"] == {("a", "Topic", "u"): 30.25}


def test_waits_beyond_the_bound_are_summed_and_have_no_longest() -> None:
    waits = [WAITS._replace(client_id=f"c{n}", bytes_total=1000 * n) for n in range(300)]
    found = samples(written(Stats(), KnownClients(), series_max=320, waits=waits))
    waited = found["sluice_client_waited_seconds_total"]
    longest = found["sluice_client_longest_wait_seconds_total"]
    assert sum(waited.values()) == sum(range(300))
    assert set(waited) - set(longest) == {("<other>", "Topic", "")}
    assert len(waited) + len(longest) <= 320 // 8


def test_series_beyond_the_bound_are_summed() -> None:
    views = [VIEW._replace(client_id=f"c{n}", bytes_total=n) for n in range(100)]
    found = samples(written(Stats(), KnownClients(views), series_max=65))
    assert sum(len(values) for name, values in found.items() if name.startswith("sluice_client_")) <= 65
    assert found["sluice_client_bytes_total"][("<other>", "Produce", "")] == sum(range(99))


def test_control_and_direction_characters_of_names_are_written_out_and_names_stay_apart() -> None:
    names = {
        **{name: name for name in ('q"uote', "ü", "", "<b>")},
        "\udce4": r"\udce4",
        "a\x1b[2J": r"a\x1b[2J",
        r"a\x1b[2J": r"a\x5cx1b[2J",
        r"a\x5cx1b[2J": r"a\x5cx5cx1b[2J",
        "\u202etxt": r"\u202etxt",
        r"\u202etxt": r"\x5cu202etxt",
        "\U000e0041": r"\U000e0041",
        "line\r\n": r"line\x0d\x0a",
        "\\\x1b": r"\\x1b",
        r"CORP\web": r"CORP\web",
        r"CORP\nina": r"CORP\nina",
    }
    views = [VIEW._replace(client_id=name, user=name) for name in names]
    text = written(Stats(), KnownClients(views))
    assert not [character for character in text if not (character.isprintable() or character == "\n")]
    assert set(samples(text)["sluice_client_bytes_total"]) == {
        (shown, "Produce", shown) for shown in names.values()
    }


def test_long_names_that_differ_in_what_is_cut_off_stay_apart() -> None:
    views = [VIEW._replace(client_id="\x1b" * 30_000 + end) for end in ("a", "b")]
    shown = {
        name for name, _, _ in samples(written(Stats(), KnownClients(views)))["sluice_client_bytes_total"]
    }
    assert len(shown) == 2
    assert all(len(one) == 200 and one.startswith(r"\x1b\x1b") for one in shown)


def test_metrics_of_the_data_path() -> None:
    stats = Stats()
    stats.connections["clients"], stats.connections_total["clients"] = 3, 9
    stats.refused["connections_max"], stats.errors["slow_client"] = 1, 2
    stats.requests[0], stats.requests[-1], stats.frames_from_brokers = 5, 4, 8
    stats.muted, stats.held, stats.held_bytes, stats.held_ms_total = 6, 7, 100, 1500
    stats.reloads["refused"] = 1
    stats.handshakes["client"], stats.handshake_us_total = 4, 2500
    stats.certificate_reloads["ok"], stats.certificate_ends["cluster.tls"] = 5, 1.8e9
    stats.connections_waiting, stats.connections_would_refuse = 2, 3
    expected = {
        "connections": {("clients",): 3},
        "connections_opened_total": {("clients",): 9},
        "connections_refused_total": {("connections_max",): 1},
        "connection_errors_total": {("slow_client",): 2},
        "requests_total": {("Produce",): 5, ("unknown",): 4},
        "responses_total": {(): 8},
        "channels_muted": {(): 6},
        "channels_held": {(): 7},
        "held_seconds_total": {(): 1.5},
        "tls_handshakes_total": {("client",): 4},
        "tls_handshake_seconds_total": {(): 0.0025},
        "certificate_reloads_total": {("ok",): 5},
        "certificate_expiry_timestamp_seconds": {("cluster.tls",): 1.8e9},
        "connections_waiting": {(): 2},
        "connections_would_refuse_total": {(): 3},
        "reloads_total": {("refused",): 1},
    }
    found = samples(written(stats, KnownClients()))
    assert {name: found[f"sluice_{name}"] for name in expected} == expected


def test_metrics_of_replication() -> None:
    stats = Stats()
    stats.replicas_left_out = 7
    found = samples(written(stats, KnownClients()))
    assert found["sluice_replication_throttled_byte_rate"] == {("1", "leader"): 0}
    assert found["sluice_replication_quota_byte_rate"] == {("1", "leader"): 1000}
    assert found["sluice_replication_partition_bytes_total"] == {("3", "0", "t"): 500}
    assert found["sluice_replication_lag"] == {("3",): 100}
    assert found["sluice_replica_lag"] == {("3", "0", "t"): 100}
    assert found["sluice_replica_finish_seconds"] == {("3", "0", "t"): 4}  # 100 records, 50 in the last 2 s
    assert found["sluice_replicas_left_out_total"] == {(): 7}


def test_replica_has_one_series_in_every_case() -> None:
    """A topic was made again under its name; a follower has connected anew, and the old connection is still there."""
    quotas = ReplicationQuotas(ReplicationOptions())
    again = bytes(15) + b"1"
    quotas.name_topics({bytes(16): "t", again: "t"})
    quotas.record_arrived(3, bytes(16), 0, 500)
    quotas.record_arrived(3, again, 0, 70)
    old, new = Link(), Link()
    new.replica_offsets()  # 50 records further on
    quotas.links.update((old, new))
    view = ReplicationMetrics(quotas, Stats(), 10)
    list(view.portions(0))
    rows = {family.name: family.rows for family in view.families(0)}
    assert rows["sluice_replication_partition_bytes"] == [(("3", "t", "0"), 570)]
    assert rows["sluice_replica_lag"] == [(("3", "t", "0"), 100)]
    assert rows["sluice_replication_lag"] == [(("3",), 100)]


def test_latency_buckets_add_up() -> None:
    stats = Stats()
    for microseconds in (5, 10, 11, 60_000):  # two up to 10 us, one up to 20 us, one beyond every bound
        stats.observe_latency(microseconds)
    found = samples(written(stats, KnownClients()))
    buckets = found["sluice_added_latency_seconds_bucket"]
    assert [buckets[(bound,)] for bound in ("1e-05", "2e-05", "0.05", "+Inf")] == [2, 3, 3, 4]
    assert found["sluice_added_latency_seconds_count"] == {(): 4}
    assert found["sluice_added_latency_seconds_sum"][()] == pytest.approx(0.060026)


def test_metrics_of_the_process() -> None:
    found = samples(written(Stats(), KnownClients(enforcing=False)))
    assert found["sluice_enforcing"] == {(): 0}
    python = ".".join(map(str, sys.version_info[:3]))
    assert found["sluice_build_info"] == {(compiled.form(), python, "1.2.3"): 1}  # by the labels' names
    assert found["process_resident_memory_bytes"][()] > 0


def test_openmetrics_is_written_when_asked_for() -> None:
    text = written(Stats(), KnownClients([VIEW]), "application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    families = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # theirs
    names = {family.name for family in families}
    assert {"sluice_client_bytes", "process_cpu_seconds"} <= names


def test_snapshot_does_not_change_any_more() -> None:
    stats = Stats()
    metrics = Metrics(stats, KnownClients(), 100, "1")
    snapshot = metrics.snapshot()
    stats.muted = 5
    assert samples(metrics.render(snapshot, "")[0].decode())["sluice_channels_muted"] == {(): 0}


def test_member_of_a_fleet_has_its_figures() -> None:
    found = samples(written(Stats(), KnownClients()))
    assert {name: one for name, one in figures(found).items() if name.startswith("sluice_fleet")} == {
        "sluice_fleet_holder": 1,
        "sluice_fleet_members": 3,
        "sluice_fleet_parts": 0,
        "sluice_fleet_leased": 0,
        "sluice_fleet_cut_off": 1,
        "sluice_fleet_lease_left_seconds": 0,
        "sluice_fleet_default_share": 0.25,
        "sluice_fleet_keys": 0,
        "sluice_fleet_disagreements": 0,
    }
    assert found["sluice_fleet_received_reports_total"] == {("secret",): 2}
    said = found["sluice_fleet_group_problem"]
    assert {cause for (cause,), value in said.items() if value} == {"denied"}
    assert len(said) == 6


def test_capacity_and_its_classes_have_their_figures() -> None:
    found = samples(written(Stats(), KnownClients()))
    assert figures(found, "1", "Produce") == {
        "sluice_capacity_byte_rate": 8e6,
        "sluice_capacity_promised_byte_rate": 4.5e6,
        "sluice_capacity_lent_byte_rate": 3e6,
        "sluice_capacity_left_byte_rate": 0.5e6,
        "sluice_capacity_shrunk_ratio": 1.0,
        "sluice_capacity_waiting_classes": 2.0,
    }
    a = figures(found, "1", "client-id 'a'", "Produce")
    assert a == {
        "sluice_class_byte_rate": 7e6,
        "sluice_class_lent_byte_rate": 3e6,
        "sluice_class_demand_byte_rate": 8e6,
    }
    assert figures(found, "1", "user 'b'", "Produce")["sluice_class_byte_rate"] == 0.5e6
    assert figures(found, "1", "client-id 'c'", "Produce") == {}
    assert found["sluice_borrowed_byte_rate"] == {("Produce",): 3e6}


def test_each_series_of_a_class_is_there_once() -> None:
    a, catch_up = BucketKey(None, "a"), "catch_up_byte_rate"
    classes = [
        ClassState(key, a, Terms(1e6, 8e6), 8e6, 1e6, 3e6, broker)
        for broker in (1, 2)
        for key in ("consumer_byte_rate", catch_up)
    ]
    state = CapacityState("consumer_byte_rate", -1, 16e6, 1.0, 0.0, tuple(classes))
    (family,) = (
        one for one in capacities.families([state], {}, classes_max=9) if one.name == "sluice_class_byte_rate"
    )
    assert sorted(labels for labels, _ in family.rows) == [
        (kind, broker, "client-id 'a'") for kind in ("CatchUp", "Fetch") for broker in "12"
    ]


def test_documentation_names_every_metric_and_no_other() -> None:
    stats = Stats()
    for counter in (stats.connections, stats.connections_total, stats.refused, stats.errors, stats.reloads):
        counter["x"] = 1
    stats.topics_rejected["x"] = stats.topics_would_reject["x"] = 1
    stats.events["x"] = stats.enforcement_state["x"] = 1
    stats.handshakes["client"] = stats.certificate_reloads["ok"] = 1
    stats.certificate_ends["cluster.tls"] = 1.0
    stats.requests[0] = 1
    stats.replication_unknown_versions["19"] = 1
    for counter in (stats.reassignment_requests, stats.reassignment_steps, stats.reassignment_ends):
        counter["x"] = 1
    text = written(stats, KnownClients([VIEW, MUTATIONS, REQUESTS], left=1.0), waits=[WAITS])
    kinds = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in text_string_to_metric_families(text)
    }
    rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| ", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == kinds
    assert len(rows) == len(kinds)
