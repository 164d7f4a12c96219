"""What /metrics shows of quotas in a topic."""

from collections.abc import Iterator
from typing import Protocol

from proxy.metrics.replication import Family
from proxy.quota_api.topic_store import TopicStore
from proxy.topics.records import CAUSES, Problem

_RESULTS = ("applied", "removed", "key", "value", "version", "size", "limit", "unsigned", "replayed")


class _Topic(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def problem(self) -> Problem | None: ...


class _Quotas(_Topic, Protocol):
    @property
    def write_problem(self) -> Problem | None: ...


class _Audit(_Topic, Protocol):
    @property
    def waiting(self) -> int: ...

    @property
    def appended(self) -> int: ...

    @property
    def dropped(self) -> int: ...


def families(store: TopicStore, log: _Quotas, audit: _Audit | None) -> Iterator[Family]:
    """Yield the metrics of the topic, its snapshot, and the audit topic."""
    yield _problems(log, audit)
    yield Family(
        "sluice_quota_topic_ready",
        "gauge",
        "1 when quotas were read from the topic or the snapshot",
        (),
        [((), float(store.ready))],
    )
    yield Family(
        "sluice_quota_topic_offset",
        "gauge",
        "The offset after the last record that was applied",
        (),
        [((), float(store.next_offset))],
    )
    yield Family(
        "sluice_quota_topic_records",
        "counter",
        "Records read from the quota topic",
        ("result",),
        [((result,), float(store.records[result])) for result in _RESULTS],
    )
    yield Family(
        "sluice_quota_topic_restored",
        "counter",
        "Records that were written again over ignored ones",
        (),
        [((), float(store.restored))],
    )
    yield Family(
        "sluice_quota_topic_unreadable",
        "gauge",
        "Limits whose last record cannot be read, so that processes may differ about them",
        (),
        [((), float(store.unreadable))],
    )
    yield Family(
        "sluice_quota_snapshot_writes",
        "counter",
        "Writes of the snapshot of the quota topic",
        ("result",),
        [((result,), float(store.snapshots[result])) for result in ("ok", "failed")],
    )
    yield Family(
        "sluice_quota_snapshot_timestamp_seconds",
        "gauge",
        "When this process last wrote the snapshot; 0: not yet",
        (),
        [((), store.snapshot_at)],
    )
    if audit is not None:
        events = (("appended", audit.appended), ("dropped", audit.dropped))
        yield Family(
            "sluice_audit_events",
            "counter",
            "Events of the audit topic",
            ("result",),
            [((result,), float(count)) for result, count in events],
        )
        yield Family(
            "sluice_audit_waiting",
            "gauge",
            "Events that wait for the audit topic",
            (),
            [((), float(audit.waiting))],
        )


def _problems(log: _Quotas, audit: _Audit | None) -> Family:
    problems = [(log.topic, log.problem or log.write_problem)]
    if audit is not None:
        problems.append((audit.topic, audit.problem))
    return Family(
        "sluice_internal_topic_problem",
        "gauge",
        "1 while a topic of Sluice cannot be read or appended to, by cause",
        ("topic", "cause"),
        [
            ((topic, cause), float(problem is not None and problem.cause == cause))
            for topic, problem in problems
            for cause in CAUSES
        ],
    )
