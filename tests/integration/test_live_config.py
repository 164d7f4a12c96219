"""What changes while clients are connected: quotas, mode, enforcement. No connection is touched."""

import signal
from collections.abc import Iterator

import pytest

from tests.conftest import CreateTopic
from tests.support.gateway_fixture import gateway_fixture
from tests.support.numbered import NumberedProducer
from tests.support.proxy_process import SluiceProcess
from tests.support.waiting import until

THROTTLED = "throttled"
RATE = 20_000  # bytes/s; the load sends several times as much


sluice = gateway_fixture(
    "function", quotas={"mode": "observe"}, client_quotas={THROTTLED: {"producer_byte_rate": RATE}}
)


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
