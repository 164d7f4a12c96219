"""proxy.process.relay: how much of a hostile client's requests is logged."""

import logging
from pathlib import Path

import pytest

from proxy.config import Address, Config, FleetOptions, QuotaSettings
from proxy.config.options import ReassignmentSettings
from proxy.process.relay import AGAIN_MS, KNOWN_MAX, Refusals, configured_names
from proxy.process.workers import part_of


def lines(caplog: pytest.LogCaptureFixture) -> int:
    return sum("Sluice's own" in record.getMessage() for record in caplog.records)


def test_one_line_for_each_address_and_api_in_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 0
    refused = Refusals(lambda: now_ms)
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            refused("User:a", "10.0.0.1:5", "x", "Produce")
        refused("User:a", "10.0.0.1:5", "x", "DeleteTopics")
        assert lines(caplog) == 2
        now_ms = AGAIN_MS
        refused("User:a", "10.0.0.1:5", "x", "Produce")
    assert lines(caplog) == 3


def test_many_addresses_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    refused = Refusals(lambda: 0)
    with caplog.at_level(logging.WARNING):
        for number in range(2 * KNOWN_MAX):
            refused("User:a", f"10.0.{number // 250}.{number % 250}", "x", "Produce")
    assert lines(caplog) == KNOWN_MAX


def test_workers_know_all_names(tmp_path: Path) -> None:
    config = Config(
        quotas=QuotaSettings(store="topic", topic="q", audit_topic="a"),
        fleet=FleetOptions(bind=Address("127.0.0.1", 1), group="g", secret_file=tmp_path / "secret"),
        reassignment=ReassignmentSettings(mode="batch", journal="topic", journal_topic="j"),
    )
    own = configured_names(config)
    assert own is not None
    assert {name for _, name in own.wanted} == {b"q", b"a", b"g", b"j"}
    part = part_of(config, 2)
    assert configured_names(part) == own
    assert part.fleet.secret_file is None
