"""The examples in the docstrings of benches and soak, and what each of them cannot show."""

import doctest
import math
from importlib import import_module

import pytest

from commandline.amounts import duration
from quotas.definitions.kinds import PRODUCER_BYTE_RATE
from tests.bench import figures, options, perf_tools
from tests.bench.accuracy import judge as accuracy
from tests.bench.lanes import haproxy_configuration
from tests.bench.offline import stage_seconds
from tests.bench.report import Bar, replace_between
from tests.bench.sections import decisions, metadata

MODULES = (
    *("clients", "figures", "options", "perf_tools", "process", "report"),
    *("sections.data_path", "sections.decisions", "sections.idle", "price.turns", "price.instructions"),
    *("fleet.bound", "fleet.probe", "fleet.quick_broker", "fleet.upgrade"),
)


@pytest.mark.parametrize(
    "module", [*(f"bench.{name}" for name in MODULES), "soak.hostile", "soak.pinger", "soak.judge"]
)
def test_examples_hold(module: str) -> None:
    found = doctest.testmod(import_module(f"tests.{module}"))
    assert found.attempted
    assert found.failed == 0


@pytest.mark.parametrize("events", [[(0.0, 3), (0.99, 3), (1.0, 3)], [(0.0, 3), (0.5, 3)]])
def test_largest_second_does_not_hold_its_own_end(events: list[tuple[float, int]]) -> None:
    assert figures.largest_second(events) == 6


@pytest.mark.parametrize("phase", [0.0, 0.1, 0.25, 0.499])
def test_steady_rate_does_not_depend_on_where_the_requests_fall(phase: float) -> None:
    # 1 MB each 0.5 s is 2 MB/s, whatever the phase; a plain count of 30 s would be 59 or 61 requests.
    events = [(phase + index / 2, 1_000_000) for index in range(100)]
    assert figures.steady_rate(events, 15.0, 45.0) == pytest.approx(2_000_000)


def test_steady_rate_of_bursts_counts_the_silence() -> None:
    # 20 MB each 10 s: 2 MB/s on average; within 29 s windows sliding over 1 s fall three bursts in most, two in few.
    events = [(float(at), 20_000_000) for at in range(0, 60, 10)]
    assert figures.steady_rate(events, 15.0, 45.0) == pytest.approx(60_000_000 / 29)


@pytest.mark.parametrize(
    ("words", "block", "written"),
    [
        ("", "bench", True),
        ("--quick", "bench", False),
        ("--only produce", "bench", False),
        ("--only produce --write", "bench", True),
        ("--capture", "capture", True),
        ("--identities", "identities", True),
        ("--identities --only tls", "identities", False),
        ("--python other/python", "bench", True),
    ],
)
def test_part_of_a_run_is_not_written_unasked(words: str, block: str, written: bool) -> None:
    found = options.parse(words.split())
    assert (found.block, found.write) == (block, written)


@pytest.mark.parametrize(
    "words", ["--python other/python --capture", "--capture --identities", "--only produce,speed"]
)
def test_options_that_exclude_each_other_are_refused(words: str) -> None:
    with pytest.raises(SystemExit):
        options.parse(words.split())


@pytest.mark.parametrize(
    ("words", "steady_after", "written"),
    [
        ("", 15.0, True),
        ("--seconds 12", 4.0, False),
        ("--policies schedule --only produce --seconds 45", 15.0, False),
    ],
)
def test_accuracy_is_written_whole_and_steady_after_a_third(
    words: str, steady_after: float, written: bool
) -> None:
    found = accuracy.parse_options(words.split())
    assert (found.steady_after, found.write) == (steady_after, written)


def test_bar_that_was_not_measured_is_not_met() -> None:
    assert Bar("cost", None, 1.0).row() == ("cost", "≤ 1 ×", "–", "NOT MEASURED")
    assert Bar("lost", 1.0, 0.0).verdict == "MISSED"


def test_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no markers"):
        replace_between("text", "bench", "content")


def test_producer_tool_last_line_is_the_total() -> None:
    printed = (
        "300 records sent, 60.0 records/sec (0.06 MB/sec), 1.0 ms avg latency, 2.0 ms max latency.\n"
        "1000000 records sent, 150000.00 records/sec (143.05 MB/sec), 9.10 ms avg latency, 80.00 ms max latency,"
        " 5 ms 50th, 20 ms 95th, 40 ms 99th, 70 ms 99.9th.\n"
    )
    assert perf_tools.parse_producer(printed) == perf_tools.Throughput(1_000_000, 150.0)


@pytest.mark.parametrize(("descriptors", "connections"), [(20_000, 9876), (65_536, 12_000)])
def test_haproxy_asks_for_no_more_descriptors_than_there_are(descriptors: int, connections: int) -> None:
    # (20000 - 2 · 64 pipes - 120 of its own) / 2
    assert f"maxconn {connections}\n" in haproxy_configuration(1, 2, descriptors)


def test_entities_of_every_level_are_asked() -> None:
    found = decisions.definitions(1000)
    levels = {found.limit(PRODUCER_BYTE_RATE, *who)[1] for who in decisions.ASKING}
    assert len(levels) == len(decisions.ASKING) - 1  # one user has one bucket for all its client ids
    costs = [*decisions.levels("schedule", (1, 10), 1000), *decisions.client_ids("kip13", 50, 1000)]
    assert all(0 < cost < math.inf for pair in costs for cost in pair)


def test_metadata_rewriting_is_timed() -> None:
    assert all(0 < spent < 1000 for spent in metadata.rewrite_times(topics=2, partitions_per_topic=3))


@pytest.mark.parametrize(
    ("seconds", "read"), [(0.25, 0.25), (59.94, 59.9), (60.0, 60.0), (163.2, 163.0), (3_725.0, 3_720.0)]
)
def test_time_of_a_stage_is_read_as_printed(seconds: float, read: float) -> None:
    text = f"a line before\ningest: done in {duration(seconds)}\nreport: done in 5.7 s\n"
    assert stage_seconds(text) == {"ingest": read, "report": 5.7}
