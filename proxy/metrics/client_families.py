"""The metric families of clients and topics, from the rows that `series` has chosen (KIP-13).

`exposition` calls this at the end of a scrape; docs/metrics.md describes each family.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from proxy.metrics.series import OTHER, Row

CLIENT_LABELS: Final = ("type", "user", "client_id")
TOPIC_LABELS: Final = ("type", "topic")


def of_clients(rows: Sequence[Row], others: Sequence[Row]) -> Iterator[Metric]:
    """The families of bytes and throttles, for each client."""
    text = "Bytes of requests (Produce) or responses (Fetch) that the quota counts"
    yield _of_rows("sluice_client_bytes", text, "bytes", rows)
    every = (*rows, *others)
    for name, text, field in (
        ("throttled_requests", "Requests that were throttled", "throttled"),
        (
            "would_throttled_requests",
            "Requests that would have been throttled if quotas were enforced",
            "would_throttled",
        ),
    ):
        yield _of_rows(f"sluice_client_{name}", text, field, every)
    for name, text, field in (
        ("throttle_seconds", "Time the client was throttled for", "throttle_ms"),
        (
            "would_throttle_seconds",
            "Time the client would have been throttled for if quotas were enforced",
            "would_throttle_ms",
        ),
    ):
        yield _of_rows(f"sluice_client_{name}", text, field, every, per=1000)
    rate = GaugeMetricFamily(
        "sluice_client_byte_rate", "Bytes/s over the quota's windows", labels=CLIENT_LABELS
    )
    quota = GaugeMetricFamily(
        "sluice_client_quota_byte_rate", "The quota in bytes/s; absent: none", labels=CLIENT_LABELS
    )
    debt = GaugeMetricFamily(
        "sluice_client_debt_bytes", "Bytes above the quota that are not paid for yet", labels=CLIENT_LABELS
    )
    for row in rows:
        labels = (row.type, row.user, row.client_id)
        rate.add_metric(labels, row.byte_rate)
        debt.add_metric(labels, row.debt_bytes)
        if row.quota is not None:
            quota.add_metric(labels, row.quota)
    yield from (rate, quota, debt)


def of_mutations(rows: Sequence[Row], cluster_tokens: float | None) -> Iterator[Metric]:
    """The families of partition mutations, for each client with some."""
    made = CounterMetricFamily(
        "sluice_client_mutations", "Partitions created, added and deleted", labels=CLIENT_LABELS[1:]
    )
    tokens = GaugeMetricFamily(
        "sluice_client_mutation_tokens",
        "Partition mutations left in the client's bucket; below 0: throttled",
        labels=CLIENT_LABELS[1:],
    )
    quota = GaugeMetricFamily(
        "sluice_client_quota_mutation_rate",
        "The quota in partition mutations/s; absent: none",
        labels=CLIENT_LABELS[1:],
    )
    for row in rows:
        labels = (row.user, row.client_id)
        made.add_metric(labels, row.totals.bytes)
        if row.tokens is not None and row.quota is not None:
            tokens.add_metric(labels, row.tokens)
            quota.add_metric(labels, row.quota)
    yield from (made, tokens, quota)
    whole = GaugeMetricFamily(
        "sluice_mutation_tokens", "Partition mutations left for all clients together; absent: unlimited"
    )
    if cluster_tokens is not None:
        whole.add_metric((), cluster_tokens)
    yield whole


def of_requests(rows: Sequence[Row]) -> Iterator[Metric]:
    """The families of request time, for each client with a request quota."""
    spent = CounterMetricFamily(
        "sluice_client_request_seconds", "Time that requests kept brokers busy", labels=CLIENT_LABELS[1:]
    )
    percentage = GaugeMetricFamily(
        "sluice_client_request_percentage",
        "Time that requests kept brokers busy, in percent of a second",
        labels=CLIENT_LABELS[1:],
    )
    quota = GaugeMetricFamily(
        "sluice_client_quota_request_percentage",
        "The quota in percent of a second; absent: none",
        labels=CLIENT_LABELS[1:],
    )
    for row in rows:
        labels = (row.user, row.client_id)
        spent.add_metric(labels, row.totals.bytes / 1_000_000)
        percentage.add_metric(labels, row.byte_rate)
        if row.quota is not None:
            quota.add_metric(labels, row.quota)
    yield from (spent, percentage, quota)


def of_topics(rows: Sequence[Row]) -> Iterator[Metric]:
    """The families of topics with quotas."""
    for name, text, field, per in (
        (
            "bytes",
            "Bytes of topics that have a quota, in requests (Produce) and responses (Fetch)",
            "bytes",
            1,
        ),
        ("throttled_requests", "Frames whose channel was muted for the topic", "throttled", 1),
        (
            "would_throttled_requests",
            "Frames whose channel would have been muted if quotas were enforced",
            "would_throttled",
            1,
        ),
        ("throttle_seconds", "Time channels were muted for the topic", "throttle_ms", 1000),
        (
            "would_throttle_seconds",
            "Time channels would have been muted if quotas were enforced",
            "would_throttle_ms",
            1000,
        ),
    ):
        yield _of_rows(f"sluice_topic_{name}", text, field, rows, per, topics=True)
    quota = GaugeMetricFamily("sluice_topic_quota_byte_rate", "The quota in bytes/s", labels=TOPIC_LABELS)
    debt = GaugeMetricFamily("sluice_topic_debt_bytes", "Bytes not yet paid for", labels=TOPIC_LABELS)
    for row in rows:
        debt.add_metric((row.type, row.client_id), row.debt_bytes)
        if row.quota is not None:
            quota.add_metric((row.type, row.client_id), row.quota)
    yield from (quota, debt)


def of_waits(rows: Sequence[Row]) -> Iterator[Metric]:
    """The families of clients' waits, by the kind of quota that they wait for."""
    text = "Time the client's connections were held or muted, of all of them together"
    yield _of_rows("sluice_client_waited_seconds", text, "bytes", rows, per=1000)
    # The rest of the clients has no connection that waits longest: their sum may grow by more than a second per second.
    named = [row for row in rows if row.client_id != OTHER]
    text = "Time the client's connection that waited longest in each minute was held or muted"
    yield _of_rows("sluice_client_longest_wait_seconds", text, "longest_wait_ms", named, per=1000)


def _of_rows(
    name: str, text: str, field: str, rows: Sequence[Row], per: int = 1, *, topics: bool = False
) -> Metric:
    counter = CounterMetricFamily(name, text, labels=TOPIC_LABELS if topics else CLIENT_LABELS)
    for row in rows:
        labels = (row.type, row.client_id) if topics else (row.type, row.user, row.client_id)
        counter.add_metric(labels, getattr(row.totals, field) / per)
    return counter
