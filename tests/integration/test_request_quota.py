"""request_percentage on the real cluster: set by kafka-configs, it holds a client back that only asks."""

import secrets
import time

from protocol.api import METADATA
from tests.cluster import HOST, tools
from tests.conftest import CreateTopic
from tests.support.frames import request
from tests.support.gateway_fixture import gateway_fixture
from tests.support.proxy_process import SluiceProcess
from tests.support.wire import wired

SECONDS = 8.0
PERCENT = 2.0


# Short windows, so that what is free at the beginning is soon used up: 20 ms/s, 20 ms free.
sluice = gateway_fixture(quotas={"window_samples": 2, "window_seconds": 1})


def limit(sluice: SluiceProcess, client_id: str, percent: float) -> None:
    words = ("--alter", "--entity-type", "clients", "--entity-name", client_id)
    tools.configs(sluice.bootstrap, *words, "--add-config", f"request_percentage={percent}")


def ask_in_a_loop(sluice: SluiceProcess, client_id: str, seconds: float) -> tuple[int, int]:
    """Ask for all topics as often as responses come; how often that was, and the longest throttle time told."""
    longest_ms = asked = 0
    until = time.monotonic() + seconds
    with wired((HOST, sluice.ports.bootstrap), client_id) as wire:
        while time.monotonic() < until:
            asked += 1
            # Version 9: topics null; not to be created, no operations, no tags.
            frame = request(METADATA, 9, b"\0\0\0\0\0", correlation_id=asked, client_id=client_id)
            wire.send_bytes(frame)
            response = wire.receive()
            longest_ms = max(longest_ms, int.from_bytes(response[9:13], "big", signed=True))
    return asked, longest_ms


def test_looping_client_gets_its_share_and_others_are_not_slowed(sluice: SluiceProcess) -> None:
    limited, free = (f"{name}-{secrets.token_hex(4)}" for name in ("limited", "free"))
    limit(sluice, limited, PERCENT)
    asked, longest_ms = ask_in_a_loop(sluice, limited, SECONDS)
    assert 0 < longest_ms <= 1000
    spent = sluice.metric("sluice_client_request_seconds_total", client_id=limited)
    # One request may be charged beyond the quota every time, and waits a second at most for that.
    assert 0 < spent < 4 * SECONDS * PERCENT / 100
    assert (
        sluice.metric("sluice_client_throttle_seconds_total", client_id=limited, type="Request") > SECONDS / 4
    )
    asked_freely, told_ms = ask_in_a_loop(sluice, free, SECONDS / 4)
    assert told_ms == 0
    assert asked_freely / (SECONDS / 4) > 2 * asked / SECONDS
    assert sluice.metric("sluice_client_request_seconds_total", client_id=free) == 0


def test_consumer_that_waits_for_records_is_not_throttled(
    sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    client_id = f"waiting-{secrets.token_hex(4)}"
    # It waits nearly all of the time: half of that would be too much. What the broker works for it is far below, also
    # on a machine with other load.
    limit(sluice, client_id, 50.0)
    printed = tools.run(
        tools.CONSOLE_CONSUMER,
        *("--bootstrap-server", sluice.bootstrap, "--topic", create_topic(), "--timeout-ms", "10000"),
        *("--command-property", f"client.id={client_id}", "--command-property", "fetch.max.wait.ms=500"),
    )
    assert "Processed a total of 0 messages" in printed
    assert sluice.metric("sluice_client_request_seconds_total", client_id=client_id) > 0
    assert sluice.metric("sluice_client_throttled_requests_total", client_id=client_id, type="Request") == 0
