"""What changes while clients are connected: quotas, mode, enforcement. No connection is touched."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import HOST, Cluster
from tests.conftest import CreateTopic
from tests.support.numbered import NumberedProducer
from tests.support.proxy_process import SluiceProcess, SluiceSettings, quotas_toml
from tests.support.raw_topics import batch, describe, produce_request
from tests.support.waiting import until
from tests.support.wire import wired

THROTTLED = "throttled"
RATE = 20_000  # bytes/s; the load sends several times as much


@pytest.fixture
def settings(kafka: Cluster) -> SluiceSettings:
    """A gateway that only observes."""
    return SluiceSettings(
        kafka.bootstrap(), quotas={"mode": "observe"}, client_quotas={THROTTLED: {"producer_byte_rate": RATE}}
    )


@pytest.fixture
def sluice(settings: SluiceSettings, tmp_path: Path) -> Iterator[SluiceProcess]:
    """The gateway."""
    with SluiceProcess.configured(settings, tmp_path) as process:
        yield process


@pytest.fixture
def enforcing(kafka: Cluster, tmp_path: Path) -> Iterator[SluiceProcess]:
    """A gateway in which the client may send 1,000 bytes/s."""
    quotas = {THROTTLED: {"producer_byte_rate": 1000}}
    with SluiceProcess.configured(
        SluiceSettings(kafka.bootstrap(), client_quotas=quotas), tmp_path
    ) as process:
        yield process


@pytest.fixture
def load(sluice: SluiceProcess, create_topic: CreateTopic) -> Iterator[NumberedProducer]:
    """A client far over its quota, connected to every broker."""
    name = create_topic(partitions=3)
    with NumberedProducer(
        sluice.bootstrap, name, partitions=3, client_id=THROTTLED, records_per_second=200
    ) as producer:
        producer.wait_for(200)
        yield producer
        sluice.signal(signal.SIGUSR1)  # whatever was tried, the rest may go out at once
        if not enforced(sluice):
            return
        sluice.signal(signal.SIGUSR1)


def rewrite(sluice: SluiceProcess, old: str, new: str) -> None:
    """Change the configuration, and wait until it has been read."""
    path = sluice.directory / "sluice.toml"
    before = sluice.metric("sluice_reloads_total")
    text = path.read_text()
    assert old in text, f"{old!r} is in the configuration"
    path.write_text(text.replace(old, new))
    until(lambda: sluice.metric("sluice_reloads_total") > before, "the file is read again")


def enforced(sluice: SluiceProcess) -> bool:
    return sluice.metric("sluice_enforcing") == 1


def throttled(sluice: SluiceProcess) -> float:
    return sluice.metric("sluice_client_throttled_requests_total", client_id=THROTTLED)


def opened(sluice: SluiceProcess) -> tuple[float, float]:
    """Connections ever opened, and open now."""
    return sluice.metric("sluice_connections_opened_total"), sluice.metric("sluice_connections")


def test_observed_client_is_reported_and_not_throttled(sluice: SluiceProcess, load: NumberedProducer) -> None:
    load.wait_for(200)
    name = "sluice_client_would_throttled_requests_total"
    until(lambda: sluice.metric(name, client_id=THROTTLED) > 0, "it would have been throttled")
    assert throttled(sluice) == 0


def test_reload_enforces_and_observes_again_and_touches_no_connection(
    sluice: SluiceProcess, load: NumberedProducer
) -> None:
    before = opened(sluice)
    rewrite(sluice, 'mode = "observe"', 'mode = "enforce"')
    until(lambda: throttled(sluice) > 0, "the client is throttled")
    rewrite(sluice, 'mode = "enforce"', 'mode = "observe"')
    load.wait_for(400, seconds=10)  # 400 kB: 20 s of its quota
    assert opened(sluice) == before


def test_signal_ends_and_resumes_all_throttling_and_touches_no_connection(
    sluice: SluiceProcess, load: NumberedProducer
) -> None:
    rewrite(sluice, 'mode = "observe"', 'mode = "enforce"')
    until(lambda: throttled(sluice) > 0, "the client is throttled")
    before = opened(sluice)
    for wanted in (False, True, False):
        sluice.signal(signal.SIGUSR1)
        until(lambda wanted=wanted: enforced(sluice) is wanted, "the switch is seen")  # type: ignore[misc]  # bound early
    load.wait_for(400, seconds=10)
    assert opened(sluice) == before


def test_wrong_configuration_is_counted_and_logged_and_keeps_the_old_one(
    sluice: SluiceProcess, load: NumberedProducer
) -> None:
    rewrite(sluice, 'mode = "observe"', 'mode = "enforced"')
    assert sluice.metric("sluice_reloads_total", result="refused") == 1
    assert "key=quotas.mode" in sluice.log()
    assert "'enforced'" in sluice.log()
    load.wait_for(200)
    assert throttled(sluice) == 0


@pytest.fixture
def muted(kafka: Cluster, enforcing: SluiceProcess, create_topic: CreateTopic) -> Iterator[SluiceProcess]:
    """The enforcing gateway, with one client that is muted for about 20 s."""
    topic = describe(kafka, create_topic(partitions=3))
    with wired((HOST, enforcing.ports.first_broker + 1), client_id=THROTTLED) as wire:
        wire.ask(produce_request(topic, topic.led_by(1)[0], batch([bytes(30_000)])))
        until(lambda: muted_channels(enforcing) == 1, "the client is muted")
        yield enforcing


def muted_channels(sluice: SluiceProcess) -> float:
    return sluice.metric("sluice_channels_muted")


def raise_quota(sluice: SluiceProcess) -> None:
    raised = quotas_toml({THROTTLED: {"producer_byte_rate": 1_000_000}})
    (sluice.directory / "quotas.toml").write_text(raised)


@pytest.mark.parametrize(
    "free", [raise_quota, lambda sluice: sluice.signal(signal.SIGUSR1)], ids=["quota", "signal"]
)
def test_muted_client_is_freed(muted: SluiceProcess, free: Callable[[SluiceProcess], None]) -> None:
    free(muted)
    until(lambda: muted_channels(muted) == 0, "the mute ends early", seconds=10)


def test_quota_that_stays_and_a_wrong_file_keep_a_client_muted(muted: SluiceProcess) -> None:
    muted.signal(signal.SIGHUP)
    until(lambda: muted.metric("sluice_reloads_total", result="ok") == 1, "the configuration is read again")
    assert muted_channels(muted) == 1
    wrong = quotas_toml({THROTTLED: {"producer_byte_rate": -1}})
    (muted.directory / "quotas.toml").write_text(wrong)
    until(lambda: muted.metric("sluice_reloads_total", result="refused") == 1, "the file is refused")
    assert muted_channels(muted) == 1
