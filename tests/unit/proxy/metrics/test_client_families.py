"""proxy.metrics.series: what is absent and what is in which unit; test_metrics reads the whole page."""

from proxy.metrics.series import Row, Totals, of_clients, of_mutations, of_requests, of_topics


def row(kind: str, quota: float | None = None) -> Row:
    totals = Totals(bytes=2_500_000, throttle_ms=1500, throttled=3)
    return Row(kind, "u", "c", 25.0, quota, 7.0, totals)


def test_time_of_requests_is_in_seconds_and_percent() -> None:
    spent, percentage, quota = of_requests([row("Request", 12.5)])
    assert [sample.value for family in (spent, percentage, quota) for sample in family.samples] == [
        2.5,
        25,
        12.5,
    ]


def test_unlimited_client_has_no_quota() -> None:
    families = [*of_clients([row("Fetch")], []), *of_requests([row("Request")]), *of_topics([row("Fetch")])]
    named = {family.name for family in families if family.samples}
    assert not {name for name in named if "quota" in name}
    assert {"sluice_client_bytes", "sluice_client_request_seconds", "sluice_topic_bytes"} <= named


def test_throttles_of_every_kind_are_in_one_family() -> None:
    families = {
        family.name: family for family in of_clients([row("Fetch")], [row("Request"), row("Produce")])
    }
    kinds = [sample.labels["type"] for sample in families["sluice_client_throttle_seconds"].samples]
    assert kinds == ["Fetch", "Request", "Produce"]
    assert [sample.labels["type"] for sample in families["sluice_client_bytes"].samples] == ["Fetch"]


def test_tokens_of_the_cluster_are_absent_where_nothing_limits_it() -> None:
    for tokens, expected in ((None, []), (3.5, [3.5])):
        whole = list(of_mutations([], tokens))[-1]
        assert [sample.value for sample in whole.samples] == expected
