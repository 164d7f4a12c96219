"""`/v1/events` and `sluice enforcement` on the real cluster: what happens is told, once, with who and from where."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import HOST, Address, Cluster
from tests.conftest import CreateTopic
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.proxy_process import sluice as run
from tests.support.raw_topics import Topic, batch, describe, produce_request
from tests.support.waiting import until
from tests.support.wire import repeating

BYTES_PER_SECOND = 100_000
RECORDS = 20_000
SECONDS_MAX = 120.0
INSTANT = "%Y-%m-%dT%H:%M:%SZ"


@pytest.fixture
def settings(kafka: Cluster, tmp_path: Path) -> SluiceSettings:
    return SluiceSettings(
        kafka.bootstrap(),
        quotas={"window_samples": 2, "window_seconds": 1},
        client_quotas={"waits": {"producer_byte_rate": BYTES_PER_SECOND}},
        sections={"state": {"directory": str(tmp_path / "state")}},
    )


@pytest.fixture
def sluice(settings: SluiceSettings, tmp_path: Path) -> Iterator[SluiceProcess]:
    with SluiceProcess.configured(settings, tmp_path) as process:
        yield process


def events(sluice: SluiceProcess, kind: str) -> list[dict[str, Any]]:
    found = sluice.document("/v1/events?after=0&limit=1000")["events"]
    assert [one["id"] for one in found] == sorted({one["id"] for one in found})
    return [one for one in found if one["kind"] == kind]


def command(sluice: SluiceProcess, *words: str, code: int = 0) -> str:
    where = ("--admin", f"{HOST}:{sluice.ports.admin}")
    if words[0] != "enforcement":
        where = ("--bootstrap-server", sluice.bootstrap)
    return run(*words, *where, code=code)


def producing(address: Address, topic: Topic, client_id: str) -> AbstractContextManager[list[float]]:
    """A client that sends as fast as it may; yields how long each of its requests took."""
    return repeating(address, client_id, produce_request(topic, 0, batch([bytes(RECORDS)])))


def test_quota_change_is_told_with_old_and_new_value_and_who(sluice: SluiceProcess) -> None:
    command(sluice, "quotas", "set", "--client-id", "reports", "producer_byte_rate=2M")
    command(sluice, "quotas", "set", "--client-id", "reports", "producer_byte_rate=4M")
    first, second = events(sluice, "quota_changed")
    assert (first["entity"], first["key"]) == ("client-id 'reports'", "producer_byte_rate")
    assert (first["old"], first["new"]) == (None, 2e6)
    assert (second["old"], second["new"]) == (2e6, 4e6)
    assert (second["by"], second["from"]) == ("User:ANONYMOUS", HOST)
    assert "changed from 2.0 MB/s to 4.0 MB/s by User:ANONYMOUS from 127.0.0.1" in second["text"]
    log = sluice.log()
    assert log.count("quota altered") == 2
    assert "quota changed" not in log

    path = sluice.directory / "quotas.toml"
    text = path.read_text()
    assert text.count("4000000") == 1
    path.write_text(text.replace("4000000", "8000000"))
    until(lambda: len(events(sluice, "quota_changed")) == 3, "the file is read", SECONDS_MAX)
    third = events(sluice, "quota_changed")[-1]
    assert (third["old"], third["new"], third["by"], third["from"]) == (4e6, 8e6, "quotas.toml", "")
    [reloaded] = events(sluice, "config_reloaded")
    assert (reloaded["ok"], reloaded["quotas_changed"]) == (True, 1)
    assert sluice.metric("sluice_events_total", kind="quota_changed") == 3

    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    times = f"from={begin:{INSTANT}}; until={begin + timedelta(seconds=2):{INSTANT}}"
    command(sluice, "quotas", "set", "--client-id", "reports", "--when", times, "producer_byte_rate=1M")
    until(lambda: len(events(sluice, "quota_changed")) == 6, "the entry has begun and ended", SECONDS_MAX)
    *_, stated, begun, ended = events(sluice, "quota_changed")
    assert (stated["old"], stated["new"], stated["by"]) == (None, 1e6, "User:ANONYMOUS")
    assert (begun["entity"], begun["old"], begun["new"]) == ("client-id 'reports'", 8e6, 1e6)
    assert (ended["entity"], ended["old"], ended["new"]) == ("client-id 'reports'", 1e6, 8e6)
    assert begun["by"] == ended["by"] == "the times of its entries"

    config = sluice.directory / "sluice.toml"
    text = config.read_text()
    config.write_text(text.replace("[quotas]\n", '[quotas]\nmode = "observe"\n'))
    until(lambda: events(sluice, "mode_changed"), "the mode has changed", SECONDS_MAX)
    assert events(sluice, "mode_changed")[0]["new"] == "observe"
    assert not sluice.document("/v1/status")["enforcing"]
    config.write_text("[quotas\n")
    until(lambda: not events(sluice, "config_reloaded")[-1]["ok"], "the file is rejected", SECONDS_MAX)


def test_client_that_waits_begins_and_ends_and_enforcement_is_off_over_a_restart(
    settings: SluiceSettings, sluice: SluiceProcess, kafka: Cluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    topic = describe(kafka, create_topic())
    address = sluice.ports.address(topic.leaders[0])
    with producing(address, topic, "waits") as took:
        until(lambda: events(sluice, "client_waits"), "the client waits", SECONDS_MAX)
        [begun] = events(sluice, "client_waits")
        assert (begun["client_id"], begun["key"]) == ("waits", "producer_byte_rate")
        assert (begun["entity"], begun["value"]) == ("client-id 'waits'", BYTES_PER_SECOND)
        assert begun["part"] > 0.5
        assert command(sluice, "enforcement", "status").endswith("quotas are enforced\n")

        before = len(took)
        command(sluice, "enforcement", "off", "--reason", "orders are late")
        # A hundred requests would take 20 s under the quota.
        until(lambda: len(took) > before + 100, "requests are not throttled", SECONDS_MAX)
        assert "orders are late" in command(sluice, "enforcement", "status", code=3)
        assert "orders are late" in sluice.get("/")[1]
        assert "orders are late" in sluice.get("/clients")[1]
        assert sluice.metric("sluice_enforcement_off") == 1
        until(lambda: events(sluice, "client_waits_ended"), "the client waits no longer", SECONDS_MAX)
    [switched] = events(sluice, "enforcement_switched")
    assert (switched["from"], switched["reason"]) == (HOST, "orders are late")

    run = sluice.document("/v1/events")["run"]
    sluice.stop()
    with SluiceProcess(["--config", str(tmp_path / "sluice.toml")], settings.ports, tmp_path) as again:
        found = again.document("/v1/status")
        assert not found["enforcing"]
        assert found["switched"]["reason"] == "orders are late"
        assert "enforcement is still switched off" in again.log()
        assert again.document("/v1/events")["run"] != run
        with producing(address, topic, "waits") as took:
            until(lambda: len(took) > 50, "requests pass", SECONDS_MAX)
            assert max(took) < 5
            command(again, "enforcement", "on")
            until(lambda: took[-1] > 0.1, "requests are throttled again", SECONDS_MAX)
        assert again.document("/v1/status")["enforcing"]
        assert not again.document("/v1/events")["lost"]


def test_broker_that_dies_is_lost_and_back(sluice: SluiceProcess, kafka: Cluster) -> None:
    broker = 3
    kafka.kill_broker(broker)
    try:
        until(lambda: events(sluice, "broker_lost"), "the broker is lost", SECONDS_MAX)
    finally:
        kafka.start_broker(broker)
    assert [one["broker"] for one in events(sluice, "broker_lost")] == [broker]
    until(lambda: events(sluice, "broker_back"), "the broker is back", SECONDS_MAX)
    assert [one["broker"] for one in events(sluice, "broker_back")] == [broker]
    assert int(os.environ.get("SLUICE_PROCESS__WORKERS", "1")) == sluice.document("/v1/status")["workers"]
