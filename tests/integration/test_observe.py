"""What observing predicts on the real cluster, beside what enforcing does to the same load.

Each load is a client of its own that waits for its responses. Windows are short, so that what is free at the beginning
is soon used up. How exact predictions are is the subject of tests/property/test_quotas_observed.py, in virtual time;
here the bounds leave room for a busy machine.
"""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import Topic, batch, describe, fetch_request, produce_request, write
from tests.support.waiting import until
from tests.support.wire import wired

SECONDS = 14.0  # more than the window of the response
BYTES_PER_SECOND = 100_000
RECORD_BYTES = 20_000
# How many requests without a pause, and the pause, by load; the quota has a request every 200 ms.
RHYTHMS = {"produces": (1, 0.05), "fetches": (1, 0.08), "floods": (1, 0.0), "bursts": (10, 2.0)}


@pytest.mark.parametrize("policy", ["kip13", "schedule"])
def test_observing_predicts_what_enforcing_does(
    policy: str, kafka: Cluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    topic = describe(kafka, create_topic())
    read = describe(kafka, create_topic())
    write(kafka.address(read.leaders[0]), read, 0, batch([bytes(RECORD_BYTES)]))
    settings = SluiceSettings(
        kafka.bootstrap(),
        quotas={
            "policy": policy,
            "mode": "observe",
            "window_samples": 2,
            "window_seconds": 1,
            "producer_default": BYTES_PER_SECOND,
            "consumer_default": BYTES_PER_SECOND,
        },
    )
    with SluiceProcess.configured(settings, tmp_path) as sluice:
        observed = run_loads(sluice, topic, read, "observed")
        path = sluice.directory / "sluice.toml"
        path.write_text(path.read_text().replace('mode = "observe"', 'mode = "enforce"'))
        until(lambda: sluice.metric("sluice_enforcing") == 1, "quotas are enforced")
        enforced = run_loads(sluice, topic, read, "enforced")
    for load in RHYTHMS:
        predicted = observed[load]["predicted"]
        waited = enforced[load]["time"]["held"] + enforced[load]["time"]["muted"]
        print(policy, load, predicted["throttled_part"], waited, observed[load]["sentence"])
        assert predicted["throttled_part"] == pytest.approx(waited, rel=0.2, abs=0.2)
        assert predicted["rule"]["value"] == BYTES_PER_SECOND
        assert enforced[load]["predicted"] is None
        if load != "bursts":
            assert predicted["admitted_rate"] == BYTES_PER_SECOND
            assert predicted["backlog_bytes"] > BYTES_PER_SECOND
        assert observed[load]["time"]["held"] + observed[load]["time"]["muted"] == 0
        assert "If quotas were enforced" in observed[load]["sentence"]


def run_loads(sluice: SluiceProcess, topic: Topic, read: Topic, name: str) -> dict[str, dict[str, Any]]:
    """All loads at a time; returns their explanations while they run."""
    over = threading.Event()
    sent = produce_request(topic, 0, batch([bytes(RECORD_BYTES)]))
    asked = fetch_request(read, {0: 0}, version=12, max_wait_ms=100)
    requests = {"produces": sent, "fetches": asked, "floods": sent, "bursts": sent}

    def repeat(load: str) -> None:
        leader = (read if load == "fetches" else topic).leaders[0]
        count, pause_seconds = RHYTHMS[load]
        with wired(sluice.ports.address(leader), f"{load}-{name}") as wire:
            while not over.is_set():
                for _ in range(count):
                    wire.ask(requests[load])
                time.sleep(pause_seconds)

    threads = [threading.Thread(target=repeat, args=(load,)) for load in requests]
    for thread in threads:
        thread.start()
    try:
        time.sleep(SECONDS)
        return {load: explained(sluice, f"{load}-{name}") for load in requests}
    finally:
        over.set()
        for thread in threads:
            thread.join()


def explained(sluice: SluiceProcess, client_id: str) -> dict[str, Any]:
    document = sluice.asked("/v1/client", client_id=client_id, window=10)
    assert document is not None
    return document
