"""Several workers in front of real brokers.

That every feature works with them is shown by other tests of this directory, which `make test` runs again with
SLUICE_PROCESS__WORKERS=2.
"""

import signal
import time
from contextlib import ExitStack
from pathlib import Path

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.numbered import NumberedProducer
from tests.support.proxy_process import SluiceProcess, SluiceSettings

WORKERS = 2


def test_quota_is_one_budget_for_all_workers(
    kafka: Cluster, tmp_path: Path, create_topic: CreateTopic
) -> None:
    quota = 400_000
    settings = SluiceSettings(
        kafka.bootstrap(),
        quotas={"policy": "schedule", "scope": "cluster"},
        client_quotas={"budget": {"producer_byte_rate": quota}},
        sections={"process": {"workers": WORKERS}},
    )
    name = create_topic(partitions=3)
    with SluiceProcess.configured(settings, tmp_path) as sluice, ExitStack() as stack:
        for _ in range(6):  # each has a connection for each broker
            load = NumberedProducer(
                sluice.bootstrap, name, partitions=3, client_id="budget", records_per_second=200
            )
            stack.enter_context(load)
        time.sleep(5)  # the burst, and the first shares
        before, began = produced(sluice), time.monotonic()
        time.sleep(10)
        rate = (produced(sluice) - before) / (time.monotonic() - began)
        both = [sluice.metric("sluice_worker_connections", worker=str(number)) for number in (1, 2)]
        sluice.signal(signal.SIGUSR1)  # what waits may go
    assert 0 not in both
    # In ten seconds: the burst of one, and a request of each worker, which may be as large as half of that.
    assert 0.65 * quota < rate < 1.35 * quota


def produced(sluice: SluiceProcess) -> float:
    """The bytes that were charged."""
    return sluice.metric("sluice_client_bytes_total", client_id="budget", type="Produce")
