"""SIGTERM drains: each request gets a response, what is acknowledged is there, and the process ends with 0.

And with `reuse_port` a new process takes over the ports before the old one drains.
"""

import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import HOST, Cluster
from tests.conftest import CreateTopic
from tests.support.numbered import NumberedProducer, lost
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings
from tests.support.raw_topics import Topic, batch, describe, fetch_request, produce_request
from tests.support.waiting import until
from tests.support.wire import Wire, request, wired
from tests.unit.protocol.kafka_frames import framed

METADATA, LEADER = 3, 1
DRAIN_SECONDS = 15
LONG_POLL_MS = 3000
FETCH_VERSION = 11


@pytest.fixture
def settings(kafka: Cluster) -> SluiceSettings:
    """A gateway in which the client `throttled` may send 1,000 bytes/s."""
    return SluiceSettings(
        kafka.bootstrap(),
        client_quotas={"throttled": {"producer_byte_rate": 1000}},
        sections={"limits": {"drain_seconds": DRAIN_SECONDS}},
    )


@pytest.fixture
def sluice(settings: SluiceSettings, tmp_path: Path) -> Iterator[SluiceProcess]:
    """A gateway that the test itself ends."""
    process = SluiceProcess.configured(settings, tmp_path)
    try:
        yield process.wait_ready()
    finally:
        process.stop()


@pytest.fixture
def topic(kafka: Cluster, create_topic: CreateTopic) -> Topic:
    """An empty topic, whose Fetches get responses when their time is over."""
    return describe(kafka, create_topic(partitions=3))


def ended(sluice: SluiceProcess, seconds: float) -> int:
    """The exit code of a process that was told to stop; it has so many seconds."""
    until(lambda: not sluice.alive(), sluice.log, seconds, 0.02)
    return sluice.stop()


def draining(sluice: SluiceProcess) -> str:
    """Tell a process to stop, and give what /readyz says as soon as it is not ready."""
    sluice.signal(signal.SIGTERM)
    while True:
        status, text = sluice.get("/readyz")
        if status == 503:
            return text


def long_poll(sluice: SluiceProcess, topic: Topic, wire: Wire, max_wait_ms: int = LONG_POLL_MS) -> None:
    """Ask for records that are not there, and do not wait for the response."""
    asked = fetch_request(topic, {topic.led_by(LEADER)[0]: 0}, version=FETCH_VERSION, max_wait_ms=max_wait_ms)
    before = sluice.metric("sluice_requests_total", api="Fetch")
    wire.send(asked)
    while sluice.metric("sluice_requests_total", api="Fetch") == before:
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_told_to_stop_while_it_starts_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with socket.create_server((HOST, 0)) as mute:  # a broker that says nothing
        settings = SluiceSettings(f"{HOST}:{mute.getsockname()[1]}")
        sluice = SluiceProcess.configured(settings, tmp_path)
        mute.accept()[0].close()  # it asks for Metadata: it is starting
        sluice.signal(number)
        assert ended(sluice, 10) == 0


def test_draining_process_delivers_what_it_owes_is_not_ready_and_takes_no_new_connection(
    sluice: SluiceProcess, topic: Topic
) -> None:
    with wired(sluice.ports.address(LEADER)) as wire:
        long_poll(sluice, topic, wire)
        assert draining(sluice).startswith("not ready: draining")
        until(lambda: not connects(sluice.ports.bootstrap), "no connection is taken")
        assert wire.receive()


def connects(port: int) -> bool:
    """Whether a port is bound."""
    try:
        socket.create_connection((HOST, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_second_signal_ends_at_once(sluice: SluiceProcess, topic: Topic) -> None:
    with wired(sluice.ports.address(LEADER)) as wire:
        long_poll(sluice, topic, wire, max_wait_ms=60_000)
        draining(sluice)
        sluice.signal(signal.SIGTERM)
        assert ended(sluice, 3) == 0


def test_response_that_does_not_come_is_waited_for_no_longer_than_the_limit(
    settings: SluiceSettings, tmp_path: Path, topic: Topic
) -> None:
    short = replace(settings, sections={"limits": {"drain_seconds": 1}})
    sluice = SluiceProcess.configured(short, tmp_path).wait_ready()
    with wired(sluice.ports.address(LEADER)) as wire:
        long_poll(sluice, topic, wire, max_wait_ms=60_000)
        sluice.signal(signal.SIGTERM)
        assert ended(sluice, 5) == 0


def test_muted_client_does_not_hold_the_process_up(sluice: SluiceProcess, topic: Topic) -> None:
    with wired(sluice.ports.address(LEADER), client_id="throttled") as wire:
        wire.send(produce_request(topic, topic.led_by(LEADER)[0], batch([bytes(30_000)])))  # muted for 20 s
        wire.receive()
        assert sluice.metric("sluice_channels_muted") == 1
        sluice.signal(signal.SIGTERM)
        assert ended(sluice, DRAIN_SECONDS / 2) == 0


def test_request_behind_a_mute_gets_a_response(sluice: SluiceProcess, topic: Topic) -> None:
    with wired(sluice.ports.address(LEADER), client_id="throttled") as wire:
        asked = produce_request(topic, topic.led_by(LEADER)[0], batch([bytes(30_000)]))
        # Both in one write: the second one has been read when the first one mutes.
        both = framed(asked, 1, "throttled") + framed(request(METADATA, 9, topics=[]), 2, "throttled")
        wire.send_bytes(both)
        wire.receive()
        sluice.signal(signal.SIGTERM)
        assert wire.receive()


def test_drain_under_load_ends_before_its_limit_loses_nothing_and_is_no_error(
    kafka: Cluster, sluice: SluiceProcess, settings: SluiceSettings, tmp_path: Path, topic: Topic
) -> None:
    with NumberedProducer(sluice.bootstrap, topic.name, partitions=3, records_per_second=2000) as load:
        load.wait_for(500)
        sluice.signal(signal.SIGTERM)
        assert ended(sluice, DRAIN_SECONDS / 2) == 0
        assert "connection ended" not in sluice.log()
        with SluiceProcess.configured(replace(settings, ports=sluice.ports), tmp_path):
            load.wait_for(300)
            load.stop()
    assert (load.failed, lost(load, kafka.bootstrap())) == ([], [])


def test_rolling_upgrade_under_load_loses_nothing(
    kafka: Cluster, tmp_path: Path, create_topic: CreateTopic
) -> None:
    name = create_topic(partitions=3)
    ports = SluicePorts.free()
    shared = SluiceSettings(kafka.bootstrap(), ports, listener={"reuse_port": True})
    old = SluiceProcess.configured(shared, tmp_path).wait_ready()
    with NumberedProducer(old.bootstrap, name, partitions=3) as load:
        load.wait_for(300)
        for _ in range(2):
            new = SluiceProcess.configured(shared, tmp_path).wait_ready()
            assert old.stop() == 0
            load.wait_for(300)
            old = new
        load.stop()
    assert old.stop() == 0
    assert (load.failed, lost(load, kafka.bootstrap())) == ([], [])
