"""Points of series -> requests, with exact numbers, and what the requests make of the needed quota."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from offline.errors import InputError
from offline.imports.labels import Client, Reading
from offline.imports.rates import Rates, Samples, Track
from quotas.backtest.outcomes import backtest
from quotas.backtest.recording import recording_of
from quotas.options import EngineOptions
from tests.support.captures import schema

START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC
JMX = {"__name__": "kafka_server_quota_byte_rate", "resource": "Produce", "clientId": "web"}
NAN = float("nan")


def points(values: Iterable[float], step_s: float = 15.0, **labels: str) -> Samples:
    """Points of a producer that begin at the first step's end."""
    found = np.array(list(values), np.float64)
    at_ms = START_MS + ((np.arange(len(found)) + 1) * step_s * 1000).astype(np.int64)
    return Samples({**JMX, **labels}, at_ms, found, "a.json")


def throttle(*values: float) -> Samples:
    found = points(values, instance="1")
    return found._replace(labels={**found.labels, "__name__": "kafka_server_quota_throttle_time"})


def surveyed(*series: Samples, step_ms: int = 0) -> Rates:
    rates = Rates(lambda: series, Reading(), step_ms)
    rates.survey()
    return rates


def rows(rates: Rates) -> list[dict[str, Any]]:
    """The requests, without the marks of what was recorded."""
    table = pa.concat_tables(rates.tables(schema()))
    return [row for row in table.to_pylist() if row["api_key"] != 3]


def spans(track: Track, values: list[float], times_s: list[float]) -> list[tuple[float, float, int]]:
    found = track.spans(np.array(times_s, np.int64) * 1000, np.array(values, np.float64))
    columns = (found.start_ms / 1000, found.end_ms / 1000, found.size)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_rate_is_of_the_step_before_its_point() -> None:
    track = Track(15_000, counter=False)
    assert spans(track, [10.0, 0.0, 2.0], [15, 30, 45]) == [(0, 15, 150), (15, 30, 0), (30, 45, 30)]
    assert (track.points, track.missing) == (3, 0)


def test_missing_points_and_nan_are_gaps_and_no_zeros() -> None:
    track = Track(15_000, counter=False)
    assert spans(track, [10.0, 7.0], [15, 60]) == [(0, 15, 150), (45, 60, 105)]
    assert track.missing == 2
    assert spans(track, [NAN, 7.0], [75, 90]) == [(75, 90, 105)]
    assert track.missing == 3


def test_uneven_distances_of_scrapes_are_no_gaps() -> None:
    track = Track(15_000, counter=False)
    assert spans(track, [10.0, 10.0, 10.0], [15, 32, 45]) == [(0, 15, 150), (15, 32, 170), (32, 45, 130)]
    assert track.missing == 0


def test_counter_is_differences_and_begins_anew_after_a_reset() -> None:
    track = Track(15_000, counter=True)
    assert spans(track, [1000.0, 1150.0, 40.0, 90.0], [15, 30, 45, 60]) == [
        (15, 30, 150),
        (30, 45, 40),
        (45, 60, 50),
    ]
    assert track.resets == 1


def test_what_a_counter_counted_over_a_gap_is_left_out_and_told() -> None:
    track = Track(15_000, counter=True)
    assert spans(track, [1000.0, 4000.0, 4100.0], [15, 60, 75]) == [(60, 75, 100)]
    assert (track.missing, track.left_out) == (2, 3000)


def test_pieces_of_a_series_are_the_same_as_the_whole() -> None:
    whole = spans(Track(15_000, counter=True), [5.0, 9.0, 2.0, 6.0], [15, 30, 45, 60])
    track = Track(15_000, counter=True)
    parts = spans(track, [5.0, 9.0], [15, 30]) + spans(track, [9.0, 2.0, 6.0], [30, 45, 60])
    assert parts == whole


