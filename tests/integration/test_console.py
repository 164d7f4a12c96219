"""`sluice console` before two real proxies and brokers: clients of both on one page, live; one of them is stopped."""

import re
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.cluster import HOST, Cluster
from tests.conftest import CreateTopic
from tests.support.chromium import Watched, chromium
from tests.support.console_process import ConsoleProcess
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import Topic, batch, describe, produce_request
from tests.support.wire import repeating

BYTES_PER_SECOND = 100_000
RECORDS = 20_000
SECONDS_MAX = 60_000  # ms


def writing(sluice: SluiceProcess, topic: Topic, client_id: str) -> AbstractContextManager[object]:
    """A client that writes as fast as its responses come."""
    address = sluice.ports.address(topic.leaders[0])
    return repeating(address, client_id, produce_request(topic, 0, batch([bytes(RECORDS)])))


@pytest.mark.timeout(300)
def test_clients_of_two_proxies_are_on_one_page(
    kafka: Cluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    topic = describe(kafka, create_topic())
    quotas = {"held-back": {"producer_byte_rate": BYTES_PER_SECOND}}
    settings = SluiceSettings(
        kafka.bootstrap(), quotas={"window_samples": 2, "window_seconds": 1}, client_quotas=quotas
    )
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    other = SluiceSettings(kafka.bootstrap())
    with (
        SluiceProcess.configured(settings, tmp_path / "one") as first,
        SluiceProcess.configured(other, tmp_path / "two") as second,
        writing(first, topic, "held-back"),
        writing(second, topic, "free"),
        ConsoleProcess([f"{HOST}:{one.ports.admin}" for one in (first, second)], refresh=0.5) as console,
        chromium() as browser,
    ):
        page = browser.new_page()
        watched = Watched(page, console.url)
        page.goto(console.url + "?window=10")
        names = page.locator(".panel-clients tbody th .client")
        expect(names).to_have_text(["held-back", "free"], timeout=SECONDS_MAX)
        troubled = page.locator(".troubled li").first
        expect(troubled.locator(".sentence")).to_contain_text(
            "producer_byte_rate 100.0 kB/s", timeout=SECONDS_MAX
        )
        expect(page.locator(".panel-members")).to_contain_text("2 of 2 respond")
        second.signal(signal.SIGSTOP)
        try:
            silent = re.compile(rf"{HOST}:{second.ports.admin} does not respond since \d\d:\d\d:\d\d")
            expect(page.locator(".panel-banners")).to_contain_text(silent, timeout=SECONDS_MAX)
            expect(names).to_have_text(["held-back"], timeout=SECONDS_MAX)
        finally:
            second.signal(signal.SIGCONT)
        expect(page.locator(".panel-banners")).not_to_contain_text("does not respond", timeout=SECONDS_MAX)
        page.locator(".troubled").get_by_role("link", name="held-back").click()
        expect(page.locator(".panel-connections tbody th")).to_contain_text(HOST, timeout=SECONDS_MAX)
        expect(page.locator("svg.timeline path.line-muted")).to_have_count(1, timeout=SECONDS_MAX)
        watched.check()
