"""The figures of several processes as one."""

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from proxy.metrics.merging import Merging, Part, flat
from proxy.metrics.series import SERIES, QuotaSeries
from quotas.throttles.figures import QuotaView
from tests.support.engines import KnownClients

VIEW = QuotaView("", "a", "Produce", 1500.0, 2000.0, 5000, 2500, 3, 0, 0, 12.0, None, 1)


class Process:
    """A worker's side of scrapes."""

    def __init__(self, *views: QuotaView, waits: Sequence[QuotaView] = ()) -> None:
        self.views = list(views)
        self.waits = list(waits)
        self.series = QuotaSeries(KnownClients(self.views), 2000, lambda: self.waits)


def scrape(merging: Merging, processes: dict[int, Process]) -> dict[tuple[str, str], float]:
    """Return each sample by its name and client id."""
    for one in processes.values():
        list(one.series.weigh(0))
    chosen = merging.choose([one.series.weights() for one in processes.values()])
    parts = {}
    for number, one in processes.items():
        list(one.series.take(chosen, 0))
        parts[number] = Part(one.series.rows(), None, ())
    return by_name(merging.merge(parts))


def by_name(families: Iterable[Metric]) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("client_id", "")): sample.value
        for family in families
        for sample in family.samples
    }


def part(*families: Metric) -> Part:
    return Part({series: [] for series in SERIES}, None, flat(families))


def counter(value: float) -> Metric:
    return CounterMetricFamily("x", "text", value=value)


def test_client_of_two_processes_has_one_row() -> None:
    found = scrape(Merging(2000), {1: Process(VIEW), 2: Process(VIEW._replace(bytes_total=1000))})
    assert found["sluice_client_bytes_total", "a"] == 6000  # 5,000 + 1,000
    assert found["sluice_client_byte_rate", "a"] == 3000  # of one broker
    assert found["sluice_client_quota_byte_rate", "a"] == 2000
    assert found["sluice_client_debt_bytes", "a"] == 24


def test_rate_is_that_of_the_busiest_broker_over_all_processes() -> None:
    other = VIEW._replace(broker=2, byte_rate=2000.0)
    found = scrape(Merging(2000), {1: Process(VIEW, other), 2: Process(VIEW)})
    assert found["sluice_client_byte_rate", "a"] == 3000  # broker 1: 1,500 + 1,500; broker 2: 2,000


def test_process_that_ended_stays_in_counters() -> None:
    merging, first, second = Merging(2000), Process(VIEW), Process(VIEW)
    scrape(merging, {1: first, 2: second})
    merging.end(1)
    assert scrape(merging, {2: second})["sluice_client_bytes_total", "a"] == 10_000  # 5,000 + 5,000
    second.views[0] = VIEW._replace(bytes_total=5500)
    assert scrape(merging, {2: second, 3: Process()})["sluice_client_bytes_total", "a"] == 10_500


def test_process_that_does_not_respond_is_not_counted_twice_when_it_does() -> None:
    merging, first, second = Merging(2000), Process(VIEW), Process(VIEW)
    for processes in ({1: first, 2: second}, {2: second}, {1: first, 2: second}):
        assert scrape(merging, processes)["sluice_client_bytes_total", "a"] == 10_000


def test_waits_are_summed_and_the_longest_grows_as_in_one_process() -> None:
    def waits(all_ms: int, longest_ms: int) -> list[QuotaView]:
        return [VIEW._replace(bytes_total=all_ms, longest_wait_ms_total=longest_ms)]

    merging, first, second = Merging(2000), Process(waits=waits(9000, 5000)), Process(waits=waits(4000, 4000))
    found = scrape(merging, {1: first, 2: second})
    assert found["sluice_client_waited_seconds_total", "a"] == 13
    assert found["sluice_client_longest_wait_seconds_total", "a"] == 5
    first.waits, second.waits = waits(9500, 5500), waits(7000, 7000)  # 0.5 s, and 3 s
    found = scrape(merging, {1: first, 2: second})
    assert found["sluice_client_waited_seconds_total", "a"] == 16.5
    assert found["sluice_client_longest_wait_seconds_total", "a"] == 8
    merging.end(2)
    first.waits = waits(10_500, 6500)
    assert scrape(merging, {1: first, 3: Process()})["sluice_client_longest_wait_seconds_total", "a"] == 9


def test_all_processes_show_the_same_clients() -> None:
    merging = Merging(2000)
    many = [VIEW._replace(client_id=f"m{n}", bytes_total=10_000) for n in range(400)]
    processes = {1: Process(*many, VIEW), 2: Process(VIEW._replace(bytes_total=100_000))}
    found = scrape(merging, processes)
    assert found["sluice_client_bytes_total", "a"] == 105_000
    assert found["sluice_client_bytes_total", "<other>"] > 0
    total = sum(value for (name, _), value in found.items() if name == "sluice_client_bytes_total")
    assert total == 400 * 10_000 + 105_000


def test_counters_are_summed_and_do_not_fall_when_a_process_is_started_again() -> None:
    merging = Merging(100)
    assert by_name(merging.merge({1: part(counter(7)), 2: part(counter(3))}))["x_total", ""] == 10
    merging.end(1)
    assert by_name(merging.merge({2: part(counter(3)), 3: part(counter(1))}))["x_total", ""] == 11


def test_gauges_are_summed_or_as_their_name_wants_it() -> None:
    def gauges(value: float) -> Part:
        names = ("sluice_connections", "sluice_capture_bytes", "sluice_enforcing")
        return part(*(GaugeMetricFamily(name, "text", value=value) for name in names))

    found = by_name(Merging(100).merge({1: gauges(2), 2: gauges(3)}))
    assert found["sluice_connections", ""] == 5
    assert found["sluice_capture_bytes", ""] == 3
    assert found["sluice_enforcing", ""] == 2