@pytest.mark.parametrize(
    ("values", "times", "said"),
    [
        ([1.0, 1.0], [30, 15], "goes back in time"),
        ([-1.0], [15], "value -1"),
        ([float("inf")], [15], "value inf"),
    ],
)
def test_impossible_points_are_named(values: list[float], times: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        spans(Track(15_000, counter=False), values, times)


def test_all_bytes_are_in_the_requests_of_their_step_and_evenly_spread() -> None:
    made = rows(surveyed(points([1_000_000, 500_000, 0, 100_001])))
    # 15 MB as 15 requests of a second's bytes; 7.5 MB as 8; nothing; 1,500,015 B as 2.
    size = [row["request_bytes"] for row in made]
    assert size == [1_000_000] * 15 + [937_500] * 8 + [750_007, 750_008]
    at_s = [(row["wall_ms"] - START_MS) / 1000 for row in made]
    assert at_s == [*range(15), *(15 + 1.875 * number for number in range(8)), 45, 52.5]
    assert [row["seq"] for row in made] == list(range(25))
    assert {row["mono_us"] - row["wall_ms"] * 1000 for row in made} == {0}
    assert {(row["client_id"], row["principal"], row["broker"]) for row in made} == {("web", "ANONYMOUS", -1)}


def test_fetch_is_half_a_second_of_bytes_in_the_response() -> None:
    made = rows(surveyed(points([1_000_000], resource="Fetch"), step_ms=15_000))
    assert [(row["api_key"], row["response_bytes"], row["upstream_us"]) for row in made] == [
        (1, 500_000, 0)
    ] * 30


def test_small_clients_have_one_request_a_step() -> None:
    assert [row["request_bytes"] for row in rows(surveyed(points([2000.0, 1000.0])))] == [30_000, 15_000]


def test_what_no_client_reported_is_not_recorded() -> None:
    rates = surveyed(points([1e6, NAN, NAN, 1e6, 0.0]))
    at = [(start - START_MS, end - START_MS) for start, end in rates.recorded]
    assert at == [(0, 15_000), (45_000, 75_000)]
    marks = [row for row in pa.concat_tables(rates.tables(schema())).to_pylist() if row["api_key"] == 3]
    # The step of zeros at the end has no request, and was recorded.
    assert [row["wall_ms"] - START_MS for row in marks] == [0, 14_999, 45_000, 74_999]
    assert len({row["process"] for row in marks}) == 2


def test_brokers_have_ids_connections_and_times_of_their_own() -> None:
    rates = surveyed(
        points([1e6], instance="kafka-4:9404"), points([1e6], instance="kafka-7:9404"), step_ms=15_000
    )
    made = rows(rates)
    assert {(row["broker"], row["connection"]) for row in made} == {(4, 1), (7, 2)}
    first = {row["broker"]: row["wall_ms"] - START_MS for row in reversed(made)}
    assert first == {4: 0, 7: 500}
    assert "broker 4 is kafka-4:9404" in rates.lines()


def test_user_and_client_id_are_what_kafka_means() -> None:
    (row,) = rows(surveyed(points([1000.0], user="CN%3Dann%2COU%3Dx", clientId='"a\\*b"'), step_ms=15_000))
    assert (row["principal"], row["client_id"]) == ("CN=ann,OU=x", "a*b")


def need(rates: Rates, consumes: bool, policy: Any) -> float:
    """The smallest quota, in parts of 1 MB/s, that makes the client wait for less than a thousandth of the time."""
    made = rows(rates)
    column = {
        name: np.array([row[name] for row in made], np.int64)
        for name in ("connection", "mono_us", "upstream_us")
    }
    recording = recording_of(
        connection=column["connection"],
        at_us=column["mono_us"],
        sizes=np.array([row["response_bytes" if consumes else "request_bytes"] for row in made], np.int64),
        service_us=column["upstream_us"],
        consumes=consumes,
    )
    tried = [factor / 100 * 1e6 for factor in range(80, 131)]
    engine = EngineOptions(policy=policy, scope="cluster")
    found = backtest(recording, tried, engine, start_s=START_MS // 1000, seconds=700)
    return next(each.limit for each in found.each if each.throttle_ms - each.idle_ms <= 600) / 1e6


@pytest.mark.parametrize("resource", ["Produce", "Fetch"])
@pytest.mark.parametrize("step_s", [15.0, 60.0])
def test_constant_rate_needs_itself(resource: str, step_s: float) -> None:
    rates = surveyed(points([1e6] * int(600 / step_s), step_s, resource=resource))
    assert need(rates, resource == "Fetch", "schedule") == 1.0
    assert need(rates, resource == "Fetch", "kip13") <= (1.05 if resource == "Fetch" else 1.10)


@pytest.mark.parametrize("resource", ["Produce", "Fetch"])
def test_rate_that_changes_needs_its_highest_step(resource: str) -> None:
    values = [3e5, 1e6, 1e5, 8e5, 0.0, 9.5e5, 5e5, 1e6] * 5
    rates = surveyed(points(values, resource=resource))
    assert 0.99 <= need(rates, resource == "Fetch", "schedule") <= 1.0


@pytest.mark.parametrize("resource", ["Produce", "Fetch"])
def test_three_brokers_need_their_sum(resource: str) -> None:
    each = [
        points([1e6 / 4, 1e6 / 2] * 20, instance=f"kafka-{number}:1", resource=resource) for number in (0, 1)
    ]
    rates = surveyed(*each, points([1e6 / 2, 0.0] * 20, instance="kafka-2:1", resource=resource))
    assert 0.99 <= need(rates, resource == "Fetch", "schedule") <= 1.01


@pytest.mark.parametrize("resource", ["Produce", "Fetch"])
@pytest.mark.parametrize("policy", ["schedule", "kip13"])
def test_brokers_whose_rates_vary_by_themselves_need_about_the_highest_sum(
    resource: str, policy: str
) -> None:
    share = np.random.default_rng(3).lognormal(0, 0.5, (3, 40))
    rate = share * (1e6 / share.sum(0).max())
    brokers = [points(rate[each], instance=f"kafka-{each}:1", resource=resource) for each in range(3)]
    assert 0.85 <= need(surveyed(*brokers), resource == "Fetch", policy) <= 1.2


def test_source_says_what_is_not_known() -> None:
    fine = surveyed(points([1e6, 1e6], instance="1"), throttle(NAN, NAN))
    assert fine.source() == (
        "medium: rates by steps of 15 s, so bursts within a step are not known; a broker's byte-rate is the mean of "
        "its last 11 s, so the rest of a step is not measured unless the query averages; requests and connections are "
        "not known"
    )
    held = surveyed(points([1e6, 1e6], instance="1"), throttle(NAN, 300.0))
    assert held.source().startswith("low: ")
    assert held.source().endswith("; throttled while recorded and so needs more than was seen: web")
    coarse = surveyed(points([1e6, NAN, 1e6], 60.0)).source()
    assert coarse.startswith("low: rates by steps of 60 s")
    assert "whether clients were throttled is not known" in coarse
    assert "33.3% of the points are missing" in coarse
    assert "which broker it was is not known" in coarse


def test_counters_are_read_as_sluice_writes_them() -> None:
    labels = {"__name__": "sluice_client_bytes_total", "type": "Produce", "client_id": "web"}
    samples = Samples(labels, START_MS + np.array([0, 15_000, 30_000]), np.array([5e6, 6e6, 9e6]), "a.json")
    rates = surveyed(samples)
    assert rates.found[Client("produce", "", "web", "")].size == 4_000_000
    assert "11 s" not in rates.source()


def test_two_series_of_one_client_at_one_broker_are_refused() -> None:
    with pytest.raises(InputError, match=r"a\.json: the series .*clientId=\"web\".* \(sum by"):
        surveyed(points([1.0, 1.0], pod="x", job="a"), points([1.0, 1.0], pod="x", job="b"))


def test_nothing_to_import_says_what_is_wrong_with_the_series() -> None:
    with pytest.raises(InputError, match=r"no bytes of any client .*request quota, which no stage sizes"):
        surveyed(points([1.0, 1.0], resource="Request"))


def test_too_much_is_refused_before_anything_is_written() -> None:
    values = np.full(400, 1e9)
    each = [
        Samples({**JMX, "clientId": str(n)}, np.arange(1, 401) * 86_400_000, values, "b.json")
        for n in range(20)
    ]
    with pytest.raises(InputError, match=r"400\.0 days of 20 series would become 6\d\d,\d{3},\d{3} requests"):
        surveyed(*each)
