"""What sections make of their figures, without brokers."""

import doctest
import math
from pathlib import Path
from types import ModuleType

import pytest

from quotas.definitions.kinds import PRODUCER_BYTE_RATE
from tests.bench import options, perf_tools
from tests.bench.lanes import haproxy_configuration
from tests.bench.sections import data_path, decisions, idle, metadata


@pytest.mark.parametrize("module", [options, perf_tools, decisions, idle, data_path])
def test_examples_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_producer_tool_last_line_is_the_total() -> None:
    printed = (
        "300 records sent, 60.0 records/sec (0.06 MB/sec), 1.0 ms avg latency, 2.0 ms max latency.\n"
        "1000000 records sent, 150000.00 records/sec (143.05 MB/sec), 9.10 ms avg latency, 80.00 ms max latency,"
        " 5 ms 50th, 20 ms 95th, 40 ms 99th, 70 ms 99.9th.\n"
    )
    assert perf_tools.parse_producer(printed) == perf_tools.Throughput(1_000_000, 150.0)


def test_consumer_tool_is_read_without_its_rebalance_time() -> None:
    printed = (
        "2026-11-21 08:00:00:000, 2026-11-21 08:00:05:000, 953.6743, 190.7349, 1000000, 200000.0000, 3000, 2000,"
        " 476.8372, 500000.0000\n"
    )
    assert perf_tools.parse_consumer(printed) == perf_tools.Throughput(1_000_000, 500.0)


def test_haproxy_asks_for_no_more_descriptors_than_there_are() -> None:
    # (20000 - 2 · 64 pipes - 120 of its own) / 2
    assert "maxconn 9876\n" in haproxy_configuration(1, 2, descriptors=20_000)
    assert "maxconn 12000\n" in haproxy_configuration(1, 2, descriptors=65_536)
    assert "option splice-auto" in haproxy_configuration(1, 2, descriptors=1024)


def test_haproxy_ends_tls_where_it_is_given_a_certificate() -> None:
    assert ":1 ssl crt store.pem\n" in haproxy_configuration(1, 2, 1024, Path("store.pem"))
    assert "ssl" not in haproxy_configuration(1, 2, 1024)


def test_client_ids_are_measured_in_three_ways() -> None:
    assert [min(cost) > 0 for cost in decisions.client_ids("kip13", 50, decisions=1000)] == [True] * 3


def test_entities_of_every_level_are_asked() -> None:
    found = decisions.definitions(1000)
    levels = {found.limit(PRODUCER_BYTE_RATE, *who)[1] for who in decisions.ASKING}
    assert len(levels) == len(decisions.ASKING) - 1  # one user has one bucket for all its client ids
    costs = decisions.levels("schedule", (1, 10), decisions=1000)
    assert all(0 < cost < math.inf for pair in costs for cost in pair)


def test_metadata_rewriting_is_timed() -> None:
    assert all(0 < spent < 1000 for spent in metadata.rewrite_times(topics=2, partitions_per_topic=3))
