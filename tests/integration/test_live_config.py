"""What changes while clients are connected: mode, enforcement, a muted client's quota. No connection is touched."""

import signal
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.gateway_fixture import gateway_fixture
from tests.support.numbered import NumberedProducer
from tests.support.proxy_process import SluiceProcess, quotas_toml
from tests.support.raw_topics import batch, describe, produce_request
from tests.support.waiting import until
from tests.support.wire import wired

THROTTLED = "throttled"
RATE = 20_000  # bytes/s; the load sends several times as much

sluice = gateway_fixture(
    "function", quotas={"mode": "observe"}, client_quotas={THROTTLED: {"producer_byte_rate": RATE}}
)
enforcing = gateway_fixture("function", client_quotas={THROTTLED: {"producer_byte_rate": 1000}})


@pytest.fixture
def muted(kafka: Cluster, enforcing: SluiceProcess, create_topic: CreateTopic) -> Iterator[SluiceProcess]:
    """The enforcing gateway, with one client that is muted for about 20 s."""
    topic = describe(kafka, create_topic(partitions=3))
    with wired(enforcing.ports.address(1), client_id=THROTTLED) as wire:
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


def rewrite(sluice: SluiceProcess, old: str, new: str) -> None:
    """Change the configuration, and wait until it has been read."""
    path = sluice.directory / "sluice.toml"
    before = sluice.metric("sluice_reloads_total")
    text = path.read_text()
    assert old in text, f"{old!r} is in the configuration"
    path.write_text(text.replace(old, new))
    until(lambda: sluice.metric("sluice_reloads_total") > before, "the file is read again")


def throttled(sluice: SluiceProcess) -> float:
    return sluice.metric("sluice_client_throttled_requests_total", client_id=THROTTLED)


def opened(sluice: SluiceProcess) -> tuple[float, float]:
    """Connections ever opened, and open now."""
    return sluice.metric("sluice_connections_opened_total"), sluice.metric("sluice_connections")


def test_mode_and_switch_hold_at_once_and_touch_no_connection(
    sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    name = create_topic(partitions=3)
    with NumberedProducer(
        sluice.bootstrap, name, partitions=3, client_id=THROTTLED, records_per_second=200
    ) as load:
        load.wait_for(200)
        before = opened(sluice)
        rewrite(sluice, 'mode = "observe"', 'mode = "enforce"')
        until(lambda: throttled(sluice) > 0, "the client is throttled")
        rewrite(sluice, 'mode = "enforce"', 'mode = "observe"')
        load.wait_for(400, seconds=10)  # 400 kB: 20 s of its quota
        rewrite(sluice, 'mode = "observe"', 'mode = "enforce"')
        for wanted in (0, 1, 0):
            sluice.signal(signal.SIGUSR1)
            until(lambda wanted=wanted: sluice.metric("sluice_enforcing") == wanted, "the switch is seen")  # type: ignore[misc]  # bound early
        load.wait_for(400, seconds=10)
        assert opened(sluice) == before
